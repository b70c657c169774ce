"""What a capture with breaks leaves: segments and calls in order, and the runs of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

from .._arrays.arrays import copy_all, on_device, on_host
from .._arrays.containers import leaves_of, only_tuples, rebuild
from .._arrays.placement import extent, works_on_host
from .._core import stream_stack
from .._core.replay import (
    Binding,
    ConditionalPart,
    EagerPart,
    Runner,
    calls_in,
    make_room,
    parts_in,
    segments_in,
)
from .._core.streams import Stream, as_stream, describe, innermost
from ..backends.base import Capability
from ..errors import CaptureError, GraphStateError, UnsupportedError

if TYPE_CHECKING:
    from .._arrays.signatures import Reader
    from .._core.capture import LabelledRange, Where
    from .._core.graph import BaseGraph
    from .._core.labels import Mark
    from .._core.pools import Lease
    from .._core.replay import Executable
    from ..interop.base import ModeState

_ANEW = "capture its work anew into another Graph"
_REFUSED: dict[str, str] = {
    "bind()": "{} calls Python between its segments; call replay()",
    "update()": f"{{}} is not changed in place; {_ANEW}",
    "recapture()": f"{{}} is not changed in place; {_ANEW}",
    "clone()": "{} can't be copied; capture its work twice",
    "set_node()": f"the segments of {{}} are not changed; {_ANEW}",
    "set_nodes()": f"the segments of {{}} are not changed; {_ANEW}",
    "instantiate()": f"the segments of {{}} have their executables; {_ANEW}",
    "profile(kernels=True)": "{} can't be copied; use the vendor's own profiler",
    "raw_graph()": "{} is several graphs of the runtime, and none of them is the whole",
    "raw_executable()": "{} is several executables, and none of them is the whole",
    "raw_cuda_graph()": "{} is several graphs of the runtime, and none of them is the whole",
    "raw_cuda_graph_exec()": "{} is several executables, and none of them is the whole",
}
"""What a graph in segments refuses: the sentence by operation."""

_WITH_BREAKS = "a graph with breaks"
_WITH_TESTS = "a graph with loops or branches that the host tests"
_REFUSED_BY = {
    kind: {what: sentence.format(kind) for what, sentence in _REFUSED.items()}
    for kind in (_WITH_BREAKS, _WITH_TESTS)
}

_NOTHING = object()

_HALF = "it is in the middle of a replay, in an eager call or on another thread; do this after that"


class Live:
    """Stands in the arguments of an eager call for what a replay gives by name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class EagerCall(EagerPart):
    """A call between two segments.

    Parameters
    ----------
    function : callable
        The function.
    place : tuple of str, str and int
        The function's name, and the file and line of the call.
    given : tuple
        Its arguments by position and by name, in containers of their own.
    reader : Reader
        Reads results.
    stream : Stream
        The captured stream.
    """

    __slots__ = (
        "_copies",
        "_fixed",
        "_function",
        "_given",
        "_reader",
        "_result",
        "_results",
        "_signature",
        "lives",
        "modes",
        "streams",
        "valid_rows",
        "what",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        place: tuple[str, str, int],
        given: Any,
        reader: Reader,
        stream: Stream,
    ) -> None:
        super().__init__(*place)
        self._function = function
        self._given = given
        self.held = (*given[0], *given[1].values())
        self._reader = reader
        self.lives = tuple(each.name for each in leaves_of(given) if isinstance(each, Live))
        """The names of the live objects among the arguments."""
        self._fixed = not self.lives and all(map(only_tuples, (*given[0], *given[1].values())))
        self._copies = on_host if works_on_host(stream) else on_device
        self.what = "the eager call of {} at {}:{}".format(*place)
        """Which call it is, for messages."""
        self.streams: tuple[Stream, ...] = ()
        self.valid_rows: Callable[..., int] | None = None
        self.modes: tuple[ModeState, ...] = ()
        self._refuse_gradients(given, "takes")

    def first(self, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note what the call has returned in the capture, for which arguments.

        Raises
        ------
        CaptureError
            A replay could not tell whether it returns the same, or gradients would pass through it.
        """
        leaves: list[Any] = []
        self._signature = self._read(result, leaves)
        self._results = tuple(leaves)
        self.held = (*self.held, result)
        self._refuse_gradients(result, "returns")
        self._result = result if only_tuples(result) else _NOTHING  # else it may have changed
        self._join()
        self._clear_the_rest(args, kwargs)

    def _read(self, result: Any, leaves: list[Any]) -> object:
        try:
            signature = self._reader.read((result,), leaves)
            hash(signature)
        except TypeError as error:
            raise CaptureError(
                f"{self.what} returned a value that replays can't compare with theirs ({error}); return "
                "arrays, hashable values, or tuples, lists, dicts and dataclasses of them.",
                reason="other",
            ) from error
        return signature

    def _refuse_gradients(self, value: Any, verb: str) -> None:
        if self._reader.requires_grad(value):
            raise UnsupportedError(
                f"{self.what} {verb} a tensor that requires grad, and no gradients pass through a break: "
                "the backward pass would read what the capture has saved. Pass its detach(), or capture "
                "under no_grad().",
                capability="autograd",
            )

    @property
    def nbytes(self) -> int | None:
        """How large the arrays are that it has returned in the capture, without those that it was given."""
        given = {id(each) for each in leaves_of(self._given)}
        extents = [extent(each) for each in self._results if id(each) not in given]
        return None if None in extents else sum(each[1] - each[0] for each in extents if each)

    def run(self, stream: Stream, live: Mapping[str, object]) -> None:
        """Call it, in a replay, and copy what it returns to where the next segment reads it."""
        args, kwargs = self._given if self._fixed else self._rebuilt(live)
        try:
            result = self._function(*args, **kwargs)
            if self.streams:
                self._join()
            if result is not self._result:
                self._take(result, stream)
            if self.valid_rows is not None:
                self._clear_the_rest(args, kwargs)
        except BaseException as error:
            error.add_note(
                f"It came from {self.what}, in a replay; the next replay begins at the first segment."
            )
            raise

    def _rebuilt(self, live: Mapping[str, object]) -> Any:
        return rebuild(self._given, lambda x: live[x.name] if isinstance(x, Live) else x)

    def _take(self, result: Any, stream: Stream) -> None:
        leaves: list[Any] = []
        if self._read(result, leaves) != self._signature:
            raise GraphStateError(
                f"{self.what} returned something else than in the capture: {self._difference(result)}. The "
                "segments read what it returned there; keep what may change inside the call."
            )
        pairs = [pair for pair in zip(self._results, leaves, strict=True) if pair[0] is not pair[1]]
        if pairs:
            self._copies(stream, copy_all, pairs)

    def _join(self) -> None:
        """Have the current stream wait for the work that the call has left on others."""
        stream = innermost()
        assert stream is not None
        for other in self.streams:
            stream.wait(other)

    def _clear_the_rest(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Set the rows of the results that are not valid to zero."""
        stream = innermost()
        assert stream is not None
        if self.valid_rows is not None:
            self._copies(stream, _clear, self._results, self.valid_rows(*args, **kwargs))

    def _difference(self, result: Any) -> str:
        """Say in what a result differs from the captured one."""
        now: list[Any] = []
        x: Any
        signature = self._read(result, now)
        if len(now) != len(self._results):
            return f"{len(now)} arrays, and not {len(self._results)}"
        for i, (x, y) in enumerate(zip(self._results, now, strict=True)):
            then, here = (self._reader.read((each,), []) for each in (x, y))
            if then != here:
                was, now_is = (f"{tuple(each.shape)} and type {each.dtype}" for each in (x, y))
                return f"array {i} has shape {now_is}, and not {was}"
        return f"other Python values ({signature!r}, and not {self._signature!r})"


def _clear(arrays: Sequence[Any], rows: int) -> None:
    for x in arrays:
        x[rows:] = 0


class HostTest(ConditionalPart):
    """A loop or a branch between segments, whose flag the host reads.

    Parameters
    ----------
    kind : {"while", "if"}
        Which of the two.
    place : tuple of str and int
        The file and line of the call.
    flag : object
        Its ``read(stream)`` waits for the stream and returns whether the flag is true.
    limit : int or None
        The most bodies of a loop.
    check_every : int
        How many bodies of a loop run for each reading.
    held : tuple
        What has to live as long.
    """

    __slots__ = ("__weakref__", "_check_every", "count", "flag", "limit", "what")

    def __init__(
        self,
        kind: Literal["while", "if"],
        place: tuple[str, int],
        flag: Any,
        limit: int | None = None,
        check_every: int = 1,
        held: tuple[object, ...] = (),
    ) -> None:
        super().__init__(kind, *place)
        self.kind = kind
        self.held = held
        self.bodies = ()
        self.count = 0
        """How many bodies the last run of a loop has run."""
        self.what = "the {} at {}:{}".format("loop" if kind == "while" else "branch", *place)
        """Which one it is, for messages."""
        self.flag = flag
        self.limit = limit
        self._check_every = check_every

    def taken(self, stream: Stream) -> int | None:
        """Return which body runs now; None if none does, or there is none for this flag."""
        return 0 if self.flag.read(stream) else 1 if self.kind == "if" else None

    def run(self, stream: Stream, bodies: Sequence[Callable[[], None]], done: int = 0) -> None:
        """Run bodies as the flag says; so many have run already."""
        if self.kind == "if":
            taken = None if done else self.taken(stream)
            if taken is not None and taken < len(bodies):
                bodies[taken]()
            return
        self.count = done
        while self.count != self.limit and (self.count % self._check_every or self.flag.read(stream)):
            bodies[0]()
            self.count += 1


Step = tuple[Callable[[], None], EagerCall | None]
"""What launches a segment or runs a loop or a branch, or a call that comes between."""


def _no_launch() -> None:
    pass


class SegmentedRunner(Runner):
    """Replays segments, and calls what stands between them.

    Parameters
    ----------
    place : Where
        Where it is captured.
    """

    __slots__ = (
        "_bound",
        "_captured_on",
        "_host",
        "_last",
        "_live",
        "_lives",
        "_recorded",
        "_run",
        "_waits_here",
        "noted",
        "refused",
        "steps",
    )

    def __init__(self, place: Where) -> None:
        super().__init__(None, False, place.hold, None)  # type: ignore[arg-type]
        self.steps: list[Runner | EagerPart] = []
        """The segments, and what is between them, in order."""
        self.noted: list[Mark] = []
        """The labels, in the nodes of the whole graph; the calls count as nodes."""
        self._recorded: list[Runner] = []
        """All segments; an empty one may be all by which a framework keeps the pool."""
        self._lives: frozenset[str] = frozenset()
        self._captured_on = place.stream
        self._host = works_on_host(place.stream)
        self._waits_here = Capability.EVENTS not in place.stream._backend.capabilities(place.stream.device)
        self._bound: dict[Any, list[Step]] = {}
        self._live: Mapping[str, object] = {}
        """Those of the run that is under way, if it comes to loops or branches."""
        self.refused = _REFUSED_BY[_WITH_BREAKS]
        self._run: object = None
        """Stands for the run that is under way."""
        self._last = place.stream.held()
        """The stream of the latest run."""

    # ---- in the capture ------------------------------------------------------------------------

    def add(self, segment: Runner, *, empty: bool, runs: bool) -> None:
        """Keep a segment that was just recorded unless it is empty, and run it if segments run now."""
        self._recorded.append(segment)
        if empty:
            return
        segment.instantiate()
        self.steps.append(segment)
        if runs:
            Binding(segment, self._captured_on.held()).launch()

    def go_on(self, part: HostTest, live: Mapping[str, object]) -> None:
        """Go on with a loop or a branch whose body has just run for the first time."""
        stream = self._captured_on
        self._live = live
        stream_stack.within(stream, part.run, stream, self._bodies_of(part, stream), 1)

    def settle(self) -> None:
        """Wait for the segments where work's memory is the host's, which an eager call may read at once."""
        if self._host:
            self._captured_on.synchronize()

    def streams_of(self, streams: Iterable[object]) -> tuple[Stream, ...]:
        """Return the streams that an eager call leaves work on."""
        return tuple(as_stream(each, self._captured_on.backend) for each in streams)

    def latest_run(self) -> Callable[[], Stream | None]:
        """Return what returns the stream of the latest run, as long as there is the graph."""
        this = ref(self)
        return lambda: None if (runner := this()) is None or runner.ended else runner._last

    def finish(self, graph: BaseGraph, lease: Lease, *, ran: bool) -> None:
        """Be what replays this graph, whose segments have run in the capture or not."""
        segments = self.segments
        self.captured = segments[0].captured if segments else None
        self.counted = _sum(each.counted for each in segments)
        self.beside = self._captured_on is not graph._home
        self.retained += tuple(graph._retained or ())
        self.observations = tuple(each for part in parts_in(self.steps) for each in part.observations)
        self.lease = lease
        self._lives = frozenset(name for each in self.calls for name in each.lives)
        self.refused = _REFUSED_BY[self._kind()]
        if ran and self.beside:  # what follows the block there comes after this first run
            self._follow(self.home if graph._home is None else graph._home)

    def simplest(self) -> Runner:
        """Return the only segment, if a run is nothing more, which can do all that graphs can; else this."""
        if len(self._recorded) > 1 or not self.steps:
            return self
        (segment,) = self._recorded
        segment.beside, segment.retained = self.beside, self.retained
        return segment

    @property
    def parts(self) -> Sequence[Runner | EagerPart]:
        """The segments and calls, in order."""
        return tuple(self.steps)

    @property
    def labels(self) -> tuple[LabelledRange, ...]:
        """The labels, in the nodes of the whole graph."""
        spans = ((each, each.start, each.stop or 0) for each in self.noted)
        return tuple((mark.name, start, stop, *mark.site) for mark, start, stop in spans if start < stop)

    def node_count(self) -> int:
        """Return how many nodes and calls there are so far."""
        return sum(1 if isinstance(each, EagerPart) else each.counted or 0 for each in self.steps)

    def _kind(self) -> str:
        return _WITH_BREAKS if self.calls else _WITH_TESTS

    @property
    def segments(self) -> list[Runner]:
        """The segments, those in bodies as well."""
        return [*segments_in(self.steps)]

    @property
    def calls(self) -> list[EagerCall]:
        """The calls between them."""
        return [each for each in calls_in(self.steps) if isinstance(each, EagerCall)]

    # ---- replays -------------------------------------------------------------------------------

    @property
    def executable(self) -> Executable | None:
        """The executable of the first segment, which stands for all."""
        segments = self.segments
        return segments[0].executable if segments else None

    def instantiate(self) -> None:
        """Do nothing: each segment has its executable."""

    def home_launcher(self) -> Callable[[], None]:
        """Return a callable that replays where replays go that name no stream."""
        return lambda: self.run(self.destination(), {})

    def replay(self, named: object, stream: Stream) -> None:
        """Replay on a stream."""
        self.run(stream, {})

    def replay_with(
        self, live: Mapping[str, object], stream: Stream | None, mark: Callable[[], object] | None = None
    ) -> None:
        """Replay with these live objects."""
        self.run(stream or self.destination(), live, mark)

    def run(self, stream: Stream, live: Mapping[str, object], mark: Callable[[], Any] | None = None) -> None:
        """Run the segments and calls on a stream, with these live objects.

        Calls `mark` before each of them and after the last one, with the stream as the current one.

        Raises
        ------
        GraphStateError
            A run is under way, or a call returned something else than in the capture.
        CaptureError
            The stream is being captured.
        """
        mine = object()
        try:
            try:
                self._begin_run(mine)
                self._check_live(live)
                check = self._current.check
                if check is not None:
                    check()
                if stream._is_capturing():
                    raise CaptureError(
                        f"replay onto the {describe(stream)}, which is capturing: {self._kind()} "
                        "calls Python between its segments, and no graph can; capture the work of its "
                        "segments there.",
                        reason="illegal_call",
                    )
                self._follow(stream)
                self._live, steps = live, self._steps_on(stream)
                if mark is not None:
                    marked = (mark, None)
                    steps = [*chain.from_iterable((marked, each) for each in steps), marked]
                stream_stack.within(stream, self._make, steps, stream, live)
            finally:
                self._end_run(mine)
        finally:
            self._end_run(mine)  # an interrupt may have come before the first

    def _begin_run(self, mine: object) -> None:
        with self.lock:
            if self.ended:
                raise GraphStateError(f"{self.ended}.")
            if self._run is not None:
                raise GraphStateError(f"Graph.replay(): {_HALF}.")
            self._run = mine

    def _end_run(self, mine: object) -> None:
        if self._run is mine:
            self._live, self._run = {}, None

    def _follow(self, stream: Stream) -> None:
        """Have a stream wait for the last run, if that is on another one."""
        last = self._last
        if self._key(last) != self._key(stream):
            last.synchronize() if self._waits_here else stream.wait(last)
            self._last = stream.held()

    def _check_live(self, live: Mapping[str, object]) -> None:
        wanted = self._lives
        if not hasattr(live, "keys"):
            raise TypeError(f"Graph.replay(): live must map names to objects, not {live!r}.")
        if live.keys() != wanted:
            missing, more = sorted(wanted - live.keys()), sorted(live.keys() - wanted)
            fact = f"no {missing[0]!r} was given" if missing else f"the capture has no live {more[0]!r}"
            raise GraphStateError(f"Graph.replay(): {fact}; pass exactly {sorted(wanted)} as live=.")

    def _make(self, steps: Iterable[Step], stream: Stream, live: Mapping[str, object]) -> None:
        with ExitStack() as stack:
            now: tuple[ModeState, ...] | None = None
            for launch, call in steps:
                if call is None:
                    launch()
                    continue
                if call.modes != now:
                    stack.close()
                    now = call.modes
                    for modes in now:
                        if not modes.are_on():
                            stack.enter_context(modes.entered())
                if self._host:
                    stream.synchronize()
                call.run(stream, live)

    def _steps_on(self, stream: Stream) -> list[Step]:
        """Return what launches each segment on a stream, and what is between them in its place."""
        key = self._key(stream)
        found = self._bound.get(key)
        if found is None:
            make_room(self._bound)
            found = self._bound[key] = self._steps_of(self.steps, stream)
        return found

    def _steps_of(self, steps: Iterable[Runner | EagerPart], stream: Stream) -> list[Step]:
        return [
            (_no_launch, each) if isinstance(each, EagerCall) else (self._launcher(each, stream), None)
            for each in steps
        ]

    def _launcher(self, part: Runner | EagerPart, stream: Stream) -> Callable[[], None]:
        """Return what launches a segment on a stream, or runs a loop or a branch there."""
        if isinstance(part, Runner):
            return Binding(part, stream.held()).launcher()
        assert isinstance(part, HostTest)
        return partial(part.run, stream, self._bodies_of(part, stream))

    def _bodies_of(self, part: HostTest, stream: Stream) -> list[Callable[[], None]]:
        bodies, this = [self._steps_of(body, stream) for body in part.bodies], ref(self)

        def run(body: list[Step]) -> None:
            runner = this()
            assert runner is not None
            runner._make(body, stream, runner._live)

        return [partial(run, body) for body in bodies]

    def _key(self, stream: Stream) -> object:
        return stream._native if self._host else stream.handle

    # ---- the end -------------------------------------------------------------------------------

    def end(self, why: str) -> None:
        """Let go of all segments for good. Raises `GraphStateError` in the middle of a run."""
        with self.lock:
            if self._run is not None:
                raise GraphStateError(f"the graph can't be reset: {_HALF}.")
            super().end(why)
            self._bound.clear()
            for each in self._recorded:
                each.end(why)
                each.lease.release()
            self.steps = []

    def after_fork(self, why: str) -> None:
        """As `end`, in a forked child."""
        self._run = None
        for each in self._recorded:
            each.after_fork(why)
        super().after_fork(why)


def _sum(counts: Iterable[int | None]) -> int | None:
    found = list(counts)
    return None if None in found else sum(each for each in found if each is not None)
