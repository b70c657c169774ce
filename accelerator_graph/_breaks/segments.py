"""What a capture with breaks leaves: segments, with what is between them, and the runs of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from .._arrays.placement import works_on_host
from .._core import stream_stack
from .._core.launching import Binding, make_room
from .._core.replay import HostPart, Runner, parts_in
from .._core.streams import Stream, describe
from ..errors import CaptureError, GraphStateError
from .parts import EagerCall, HostTest

if TYPE_CHECKING:
    from .._core.capture import LabelledRange, Where
    from .._core.graph import BaseGraph
    from .._core.labels import Mark
    from .._core.launching import Executable
    from ..interop.base import ModeState

_ITS_KIND = "a graph with breaks, or with loops or branches that the host tests,"
_ANEW = "capture its work anew into another Graph"
_NOT_IN_PLACE = f"{_ITS_KIND} is not changed in place; {_ANEW}"
_SEGMENTS = f"the segments of {_ITS_KIND}"
_NO_GRAPH = f"{_ITS_KIND} is several graphs of the runtime, and none of them is the whole"
_NO_EXECUTABLE = f"{_ITS_KIND} is several executables, and none of them is the whole"
_HALF = "it is in the middle of a replay, in an eager call or on another thread; do this after that"

Step: TypeAlias = "Callable[[], object] | EagerCall | tuple[HostTest, list[list[Step]]]"
"""What launches a segment on a stream, a call, or a loop or a branch with the steps of its bodies."""


class SegmentedRunner(Runner):
    """Replays segments, and does what stands between them.

    Parameters
    ----------
    place : Where
        Where it is captured.
    """

    __slots__ = (
        "_bound",
        "_captured_on",
        "_first",
        "_last",
        "_live",
        "_lives",
        "_on_host",
        "_recorded",
        "_run",
        "noted",
        "steps",
    )

    in_segments = True

    refused: Mapping[str, str] = {
        "bind()": f"{_ITS_KIND} calls Python between its segments; call replay()",
        "update()": _NOT_IN_PLACE,
        "recapture()": _NOT_IN_PLACE,
        "clone()": f"{_ITS_KIND} can't be copied; capture its work twice",
        "set_node()": f"{_SEGMENTS} are not changed; {_ANEW}",
        "set_nodes()": f"{_SEGMENTS} are not changed; {_ANEW}",
        "instantiate()": f"{_SEGMENTS} have their executables; {_ANEW}",
        "profile(kernels=True)": f"{_ITS_KIND} can't be copied; use the vendor's own profiler",
        "raw_graph()": _NO_GRAPH,
        "raw_executable()": _NO_EXECUTABLE,
        "raw_cuda_graph()": _NO_GRAPH,
        "raw_cuda_graph_exec()": _NO_EXECUTABLE,
    }

    def __init__(self, place: Where) -> None:
        super().__init__(None, False, place.hold, None)  # type: ignore[arg-type]
        self.steps: list[Runner | HostPart] = []
        """The segments, and what is between them, in order."""
        self.noted: list[Mark] = []
        """The labels, in the nodes of the whole graph; each call, loop and branch counts as a node."""
        self._recorded: list[Runner] = []
        """All segments; an empty one may be all by which a framework keeps the pool."""
        self._first: Runner | None = None
        """The first segment, which stands for all where one is asked for."""
        self._lives: frozenset[str] = frozenset()
        """The names of the live objects."""
        self._live: Mapping[str, object] = {}
        """The live objects of the run that is under way."""
        self._captured_on = place.stream
        self._on_host = works_on_host(place.stream)
        self._bound: dict[Any, list[Step]] = {}
        """What a run does, by its stream."""
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
        bodies = [[_step(each, stream) for each in body] for body in part.bodies]
        self._live = live
        try:
            stream_stack.within(stream, self._test, part, bodies, stream, 1)
        finally:
            self._live = {}

    def settle(self) -> None:
        """Wait for the segments where work's memory is the host's, which an eager call may read at once."""
        if self._on_host:
            self._captured_on.synchronize()

    @property
    def under_way(self) -> bool:
        """Whether a thread is in the middle of a replay."""
        return self._run is not None

    def latest_run(self) -> Callable[[], Stream | None]:
        """Return what returns the stream of the latest run, as long as there is the graph."""
        this = ref(self)
        return lambda: None if (runner := this()) is None or runner.ended else runner._last

    def finished(self, graph: BaseGraph, retained: Iterable[object], *, ran: bool) -> Runner:
        """Return what replays this graph, whose segments have run in the capture or not.

        It is the only segment, if a run is nothing more, which can do all that graphs can; else this.
        """
        self.beside = self._captured_on is not graph._home
        if ran and self.beside:  # what follows the block there comes after this first run
            self._follow(self.home if graph._home is None else graph._home)
        if len(self._recorded) == 1:
            return self._recorded[0]
        if not self.segments:  # else a graph of calls alone would be none of the backend's
            self._recorded[0].instantiate()
            self.steps.insert(0, self._recorded[0])
        counts = [each.counted for each in self.segments]
        self._first = first = self.segments[0]
        self.captured = first.captured
        self.counted = None if None in counts else sum(filter(None, counts))
        self.retained = (*retained, *(graph._retained or ()))
        parts = [*parts_in(self.steps)]
        self.observations = tuple({id(each): each for part in parts for each in part.observations}.values())
        if not ran:  # else each segment has been checked by itself, and is from then on
            self.observe(*self.observations)
        self.lease = self._recorded[-1].lease
        self._lives = frozenset(x for part in parts if isinstance(part, EagerCall) for x in part.lives)
        return self

    @property
    def parts(self) -> Sequence[Runner | HostPart]:
        """The segments, and what is between them, in order."""
        return tuple(self.steps)

    @property
    def labels(self) -> tuple[LabelledRange, ...]:
        """The labels, in the nodes of the whole graph."""
        spans = ((each, each.start, each.stop or 0) for each in self.noted)
        return tuple((mark.name, start, stop, *mark.site) for mark, start, stop in spans if start < stop)

    def node_count(self) -> int:
        """Return how many nodes there are so far, with one for each call, loop and branch."""
        return sum(1 if isinstance(each, HostPart) else each.counted or 0 for each in self.steps)

    # ---- replays -------------------------------------------------------------------------------

    @property
    def executable(self) -> Executable | None:
        """The executable of the first segment, which stands for all."""
        return None if self._first is None else self._first.executable

    def instantiate(self) -> None:
        """Do nothing: each segment has its executable."""

    def home_launcher(self) -> Callable[[], None]:
        """Return a callable that replays where replays go that name no stream."""
        return lambda: self.replay_with({}, None)

    def replay(self, named: object, stream: Stream) -> None:
        """Replay on a stream."""
        self.replay_with({}, stream)

    def replay_with(
        self, live: Mapping[str, object], stream: Stream | None, mark: Callable[[], object] | None = None
    ) -> None:
        """Do one run with these live objects.

        Calls `mark` before each part and after the last one, with the stream as the current one.

        Raises
        ------
        GraphStateError
            A run is under way, or a call returned something else than in the capture.
        CaptureError
            The stream is being captured.
        """
        stream, mine = stream or self.destination(), object()
        try:
            try:
                self._begin_run(mine)
                self._check_live(live)
                check = self._current.check
                if check is not None:
                    check()
                if stream._is_capturing():
                    raise CaptureError(
                        f"replay onto the {describe(stream)}, which is capturing: {_ITS_KIND} calls Python "
                        "between its segments, and no graph can; capture the work of its segments there.",
                        reason="illegal_call",
                    )
                self._follow(stream)
                self._live, steps = live, self._steps_on(stream)
                if mark is not None:
                    steps = [*chain.from_iterable((mark, each) for each in steps), mark]
                stream_stack.within(stream, self._make, steps, stream)
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

    def _check_live(self, live: Mapping[str, object]) -> None:
        wanted = self._lives
        if not hasattr(live, "keys"):
            raise TypeError(f"Graph.replay(): live must map names to objects, not {live!r}.")
        if live.keys() != wanted:
            missing, more = sorted(wanted - live.keys()), sorted(live.keys() - wanted)
            fact = f"no {missing[0]!r} was given" if missing else f"the capture has no live {more[0]!r}"
            raise GraphStateError(f"Graph.replay(): {fact}; pass exactly {sorted(wanted)} as live=.")

    def _follow(self, stream: Stream) -> None:
        """Have a stream wait for the last run, if that is on another one."""
        if self._key(self._last) != self._key(stream):
            stream._follow(self._last)
            self._last = stream.held()

    def _key(self, stream: Stream) -> object:
        return stream._native if self._on_host else stream.handle

    def _steps_on(self, stream: Stream) -> list[Step]:
        """Return what a run on a stream does, in order."""
        key = self._key(stream)
        found = self._bound.get(key)
        if found is None:
            make_room(self._bound)
            found = self._bound[key] = [_step(each, stream) for each in self.steps]
        return found

    def _make(self, steps: Iterable[Step], stream: Stream) -> None:
        """Make some steps on a stream, which is the current one, each call in the modes of its capture."""
        with ExitStack() as stack:
            now: tuple[ModeState, ...] | None = None
            for step in steps:
                if callable(step):
                    step()
                elif isinstance(step, EagerCall):
                    if step.modes != now:
                        stack.close()
                        now = step.modes
                        for modes in now:
                            if not modes.are_on():
                                stack.enter_context(modes.entered())
                    if self._on_host:
                        stream.synchronize()
                    step.run(stream, self._live)
                else:
                    self._test(*step, stream)

    def _test(self, part: HostTest, bodies: list[list[Step]], stream: Stream, done: int = 0) -> None:
        """Run a loop or a branch, so many of whose bodies have run already."""
        part.run(stream, [partial(self._make, body, stream) for body in bodies], done)

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


def _step(part: Runner | HostPart, stream: Stream) -> Step:
    """Return what does a part of the work on a stream."""
    if isinstance(part, Runner):
        return Binding(part, stream.held()).launcher()
    if isinstance(part, HostTest):
        return part, [[_step(each, stream) for each in body] for body in part.bodies]
    assert isinstance(part, EagerCall)
    return part
