"""What the interpreter's events need of the capture that is watched."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from ...backends.base import Backend, CaptureStatus

if TYPE_CHECKING:
    from ..._core._fast import Watch
    from .escapes import Escapes
    from .forks import Forks
    from .suspects import Moment


class Trace(Protocol):
    """Watches a capture. `CaptureTrace` is one."""

    thread: int
    backend: Backend
    native: Any
    status: Callable[[Any], CaptureStatus]
    last: dict[int, Moment]
    forks: Forks
    escapes: Escapes
    broken: bool
    watch: Watch | None

    def goes_on(self) -> bool:
        """Return True if the capture is in progress."""

    def broke_in_call(self, frame: FrameType, thread: int, function: Any) -> None:
        """Note that the capture was found broken after a call into C."""

    def broke_between(self, frame: FrameType, thread: int) -> None:
        """Note that the capture was found broken after a line, or an operator."""

    def broke_raising(self, frame: FrameType, thread: int, error: BaseException) -> None:
        """Note that the capture was found broken by an exception, or the exception of what broke it."""
