"""Turning the diagnosis of captures on."""

from __future__ import annotations

from contextvars import Token
from types import TracebackType

from ..._core.switches import diagnosing


class diagnose:
    """Find out which call breaks a capture, for the captures that begin inside the ``with`` block.

    A `CaptureError` then names the file, the line and the function of the call, in your code and in the
    library that your code called, and the way out. `CaptureError.calls` has the same, and the stack.

    The captured code runs slower meanwhile: after every line, and every call into C, the driver is asked
    whether the capture is still in progress. Nothing else changes, and replays do not become slower.

    Like `use_backend`, it holds for this thread or task; threads that are started inside do not inherit it.
    For a single graph, there is ``Graph(diagnose=True)``; for a whole program, the environment variable
    ``ACCELERATOR_GRAPH_DIAGNOSE=1``.

    Warns
    -----
    EscapedWorkWarning
        Work of the captured code went to a stream that is not captured.

    Examples
    --------
    ::

        with ag.diagnose(), ag.Stream(), ag.Graph() as graph:
            step()
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token: Token[bool] = diagnosing.set(True)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        diagnosing.reset(self._token)
