"""Turning the diagnosis of captures on."""

from __future__ import annotations

from typing import Any

from ..._core.observers import Observer, ambient
from ..._interpreter import boolean
from ..._interpreter.interruptions import if_skipped, sure_exit


class diagnose(Observer):
    """Find out which call breaks a capture, for the captures that begin inside the ``with`` block.

    A `CaptureError` then names the file, the line and the function of the call, in your code and in the
    library that your code called, and the way out. `CaptureError.calls` has the same, and the stack.

    The captured code runs slower meanwhile: after every line, and every call into C, the driver is asked
    whether the capture is still in progress. Nothing else changes, and replays do not become slower.

    Like `use_backend`, it holds for this thread or task; threads that are started inside do not inherit it.
    For a single graph, there is ``Graph(observe=diagnose())``; for a whole program, the environment variable
    ``ACCELERATOR_GRAPH_DIAGNOSE=1``.

    Parameters
    ----------
    all : bool
        Find every call that breaks a capture, in one run. Ahead of such a call the work that was captured so
        far is replayed once, so the call sees true values; it runs as it would without a capture, and what
        follows is captured again. `CaptureError` lists the calls when the block ends, and the graph is empty.
        If there is no such call, the capture becomes a graph as usual. The list ends early at a call that
        can't be foreseen, or that is in a loop or a branch that the device tests, and at the end of a segment
        that has such a call; and it says so.

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

    __slots__ = ("_all", "_guard")

    def __init__(self, *, all: bool = False) -> None:
        self._all = boolean(all, "diagnose: all")

    def __repr__(self) -> str:
        return f"diagnose({'all=True' if self._all else ''})"

    def begin(self, capture: Any) -> object | None:
        """Return what watches a capture, unless it is diagnosed already."""
        from .observation import CaptureTrace
        from .stacks import StackTrace

        found = any(isinstance(each, CaptureTrace) for each in capture.observations)
        return None if found else CaptureTrace(capture, StackTrace.inside, all=self._all)

    def __enter__(self) -> None:
        self._guard = if_skipped(self, self._leave)
        ambient.set((self, *ambient.get()))

    @sure_exit
    def __exit__(self, *exc: object) -> None:
        self._leave()
        self._guard = None

    def _leave(self) -> None:
        """Diagnose no more captures that begin. May be called again."""
        others = list(ambient.get())
        if self in others:
            others.remove(self)
            ambient.set(tuple(others))


def is_on() -> bool:
    """Return True inside ``with diagnose():``."""
    return any(isinstance(each, diagnose) for each in ambient.get())
