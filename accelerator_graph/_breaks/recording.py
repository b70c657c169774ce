"""A capture with breaks: segments that are recorded and run at once, and the calls between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from .._arrays.containers import rebuild
from .._arrays.signatures import Reader
from .._core import capture_table, stream_stack
from .._core.capture import Capture, Captured, Events, Where, part_of
from .._core.labels import Labels, Mark, marks_of
from .._core.replay import HostPart, Runner, parts_in
from .._core.streams import as_stream
from .._interpreter import caller
from ..errors import CaptureError, GraphStateError, UnsupportedError
from ..interop import registry as interop
from .marks import mark_until, thread
from .parts import EagerCall, HostTest, Live
from .segments import SegmentedRunner

if TYPE_CHECKING:
    from .._core.capture import CaptureMode
    from .._core.graph import BaseGraph
    from .._core.pools import PoolId
    from .._interpreter import Site
    from ..interop.base import Undo


class Recording:
    """A capture with breaks of a graph, from the first segment to the last.

    Parameters
    ----------
    graph : Graph
        The graph, which is empty.
    place : Where
        Where it happens.
    pool : PoolId or None
        The pool of all segments.
    mode : str
        The capture mode of all segments.
    named : iterable
        Functions, methods and modules that are marked meanwhile, and operators by name.
    guard : object
        Abandons the capture of a segment if the end of the ``with`` block is skipped.
    runs : bool
        Whether segments run as soon as they are recorded.

    Raises
    ------
    ValueError
        No framework has such an operator.
    """

    def __init__(
        self,
        graph: BaseGraph,
        place: Where,
        pool: PoolId | None,
        mode: CaptureMode,
        named: Iterable[object],
        guard: object,
        *,
        runs: bool = True,
    ) -> None:
        self.runs = runs
        self._graph = graph
        self._place = place
        self._pool = pool
        self._mode = mode
        self._runner = SegmentedRunner(place)
        self._reader = Reader(by_value=True)
        self._names: dict[str, object] = {}
        self._open: list[tuple[Mark, Mark]] = []
        """The labels that are open at a break, in the segment and in the whole graph."""
        self._inside = 0
        """In how many bodies of loops and branches the present segment is."""
        self._entry: stream_stack.Entry | None = None
        self._segments: list[tuple[Captured, list[object]]] = []
        """The segments as they were captured, with what their work keeps alive."""
        self._thread = get_ident()
        self._named = [each for each in named if not isinstance(each, str)]
        self._operators = self._replaced([each for each in named if isinstance(each, str)])
        """What begins, and what ends, to have operators called by `call`: in each segment anew."""
        self._marks = ExitStack()
        self._guard = guard
        self._begun_at = None if graph._capture is None else graph._capture.begun_at

    def begin(self) -> None:
        """Begin the first segment; the stream is current on this thread until the end of the last one."""
        if thread.recording is not None:
            raise GraphStateError(
                "graph(breaks=True): a capture with breaks is under way on this thread, and a call can "
                "break only one; capture this graph before that one, or without breaks."
            )
        try:
            thread.recording = self
            mark_until(self._marks, self._named)
            self._entry = stream_stack.new_entry(self._place.stream)
            stream_stack.enter(self._entry)
            self.begin_segment()
        except BaseException:
            try:
                self._graph._recover()
            finally:
                self.drop()
            raise

    def _replaced(self, operators: list[str]) -> tuple[Undo, Undo] | None:
        if not operators:
            return None
        for framework in interop.loaded():
            found = framework.replace(operators, self._call_operator)
            if found is not None:
                return found
        raise ValueError(
            f"graph: breaks names the operator {operators[0]!r}, and no framework that is imported has any."
        )

    def leave_operators(self) -> None:
        """Have operators called by themselves."""
        if self._operators is not None:
            self._operators[1]()

    def _call_operator(
        self, operator: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], site: Site
    ) -> Any:
        if get_ident() != self._thread:
            raise UnsupportedError(
                f"{operator} is called on another thread than the captured one, as in a backward pass, and "
                "can't be a break there; leave it out of breaks=, or take gradients outside of the capture.",
                capability="autograd",
            )
        if thread.recording is not self or not self.is_innermost():
            return operator(*args, **kwargs)
        return self.call(operator, args, kwargs, None, (), site)

    def is_innermost(self) -> bool:
        """Return True if a mark breaks this capture: this thread has begun no other one since.

        Raises
        ------
        CaptureError
            It has begun one for the body of a loop or a branch that the device tests.
        """
        found, own = capture_table.innermost(), self._graph._capture
        if found is None or found is own:
            return found is not None
        if capture_table.thread.graphs.get(id(found)) is self._graph:
            raise CaptureError(
                f"a mark can't break {found.subject}, whose flag the device tests; pass native=False "
                "there, and the host does.",
                reason="illegal_call",
            )
        return False

    def name(self, name: str, obj: object) -> None:
        """Name a live object."""
        if self._names.setdefault(name, obj) is not obj:
            raise ValueError(f"live: {name!r} stands for another object of this capture; take another name.")

    def begin_segment(self) -> None:
        """Record what follows."""
        graph, former = self._graph, self._graph._capture
        if former is not None:
            self._leave_segment(former)
        graph._begin(self._place, self._pool, self._mode, self._guard, partial(Segment, self))
        capture = graph._capture
        assert capture is not None
        self._pool, capture.begun_at = capture.lease.id, self._begun_at
        if self._open:
            marks = part_of(capture.observations, Labels).go_on(capture, [mark for mark, _ in self._open])
            self._open = [(mark, label) for mark, (_, label) in zip(marks, self._open, strict=True)]
        if self._operators is not None:
            self._operators[0]()

    def _leave_segment(self, former: Capture) -> None:
        """Let other captures into the pool of a segment that has ended."""
        former.lease.capturing = False
        former.retained = []

    def end_segment(self, what: str) -> Capture:
        """End the segment that is being recorded, and run it; return its capture.

        Raises
        ------
        CaptureError
            The segment did not become a graph; the message says at which break.
        """
        graph = self._graph
        capture = graph._capture
        assert capture is not None
        try:
            captured = capture.end()
        except CaptureError as error:
            error.add_note(f"The segment ends at {what}; what follows was not captured.")
            raise
        runner = Runner(captured, graph._keeps != "executable", self._place.hold, capture.lease)
        own = graph._keep_observations(capture, runner) if capture.observations or graph._observers else 0
        self._add(capture, runner, empty=runner.counted == own)
        self._place.prepares, self._place.waits_for = False, None
        return capture

    def _add(self, capture: Capture, runner: Runner, *, empty: bool) -> None:
        """Take a segment that has ended, and run it."""
        capture.retained.append(capture.lease)
        self._segments.append((runner.kept(), capture.retained))
        capture.lease.capturing = True  # until the next segment, or until this lease is released
        if not self._inside:
            self._note_labels(capture, 0 if empty else runner.counted or 0)
        self._runner.add(runner, empty=empty, runs=self.runs)
        for event in filter(None, (each() for each in part_of(capture.observations, Events).found)):
            event._run = self._runner.latest_run()

    def _note_labels(self, capture: Capture, count: int) -> None:
        """Note which nodes of the whole graph the labels of a segment, which has so many, have so far."""
        before, known = self._runner.node_count(), {id(mark): label for mark, label in self._open}
        self._open = []
        for mark in marks_of(capture.observations):
            label = known.get(id(mark))
            if label is None:
                label = Mark(mark.label, mark.name, before + min(mark.start, count), mark.site)
                self._runner.noted.append(label)
            label.stop = before + (count if mark.stop is None else min(mark.stop, count))
            if mark.stop is None:
                self._open.append((mark, label))

    def call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        valid_rows: Callable[..., int] | None,
        streams: tuple[object, ...],
        site: Site | None = None,
    ) -> Any:
        """Call a function between two segments, and note the call for the replays."""
        place = getattr(function, "__qualname__", repr(function)), *(site or caller())
        made = EagerCall(function, place, self._kept((args, kwargs)), self._reader, self._place.stream)
        if not self.runs:
            raise CaptureError(
                f"{made.what} is in a body that does not run in this capture, and the call needs what the "
                "work before it writes; capture with arguments for which the body runs.",
                reason="other",
            )
        try:
            self.end_segment(made.what)
            made.valid_rows = valid_rows
            made.streams = tuple(as_stream(each, self._place.stream.backend) for each in streams)
            made.modes = tuple(found for each in interop.loaded() if (found := each.modes()) is not None)
            self._runner.settle()
            thread.calls += 1
            try:
                result = self._outside(made.observations, function, args, kwargs)
            except BaseException as error:
                error.add_note(f"It came from {made.what}.")
                raise
            made.first(result, args, kwargs, self._place.stream)
            self._runner.steps.append(made)
            self.begin_segment()
            return result
        except BaseException as error:
            give_up(self._graph, self, error, made.what)
            raise

    def _outside(
        self,
        observations: list[Any],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Call a function while this thread has no capture with breaks."""
        thread.recording, capture_table.thread.between = None, observations
        try:
            return function(*args, **kwargs)
        finally:
            thread.recording, capture_table.thread.between = self, None

    def test(
        self,
        part: HostTest,
        bodies: Sequence[Callable[[], object]],
        recorded: Callable[[list[tuple[Captured, list[object]]]], object],
    ) -> None:
        """Record a loop or a branch whose flag the host reads, and run it if segments run.

        The body that runs now is recorded as it runs; the others are only recorded. `recorded` is told their
        segments, with what their work keeps alive, before anything runs twice.
        """
        self.end_segment(part.what)
        taken = part.taken(self._place.stream)  # where nothing runs, this shows that the flag can be read
        if not self.runs:
            taken = None
        before = len(self._segments)
        part.bodies = tuple([self._body(part, each, i == taken) for i, each in enumerate(bodies)])
        recorded(self._segments[before:])
        self._runner.steps.append(part)
        if taken is not None:
            self._outside([], self._runner.go_on, (part, self._names), {})  # its calls are as in a replay
        self.begin_segment()

    def _body(self, part: HostTest, body: Callable[[], object], runs: bool) -> list[Runner | HostPart]:
        """Record a body into segments with a pool of their own, since it may run more than once."""
        graph, runner = self._graph, self._runner
        outer = graph._capture, self._pool, self._open, self.runs, runner.steps
        graph._capture, self._pool, self._open, self.runs, runner.steps = None, None, [], runs, []
        self._inside += 1
        self.begin_segment()
        body()
        if self._graph._capture is None or runner.ended:  # or the body has begun another one
            raise cut_off(part.what)
        self._leave_segment(self.end_segment(f"the end of a body of {part.what}"))
        steps = runner.steps
        graph._capture, self._pool, self._open, self.runs, runner.steps = outer
        self._inside -= 1
        return steps

    def _kept(self, value: Any) -> Any:
        """Return arguments in containers of their own, with names in the place of live objects."""
        names = {id(obj): name for name, obj in self._names.items()}

        def is_live(x: Any) -> bool:
            return id(x) in names

        return rebuild(value, lambda x: Live(names[id(x)]) if is_live(x) else x, is_live)

    # ---- the end -------------------------------------------------------------------------------

    def finished(self, capture: Capture, last: Runner, *, empty: bool) -> Runner:
        """Return what replays the graph, whose last segment has just ended."""
        if self._inside:
            raise cut_off("a loop or a branch")
        self._add(capture, last, empty=empty)
        capture.lease.capturing = False
        if self._names:
            self._refuse_used_live_objects()
        if not self._runner.steps:
            self._graph._found_empty(capture.subject)
        retained = [each for _, kept in self._segments for each in kept]
        runner = self._runner.finished(self._graph, retained, ran=self.runs)
        self._leave()
        return runner

    def _refuse_used_live_objects(self) -> None:
        """Raise `CaptureError` if captured work is known to use a live object, which no replay exchanges."""
        from .._checking.check import use_of

        tests = [each.held for each in parts_in(self._runner.steps) if isinstance(each, HostTest)]
        for name, obj in self._names.items():
            for number, (captured, retained) in enumerate(self._segments, 1):
                # the arguments of a call of the stream are a tuple; other objects are `Graph.retain`'s
                use = use_of(obj, captured, [*tests, *(each for each in retained if isinstance(each, tuple))])
                if use:
                    raise CaptureError(
                        f"live: captured work uses the object that is named {name!r} ({use}, in segment "
                        f"{number} of {len(self._segments)}), and a replay would go on using this one; copy "
                        "what is new into an array of the work's, in an eager call.",
                        reason="other",
                    )

    def drop(self) -> None:
        """Let go of all segments. May be called again."""
        self._leave()
        self._runner.end("the capture failed; capture again, and bind() again")

    def _leave(self) -> None:
        if thread.recording is self:
            thread.recording = None
        capture_table.thread.between = None
        self._marks.close()
        self._operators = None
        if self._entry is not None:
            stream_stack.leave(self._entry)
            self._entry = None
        self._guard = None
        self._segments.clear()


class Segment(Capture):
    """The capture of a segment: its end is that of the whole, unless another segment follows.

    Parameters
    ----------
    recording : Recording
        The capture of the whole.
    place, pool, mode
        As of any capture.
    """

    __slots__ = ("recording",)

    def __init__(self, recording: Recording, place: Where, pool: PoolId | None, mode: CaptureMode) -> None:
        self.recording = recording
        super().__init__(place, pool, mode)

    def end(self) -> Captured:
        """End the capture and return the segment. Raises as that of any capture."""
        self.recording.leave_operators()
        return super().end()

    def finished(self, runner: Runner, *, empty: bool) -> Runner:
        """Return what replays the graph."""
        return self.recording.finished(self, runner, empty=empty)

    def abandon(self) -> None:
        """End the capture and discard the recording, and all segments before. Calling it twice is fine."""
        try:
            with suppress(UnsupportedError):  # the program has entered a mode of torch, and is still in it
                self.recording.leave_operators()
            super().abandon()
        finally:
            self.recording.drop()


def recording_of(capture: Capture, graph: BaseGraph) -> Recording:
    """Return what records a capture in segments, which it does from now on."""
    if isinstance(capture, Segment):
        return capture.recording
    where = capture.place, capture.lease.id, capture.mode
    return Recording(graph, *where, (), capture.guard, runs=False)


def cut_off(what: str) -> CaptureError:
    """Return the error of a body in which the capture of its graph was ended, or abandoned."""
    return CaptureError(
        f"the capture ended, or was abandoned, in a body of {what}; end it behind that.", reason="other"
    )


def give_up(graph: BaseGraph, recording: Recording | None, error: BaseException, what: str) -> None:
    """Abandon a capture of which a part has failed, even if the program goes on. Raises as its end would."""
    try:
        if graph._capture is not None:
            graph._abandon(error)
    finally:
        if recording is not None:
            recording.drop()
        graph._lost = f"{what} failed in the capture, which was abandoned; capture again"
