"""A captured call of a graphed function: how it is captured, and replayed on the contents of other arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from .._arrays.arrays import on_device, on_host
from .._arrays.placement import only_our_streams, works_on_host, writable
from .._arrays.signatures import Call, Leaves, Reader
from .._core import stream_stack
from .._core.current_stream import side_of
from .._core.observers import Observer
from .._core.pools import PoolId
from .._core.streams import Stream
from ..api import Graph, graph
from .binding import NotFollowing, why_copied
from .call_order import CallOrder, ReplayStream, ReplayStreams
from .options import Mode
from .python_state import PythonState
from .results import RecordedWork, Result, check_unwritten, nothing_recorded
from .static_inputs import StaticInputs, copy_out

if TYPE_CHECKING:
    from .guards import Guarded

Swap = Callable[[Any], Any]
"""Returns what the function gets in the place of a value in its arguments."""


@dataclass(eq=False)
class RecordedCall:
    """A captured graph, with what is needed to replay it for other calls with its signature."""

    graph: Graph
    pool: PoolId
    inputs: StaticInputs
    result: Result
    streams: ReplayStreams
    order: CallOrder
    signature: Hashable
    names: Sequence[str]
    """The arrays in the arguments."""
    mode: Mode
    why: str
    """Why its calls copy more than was asked for."""
    used: int = 0
    """When the graph was replayed last, counted in replays of the function."""
    closed: bool = False
    guarded: Guarded | None = None
    """Sees that calls are alike."""
    guard_tried: bool = False
    """Whether that was made, if it can be."""
    ran_for: Leaves | None = None
    """The values of the call whose run the capture was, until they are asked for."""
    writes_vary: bool = False
    """Whether a run may write other arguments than the capture, which count their writes."""

    def is_on_device_of(self, stream: Stream) -> bool:
        """Return True if the graph was captured on a stream's device."""
        captured = self._captured_stream()
        return captured._backend is stream._backend and captured.device == stream.device

    def _captured_stream(self) -> Stream:
        assert self.graph.stream is not None
        return self.graph.stream

    def run(self, leaves: Leaves, where: ReplayStream) -> Any:
        """Copy the arrays of a call in, replay, and return the result of the call."""
        stream, inputs, result = where.stream, self.inputs, self.result
        if where.entered:
            return stream_stack.within(stream, self.run, leaves, where._replace(entered=False))
        ran, self.ran_for = self.ran_for is leaves, None
        if not ran:
            inputs.copy_in(leaves, stream)
            versions = inputs.versions() if self.writes_vary else None
            where.launch()
            if versions is not None:
                inputs.note_written(inputs.written(versions, leaves, self.names))
        back, new = inputs.copies_back(leaves), result.new_arrays()
        if back or result.fills:
            inputs.enqueue(stream, copy_out, back, leaves, result.fills, new)
        if where.marked:
            self.order.mark_end()
        return result.for_call(leaves, new)

    def close(self) -> None:
        """Give back the graph, once the calls so far are done."""
        self.closed = True
        side = side_of(self._captured_stream())  # no other thread captures on this stream
        self.order.wait(side)
        side.synchronize()
        self.graph.reset()


class _NeverEmpty(Graph):
    """A graph whose capture fails if nothing was recorded."""

    __slots__ = ()

    def _found_empty(self, subject: str) -> NoReturn:
        raise nothing_recorded()


# ---- capturing a call ------------------------------------------------------------------------------


class Capturable(NamedTuple):
    """A call that can be captured."""

    call: Call
    run: Callable[[Call, Swap], Any]
    """Runs the call with other arrays in its arguments."""
    graphed: object
    """The graphed function, for messages."""
    names: list[str]
    """The arguments, for messages."""
    arrays: list[str]
    """The arrays in them."""
    stream: Stream
    """The current stream, whose device can read the arrays: the call is captured beside it."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function as it is."""
        return getattr(self.graphed, "__wrapped__", self.run)


class Recorder:
    """Captures the calls of a function.

    `copies` says whether every call returns new arrays, `check` whether its graphs observe what they own.
    """

    def __init__(self, reader: Reader, order: CallOrder, *, copies: bool, check: bool = False) -> None:
        self._reader = reader
        self._order = order
        self._copies = copies
        self._check = check

    def _observers(self) -> tuple[Observer, ...]:
        if not self._check:
            return ()
        from .._checking.observer import ownership

        return (ownership(),)

    def record(
        self,
        wanted: Capturable,
        mode: Mode,
        pool: PoolId,
        python: PythonState | None = None,
        breaks: bool | Sequence[object] = False,
    ) -> RecordedCall:
        """Capture a call. For ``"bind"``, `python` has the references that the function can reach.

        With breaks, as `graph` takes them, the capture is the run of this call.

        Raises
        ------
        NotFollowing
            The mode is not possible for this call.
        CaptureError
            The function does what can't be captured or repeated.
        TypeError, ValueError
            No call can return a copy of the result, or the function writes an argument that can't be
            written.
        """
        leaves, stream = wanted.call.leaves, wanted.stream
        host = works_on_host(stream)
        all_seen = only_our_streams(stream)  # no work but what our streams are given can be recorded
        types = [self._reader.array_types[type(leaf)] for leaf in leaves]
        enqueue = on_host if host else on_device
        nodes = mode == "node" and not all_seen
        inputs = StaticInputs(leaves, types, stream, self._order, enqueue, nodes=nodes)
        if breaks:
            inputs.fill(stream, leaves)
        arguments = inputs.arguments(leaves)
        contents = inputs.contents() if all_seen and host and not breaks else []
        versions = inputs.versions()
        observe = self._observers()
        keep = not all_seen and (mode == "bind" or inputs.in_graph)
        graph = (_NeverEmpty if all_seen else Graph)(keep_graph=keep, observe=observe)
        passed: set[int] = set()
        value = _capture(wanted, inputs, arguments, graph, pool, passed, breaks)
        try:
            if contents:
                check_unwritten(contents, inputs.contents(), wanted.arrays)
            written = inputs.written(versions, leaves, wanted.arrays)
            work = _recorded_work(graph, inputs, passed) if all_seen else None
            indices = inputs.indices(arguments)
            result = Result(value, indices, self._reader, on_host=host, copies=self._copies, work=work)
            back = [i for i in written | (result.returned - inputs.merged.keys()) if writable(leaves[i])]
            why = ""
            if python is not None:
                why = _bind(wanted, inputs, graph, result, python)
            elif not inputs.connect(graph):
                raise NotFollowing("the sources of its copies can't be changed")
            elif mode == "node" and not inputs.in_graph:
                mode, why = "copy", "no argument is an array that a node could copy"
            copied = inputs.plan_copies(back) + [each for _, each in result.outputs if self._copies]
            in_segments = graph._runner_for("replay()").in_segments
            streams = ReplayStreams(graph, self._order, stream, copied, host, bound=not in_segments)
            made = graph, pool, inputs, result, streams, self._order, wanted.call.signature
            recorded = RecordedCall(*made, wanted.arrays, mode, why)
            recorded.ran_for = leaves if breaks else None
            recorded.guard_tried, recorded.writes_vary = in_segments, in_segments and not host
            return recorded
        except BaseException:
            graph.reset()
            raise


def _capture(
    wanted: Capturable,
    inputs: StaticInputs,
    arguments: Sequence[Any],
    into: Graph,
    pool: PoolId | None,
    passed: set[int],
    breaks: bool | Sequence[object] = False,
) -> Any:
    """Capture a call with other arrays as its arguments, and return its result.

    The ids of what the function gets are added to `passed`.
    """
    leaves, stream = wanted.call.leaves, wanted.stream
    statics = dict(zip(map(id, leaves), arguments, strict=True))

    def swap(value: Any) -> Any:
        passed.add(id(value))
        return statics.get(id(value), value)

    side = side_of(stream)
    side._follow(stream)
    with graph(into, pool, side, breaks=breaks):
        inputs.record_copies(side, leaves)
        value = wanted.run(wanted.call, swap)
    if breaks:
        stream._follow(side)
    return value


def _bind(wanted: Capturable, inputs: StaticInputs, into: Graph, result: Result, python: PythonState) -> str:
    """Find the arguments that need no copies, and return why others are copied."""
    leaves = wanted.call.leaves

    def capture_again(arrays: Sequence[Any]) -> Graph:
        made = Graph(keep_graph=True)
        pairs = zip(inputs.array_types, arrays, leaves, strict=True)
        given = [array_type.as_argument(*pair) for array_type, *pair in pairs]
        _capture(wanted, inputs, given, made, None, set())
        return made

    after = python.now()
    roots = [python.function, *result.objects]
    rest = inputs.bind(into, leaves, result, roots, wanted.stream, capture_again)
    if not after.complete:
        raise NotFollowing("it can reach more references than are looked at")
    after.restore()
    return why_copied([wanted.arrays[i] for i in rest])


def _recorded_work(captured: Graph, inputs: StaticInputs, passed: set[int]) -> RecordedWork | None:
    """Return the work of every replay; None if the graph has nodes that our streams were not given."""
    runner = captured._runner_for("num_nodes")
    seen, nodes = runner.retained, runner.counted
    if nodes is not None and nodes > len(seen):
        return None
    held = [each.held for each in runner.calls]
    return RecordedWork([*seen, *held, inputs.arrays], passed)
