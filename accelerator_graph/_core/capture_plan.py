"""How a capture is to be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .modes import CaptureMode
from .pools import AnyPool
from .streams import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..interop.base import Framework


class CapturePlan:
    """How a capture is to be made. None leaves the choice to the graph.

    Parameters
    ----------
    stream : Stream, optional
        The stream to capture.
    home : Stream, optional
        Where replays will go, if that is another stream.
    pool, mode : optional
        As in `Graph.capture_begin`.
    prepare : bool
        Wait for `home` first, unless that is being captured.

    Attributes
    ----------
    idle : bool
        The device has been waited for already.
    finds_inputs : bool or None
        Watch the arrays that captured work uses.
    frameworks : sequence or None
        Those that take part. None if they were not looked for.
    default : Stream or None
        A hold on `home` that nobody closes, if that is known to be a framework's default stream, which never
        captures.
    """

    __slots__ = (
        "default",
        "finds_inputs",
        "frameworks",
        "home",
        "idle",
        "mode",
        "pool",
        "prepare",
        "stream",
    )

    def __init__(
        self,
        stream: Stream | None = None,
        home: Stream | None = None,
        pool: AnyPool | None = None,
        mode: CaptureMode | None = None,
        prepare: bool = False,
    ) -> None:
        self.stream = stream
        self.home = home
        self.pool = pool
        self.mode = mode
        self.prepare = prepare
        self.idle = False
        self.finds_inputs: bool | None = None
        self.frameworks: Sequence[Framework] | None = None
        self.default: Stream | None = None
