"""Turning the diagnosis of captures on."""

from __future__ import annotations

from contextvars import Token
from types import TracebackType
from typing import Literal

from ..._core.switches import diagnosing
from ..._interpreter.outside import boolean


class diagnose:
    """Find out which call breaks a capture, for the captures that begin inside the ``with`` block.

    A `CaptureError` then names the file, the line and the function of the call, in your code and in the
    library that your code called, and the way out. `CaptureError.calls` has the same, and the stack.

    The captured code runs slower meanwhile: after every line, and every call into C, the driver is asked
    whether the capture is still in progress. Nothing else changes, and replays do not become slower.

    Like `use_backend`, it holds for this thread or task; threads that are started inside do not inherit it.
    For a single graph, there is ``Graph(diagnose=True)``; for a whole program, the environment variable
    ``ACCELERATOR_GRAPH_DIAGNOSE=1``.

    Parameters
    ----------
    all : bool
        Find every call that breaks a capture, in one run. Ahead of such a call the work that was captured so
        far is replayed once, so the call sees true values; it runs as it would without a capture, and what
        follows is captured again. `CaptureError` lists the calls when the block ends, and the graph is empty.
        If there is no such call, the capture becomes a graph as usual. The list ends early at a call that
        can't be foreseen, and says so.

    Raises
    ------
    TypeError
        `all` is not a bool.

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

    __slots__ = ("_token", "_value")

    def __init__(self, *, all: bool = False) -> None:
        self._value: Literal["all", True] = "all" if boolean(all, "diagnose: all") else True

    def __enter__(self) -> None:
        self._token: Token[bool | Literal["all"]] = diagnosing.set(self._value)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        diagnosing.reset(self._token)
