"""Loops and branches that the device tests: their bodies are captured inside the capture of their graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from .._breaks.recording import cut_off
from .._core import capture_table
from .._core.capture import Capture, Collectives, Where, notify, part_of, report_collective
from .._core.current_stream import give_back, take_branches
from .._core.labels import marks_of
from .._core.observers import handed_on, recorded_at
from ..backends.base import Capability, CaptureStatus
from ..errors import AcceleratorGraphError, CaptureError
from .flags import warn_if_endless

if TYPE_CHECKING:
    from .._breaks.parts import HostTest
    from .._core.graph import BaseGraph
    from .._core.streams import Stream
    from ..backends.base import AnyBackend

_capture_for_ever: list[object] = []
"""Streams whose captures can't be ended. To destroy one would end the process."""


class BodyCapture(Capture):
    """The capture of a body, beside that of its graph, on a stream of its own."""

    __slots__ = ("what",)

    what: str
    """The loop or the branch."""

    @property
    def subject(self) -> str:
        """Which capture: the beginning of a message."""
        return f"the capture of a body of {self.what}"


class _Inside:
    """Has a capture end that of a body before its own, which a driver may not survive otherwise."""

    def __init__(self, body: BodyCapture) -> None:
        self._body = body

    def stop(self) -> None:
        """Abandon the body."""
        self._body.abandon()

    def end(self) -> None:
        """Raise: the graph would have half a body."""
        raise cut_off(self._body.what)


class _Recorder:
    """Records a body in the place of the backend."""

    pool: None = None
    """It has no name of its own for the pool."""
    counted: int | None = None
    destroy_disturbs_captures = False

    def __init__(self, backend: AnyBackend, whole: Any, condition: Any, number: int) -> None:
        self._backend = backend
        self.whole = whole
        """What records the graph: the backend, or a framework's recorder."""
        self._condition = condition
        self._number = number

    def capture_begin(self, stream: Any, mode: object) -> Any:
        """Begin to capture a stream into the body."""
        return self._backend.body_begin(self._condition, self._number, stream)

    def capture_end(self, token: Any) -> Any:
        """End the capture."""
        return self._backend.body_end(token)

    def capture_abandon(self, token: Any) -> None:
        """End the capture; the graph is abandoned as well."""
        self._backend.body_abandon(token)

    def destroy_graph(self, graph: Any) -> None:
        """Do nothing: the body goes with the graph that it is in."""


def can_test(capture: Capture) -> bool:
    """Return True if the device can test flags in the graph of this capture."""
    backend, whole = capture.backend, _recorder_of_whole(capture)
    recorded = whole is backend or whole.records_bodies()
    return recorded and Capability.CONDITIONS in backend.capabilities(capture.stream.device)


def _recorder_of_whole(capture: Capture) -> Any:
    """Return what records the graph of this capture, which may be that of a body."""
    recorder = capture.recorder
    return recorder.whole if isinstance(recorder, _Recorder) else recorder


def record(
    capture: Capture, graph: BaseGraph, test: HostTest, bodies: Sequence[Callable[[], object]]
) -> Callable[[], int]:
    """Record a loop or a branch; return what returns how often a loop has run, which the graph keeps."""
    stream, backend = capture.stream, capture.backend
    flag = test.flag.memory, test.flag.nbytes
    condition = backend.condition(stream._native, test.kind, len(bodies), *flag, test.limit)
    runs = partial(backend.runs, condition, stream._native)
    capture.retained.append((runs, stream.held(), test.held))
    for number, body in enumerate(bodies):
        before = capture.recorded()
        recorder = _Recorder(backend, _recorder_of_whole(capture), condition, number)
        found = _capture_body(capture, graph, recorder, test.what, body)
        warn_if_endless(graph, test, backend, [found])
        if capture.recorded() not in (before, None):  # None: it is broken, which its end says
            raise CaptureError(
                f"{test.what}: work in a body went to the stream outside of it, and would run once in each "
                "replay; enqueue it on accelerator_graph.current_stream().",
                reason="illegal_call",
            )
    return runs


def _capture_body(
    parent: Capture, graph: BaseGraph, recorder: _Recorder, what: str, body: Callable[[], object]
) -> tuple[Any, list[object]]:
    """Capture a body on a stream that is current meanwhile, with memory of its own.

    Returns the body as the backend knows it, and what its work keeps alive.
    """
    branches = take_branches(parent.stream, 1)
    place = Where()
    place.stream = place.home = branches[0]
    place.hold, place.frameworks = branches[0], parent.place.frameworks
    place.prepares, place.waits_for = False, None
    capture = BodyCapture(place, None, parent.mode)
    capture.recorder = recorder  # type: ignore[assignment]
    capture.what = what
    notify(parent.observations, "inside", capture)
    inside = _Inside(capture)
    parent.observations.append(inside)
    try:
        capture.begin(graph)
        whole = recorder.whole
        with nullcontext() if whole is parent.backend else whole.body(capture.lease.id, what):
            body()
        if id(capture) not in capture_table.live:
            raise cut_off(what)
        captured = capture.end()
    except BaseException as error:
        failure = None
        try:
            outermost = graph._capture
            if outermost is not None and outermost.recorded() is not None:  # else it is broken, and says why
                failure = capture.failure(error)
        finally:
            _abandon(capture, branches, failure or error)
        if failure is not None and isinstance(error, Exception):
            raise failure from error
        raise
    finally:
        if inside in parent.observations:
            parent.observations.remove(inside)
    parent.retained += [capture.lease, *capture.retained]
    for each in part_of(capture.observations, Collectives).found:
        report_collective(parent.observations, each)
    _refuse_misplaced(capture, captured.value, what)
    give_back(branches)
    return captured.value, capture.retained


def _abandon(capture: BodyCapture, branches: list[Stream], error: BaseException) -> None:
    """Abandon a body. If the driver can't end its capture, note that on the error, and keep the stream."""
    _capture_for_ever.append(branches)
    capture.abandon()
    with suppress(AcceleratorGraphError):  # the device is lost
        if capture.backend.capture_status(capture.native) is not CaptureStatus.NONE:
            error.add_note(
                "The driver can't end this capture, and no wait for the whole context, as torch's "
                "synchronize() is, succeeds from now on: start the process anew."
            )
            return
        _capture_for_ever.remove(branches)
        give_back(branches)


def _refuse_misplaced(capture: Capture, body: Any, what: str) -> None:
    """Raise `CaptureError` if a body has a node that can't be in one."""
    found = capture.backend.misplaced(body)
    if found is None:
        return
    number, node = found
    marks = marks_of(capture.observations)
    names = [each.name for each in marks if each.start <= number < (each.stop or 0)]
    label = f", in the label {names[-1]!r}" if names else ""
    raise CaptureError(
        f"{what}: a body has {node}{recorded_at(handed_on(capture.observations), number)}{label}, which the "
        "device does not run there; move that work out of the body, or pass native=False.",
        reason="illegal_call",
    )
