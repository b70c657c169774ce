"""Times replays and, in a copy of a graph, its parts, with events; puts back what the work has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

from .._interpreter import boolean, integer
from ..backends.base import Capability, GraphContents, GraphEdge, GraphNode, unsupported
from ..backends.memory import memory_of
from ..errors import GraphStateError, UnsupportedError
from .capture import Captured, LabelledRange
from .labels import if_in_order
from .launching import Executable
from .streams import Event, OwnedEvent, Stream, captured_by

if TYPE_CHECKING:
    from .replay import Runner

WARM_UP = 3
"""How many replays come before those that are timed: the first ones may still load code."""

_Saved = tuple[object, bytearray]
"""An array, and what was in it."""

_in_use: dict[int, object] = {}
"""Copies on the host that the device may still use. They stay if their stream can't be waited for."""


Range = tuple[int, int]
"""The number of a part's first node, and the one after its last."""

Span = tuple[float, float]
"""When a part began and ended, in microseconds since a replay was launched."""

PartSpan = tuple[float, float, float]
"""When a segment or what is between two began and ended on the stream, and how long the host took for it."""

_TOLERANCE = 0.05
"""The share of a replay's time by which the graph's events may lie outside the events around its launch."""


class Borders(NamedTuple):
    """The positions of the events."""

    before: list[int]
    after: list[int]
    begins: list[list[int]]
    ends: list[list[int]]
    """By part: the events of which the first is its beginning, and those of which the last is its end."""
    cut: list[GraphEdge]
    """Programmatic dependencies that the events make ordinary ones."""


def borders(ranges: Sequence[Range], contents: GraphContents) -> Borders:
    """Return where events mark the begin and end of parts, without ordering nodes that are not ordered."""
    nodes, edges = contents
    earlier: list[list[int]] = [[] for _ in nodes]
    later: list[list[int]] = [[] for _ in nodes]
    for edge in edges:
        earlier[edge.target].append(edge.source)
        later[edge.source].append(edge.target)
    # a place is a node, and whether the event is after it
    begins = [
        [
            (earlier[node][0], True) if len(earlier[node]) == 1 else (node, False)
            for node in range(*each)
            if not _any_within(earlier[node], each)
        ]
        for each in ranges
    ]
    ends = [[(node, True) for node in range(*each) if not _any_within(later[node], each)] for each in ranges]
    used = {place for places in (*begins, *ends) for place in places}
    before, after = (sorted(node for node, is_after in used if is_after == side) for side in (False, True))
    places = [*((node, False) for node in before), *((node, True) for node in after)]
    event = {place: index for index, place in enumerate(places)}
    return Borders(
        before,
        after,
        [[event[place] for place in dict.fromkeys(places)] for places in begins],
        [[event[place] for place in places] for places in ends],
        [
            edge
            for edge in edges
            if edge.kind and ((edge.source, True) in used or (edge.target, False) in used)
        ],
    )


def why_not_copied(nodes: Iterable[GraphNode]) -> str:
    """Return why a graph can't be copied; an empty string if nothing is known against it."""
    for node in nodes:
        if node.kind in _NOT_COPIED:
            return f"the graph {_NOT_COPIED[node.kind]} (node {node.id}), and such graphs can't be copied"
        for body in node.bodies:
            why = why_not_copied(body[0])
            if why:
                return why
    return ""


_NOT_COPIED = {
    "mem_alloc": "allocates memory",
    "mem_free": "frees memory",
    "conditional": "has a conditional node",
}


class Sections:
    """An executable that reports when parts of a graph begin and end.

    Parameters
    ----------
    stream : Stream
        Where it runs.
    captured : Captured
        The graph.
    places : Borders
        Where its events stand.
    """

    def __init__(self, stream: Stream, captured: Captured, places: Borders) -> None:
        backend = stream._backend
        value, events = backend.instantiate_timed(captured.native, places.before, places.after)
        self._events = [OwnedEvent(backend, backend, event) for event in events]
        self._executable = Executable(backend, backend, value, stream._owner, *self._events)
        self._stream = stream
        self._places = places
        self._around: tuple[Event, Event]

    def launch(self) -> None:
        """Enqueue a run, with an event before and after it."""
        start = self._stream.record(timing=True)
        self._stream._backend.replay(self._executable.value, self._stream._native)
        self._around = start, self._stream.record(timing=True)

    def spans(self) -> list[Span] | None:
        """Return the spans of the latest run, once it is over; None if the runtime does not report them."""
        times = _times_within(self._events, *self._around)
        if times is None:
            return None
        return [
            (min(times[event] for event in begins), max(times[event] for event in ends))
            for begins, ends in zip(self._places.begins, self._places.ends, strict=True)
        ]


def _times_within(events: Sequence[OwnedEvent], start: Event, end: Event) -> list[float] | None:
    """Return the times of a graph's events in microseconds since an event before its launch.

    None if the runtime does not report them, or if one lies outside the run, which `end` is behind.
    """
    began = start._native.value
    found = [event.backend.elapsed_time(began, event.value) for event in events]
    times = [time * 1000 for time in found if time is not None]
    most = start.elapsed_time(end) * 1000
    if len(times) < len(found) or min(times) < -_TOLERANCE * most or max(times) > (1 + _TOLERANCE) * most:
        return None
    return times


def _any_within(nodes: Iterable[int], span: Range) -> bool:
    return any(span[0] <= node < span[1] for node in nodes)


class Labelled(NamedTuple):
    """The labels of a graph that can be timed, or why they can't."""

    labels: tuple[LabelledRange, ...] = ()
    sections: Sections | None = None
    cut: Sequence[GraphEdge] = ()
    """Programmatic dependencies that are ordinary ones in the copy that is timed."""
    why_not: str = ""


class Measured(NamedTuple):
    """The times of replays."""

    times: list[float]
    """Of the graph itself, in microseconds."""
    spans: list[list[Span]]
    """Of its copy with events, by replay: that of the whole, and then those of the labels."""
    nodes: Sequence[Mapping[int, Span]] = ()
    """Of the nodes that the vendor's profiler has seen, by replay."""


def checked(replays: int, state: Iterable[object] | None, kernels: bool) -> tuple[int, list[object], bool]:
    """Return the arguments of `Graph.profile`; raise TypeError or ValueError for wrong ones."""
    replays = integer(replays, "profile: replays")
    if replays < 1:
        raise ValueError(f"profile: replays must be 1 or more, not {replays}.")
    if state is not None and not isinstance(state, Iterable):
        raise TypeError(f"profile: state must be an iterable of arrays, not {state!r}.")
    return replays, [] if state is None else list(state), boolean(kernels, "profile: kernels")


def measure(
    runner: Runner, keeps: object, replays: int, state: Sequence[object], traced: Captured | None
) -> tuple[Stream, int | None, Labelled, Measured]:
    """Time a graph where its replays go; return that stream, how many nodes there are, and the times."""
    stream = runner.destination().held()
    check_timing(stream, state)
    if traced is not None:
        check_traced(traced, stream)
    found = labelled(stream, runner.captured)
    launch = runner.bind(stream, keeps)
    measured = replay_times(stream, launch, replays, state, found.sections, traced)
    try:
        return stream, runner.num_nodes(), found, measured
    except UnsupportedError:
        return stream, None, found, measured


def measure_parts(
    runner: Runner, replays: int, state: Sequence[object], live: Mapping[str, object]
) -> tuple[Stream, list[float], list[list[PartSpan]]]:
    """Time a graph in segments where its replays go.

    Returns that stream, the times of the replays, and by replay the spans of the parts.
    """
    stream = runner.destination().held()
    check_timing(stream, state)
    runs: list[list[tuple[Event, int]]] = []

    def mark() -> None:
        runs[-1].append((stream.record(timing=True), perf_counter_ns()))

    def launch() -> None:
        runs.append([])
        runner.replay_with(live, stream, mark)

    times = replay_times(stream, launch, replays, state).times
    marks = [
        [(run[0][0].elapsed_time(event) * 1000, clock / 1000) for event, clock in run]
        for run in runs[-replays:]
    ]
    return (
        stream,
        times,
        [[(begin, end, later - sooner) for (begin, sooner), (end, later) in pairwise(run)] for run in marks],
    )


def replay_times(
    stream: Stream,
    launch: Callable[[], object],
    replays: int,
    state: Sequence[object],
    sections: Sections | None = None,
    traced: Captured | None = None,
) -> Measured:
    """Time some replays of a graph, and of its parts.

    Parameters
    ----------
    stream : Stream
        Where `launch` replays.
    launch : callable
        Replays once.
    replays : int
        How many are timed.
    state : sequence of arrays
        What is copied to the host before, and back afterwards, even if a replay fails.
    sections : Sections, optional
        A copy that reports the times of the parts. It runs as often again.
    traced : Captured, optional
        The graph, to be run as often again under the vendor's profiler.
    """
    backend, native = stream._backend, stream._native
    sizes = [memory_of(array, None, writable=True, device=True).nbytes for array in state]
    kept = [(array, bytearray(size)) for array, size in zip(state, sizes, strict=True)]
    copied: Sequence[_Saved] = ()
    with stream._relaxed():
        try:
            _in_use[id(kept)] = kept
            for array, copy in kept:
                backend.copy(native, copy, array, None)
            backend.synchronize(native)
            copied = kept
            nodes = () if traced is None else backend.time_nodes(traced.native, native, replays)
            if sections is None:
                return Measured(_times(stream, launch, replays), [], nodes)
            return _times_and_spans(stream, launch, replays, sections)._replace(nodes=nodes)
        finally:
            try:
                _put_back(stream, kept, copied)
            except BaseException:  # an interrupt
                _put_back(stream, kept, copied)
                raise


def _times(stream: Stream, launch: Callable[[], object], replays: int) -> list[float]:
    for _ in range(WARM_UP):
        launch()
    marks = [_mark(stream, launch) for _ in range(replays)]
    stream._backend.synchronize(stream._native)
    return [start.elapsed_time(end) * 1000 for start, end in marks]


def _times_and_spans(
    stream: Stream, launch: Callable[[], object], replays: int, sections: Sections
) -> Measured:
    """Run the copy and the graph in turns, so that both find the device in the same state.

    The copy comes first: while it runs, the host enqueues the replay, whose time has no launch in it then.
    """
    times: list[float] = []
    spans: list[list[Span] | None] = []
    for _ in range(WARM_UP + replays):
        sections.launch()
        start, end = _mark(stream, launch)
        stream._backend.synchronize(stream._native)
        times.append(start.elapsed_time(end) * 1000)
        spans.append(sections.spans())
    known = [each for each in spans[WARM_UP:] if each is not None]
    return Measured(times[WARM_UP:], known if len(known) == len(times) - WARM_UP else [])


def check_timing(stream: Stream, state: Sequence[object]) -> None:
    """Raise an error if replays can't be timed on a stream."""
    backend = stream._backend
    for capability in (Capability.TIMING, *([Capability.ENQUEUE] if state else [])):
        if capability not in backend.capabilities(stream.device):
            raise unsupported(backend, capability)
    if stream._is_capturing():
        raise GraphStateError(f"Graph.profile(): {captured_by(stream)}.")


def check_traced(captured: Captured, stream: Stream) -> None:
    """Raise `UnsupportedError` if a graph can't be run under a profiler."""
    backend = stream._backend
    if Capability.NODE_TIMES not in backend.capabilities(stream.device):
        raise UnsupportedError(
            f"backend {backend.name!r} has no profiler that sees nodes; time labels instead.",
            capability=str(Capability.NODE_TIMES),
        )
    why_not = why_not_copied(captured.backend.nodes(captured.native)[0])
    if why_not:
        raise UnsupportedError(f"profile(kernels=True): {why_not}; use the vendor's own profiler.")


def labelled(stream: Stream, captured: Captured | None) -> Labelled:
    """Return the labels of a graph, ready to be timed."""
    backend = stream._backend
    if captured is None:
        return Labelled(why_not="the graph was not kept; use Graph(keep_graph=True)")
    if not captured.labels:
        return Labelled(why_not="nothing in the graph is labelled")
    contents = captured.backend.nodes(captured.native)
    nodes, edges = contents
    labels = if_in_order(captured.labels, edges, captured.backend)
    if not labels:
        return Labelled(why_not="the nodes are not listed in the order of recording")
    if Capability.GRAPH_EVENTS not in backend.capabilities(stream.device):
        why_not = f"backend {backend.name!r} can't record events inside a copy of a graph"
    else:
        why_not = why_not_copied(nodes)
    if why_not:
        return Labelled(why_not=why_not)
    places = borders([(0, len(nodes)), *((start, stop) for _, start, stop, _, _ in labels)], contents)
    return Labelled(labels, Sections(stream, captured, places), places.cut)


def _put_back(stream: Stream, kept: Sequence[_Saved], copied: Sequence[_Saved]) -> None:
    """Copy arrays back from the host, the others too if one can't be, and wait for that. Can be repeated."""
    backend, native = stream._backend, stream._native
    with ExitStack() as each_of_them:
        each_of_them.callback(backend.synchronize, native)
        for array, copy in copied:
            each_of_them.callback(backend.copy, native, array, copy, None)
    _in_use.pop(id(kept), None)


def _mark(stream: Stream, launch: Callable[[], object]) -> tuple[Event, Event]:
    start = stream.record(timing=True)
    launch()
    return start, stream.record(timing=True)
