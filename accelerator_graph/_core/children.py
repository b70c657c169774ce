"""A run of a graph that is recorded inside another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backends.base import CaptureStatus
from ..errors import CaptureError, Reason, explain
from .streams import capture_of, describe

if TYPE_CHECKING:
    from .replay import Runner
    from .streams import Stream


class _Inside:
    """Has an observer's object that stays with the work of a graph stay with the graph around it too."""

    __slots__ = ("_stays",)

    def __init__(self, stays: Any) -> None:
        self._stays = stays

    def hand_on(self) -> Any:
        return self._stays.hand_on() if hasattr(self._stays, "hand_on") else self._stays


def record(runner: Runner, stream: Stream) -> bool:
    """Record a run in the capture of a stream; return False if a launch by the backend does that.

    The capture keeps alive what the run needs, and its graph checks what the recorded graph would check.

    Raises
    ------
    CaptureError
        The run can't be recorded. The capture is as before.
    """
    backend, parent = stream._backend, capture_of(stream)
    if parent is None:  # another library's, which the backend records in
        return False
    executable = runner.launchable()
    captured = runner.captured or executable.work
    native = None
    if backend.records_graphs:
        if backend.capture_status(stream._native) is CaptureStatus.INVALIDATED:
            raise _not_recorded(stream, explain("invalidated"), "invalidated")
        if captured is None:
            raise _not_recorded(stream, "the graph was not kept; capture it with Graph(keep_graph=True)")
        if executable.changes is not None and executable.changes.made:
            raise _not_recorded(
                stream,
                "set_node() has changed nodes of its executable, and the run would be without these changes; "
                "capture its work again, with recapture()",
            )
        if runner.lease.in_use and parent.lease.shown == runner.lease.shown:
            raise _not_recorded(
                stream,
                "both use one memory pool, so the run would write over what the capture has in it; capture "
                "into another pool",
            )
        native = captured.lent()
        if native is None:
            raise _not_recorded(
                stream,
                "it may draw random numbers, which would be the same in every run; replay it once before, "
                "so that this is known, or capture its work here",
            )
        if backend.single_executable(native):
            raise _not_recorded(
                stream,
                "it allocates or frees memory or has conditional nodes, which no driver takes inside another "
                "graph; capture its work here",
            )
    check = runner.launching.owner.check
    if check is not None:
        check()
        parent.observations += [_Inside(each) for each in runner.observations if hasattr(each, "check")]
    needed: tuple[object, ...] = (runner.retained, runner.lease.shared())
    if captured is not None and captured.recorder is not backend:
        needed = (*needed, captured)  # a framework's graph has its memory
    parent.retained.append(needed)
    if native is not None:
        backend.record_graph(stream._native, native)
    return native is not None


def _not_recorded(stream: Stream, why: str, reason: Reason = "illegal_call") -> CaptureError:
    return CaptureError(
        f"replay onto the {describe(stream)}, which is capturing: the run can't be recorded: {why}.",
        reason=reason,
    )
