"""Where each node of a graph comes from: the Python lines that recorded it."""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from ..._core.capture import Capture
from ..._core.observers import Observer
from ...backends.base import Capability, Frame, NativeCalls
from ...errors import AcceleratorGraphError, UnsupportedError
from .observation import Watched, events
from .places import Place, stack_of, users
from .streams import Streams
from .suspects import Moment, stack_between

_MOST = 8
"""How many frames of a node are kept."""


class stacks(Observer):
    """Keep the Python lines that recorded each node: `Graph(observe=stacks())`.

    `GraphNode.stack` then has up to eight frames of each node. Tables and pages of `Graph.describe` show the
    line in your own code, and so do `diff` and the errors of `Graph.set_node` and `Graph.update`.

    The captured code runs slower meanwhile, as with `diagnose`: after every line of the capturing thread, and
    every call into C, the driver is asked whether there are more nodes. What other threads record, such as
    those of autograd, counts for the line that the capturing thread was at. Replays do not become slower.

    Raises
    ------
    UnsupportedError
        At the capture: the backend can't count the nodes of a capture.

    Examples
    --------
    ::

        with ag.Stream(), ag.Graph(keep_graph=True, observe=ag.stacks()) as graph:
            step()
        print(graph.describe())
    """

    __slots__ = ()

    def begin(self, capture: Any) -> object | None:
        """Return what watches a capture, unless its stacks are kept already."""
        found = any(isinstance(each, StackTrace) for each in capture.observations)
        return None if found else StackTrace(capture)


class StackTrace(Watched):
    """Watches how many nodes a capture of this thread has, and which line made them more."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self._capture: Capture | None = capture
        self._backend = capture.backend
        self._native = capture.native
        self._calls = capture.backend.native_calls(capture.native) or NativeCalls()
        self._streams = Streams(capture.backend, capture.native)
        self._front: Hashable = None
        self._last: Moment | None = None
        self._count = 0
        self._origins = Origins()

    def begun(self) -> None:
        """Watch the capture, which has just begun on this thread."""
        assert self._capture is not None
        count = self._capture.recorded()
        if count is None:
            raise UnsupportedError(
                f"stacks(): backend {self._capture.backend.name!r} can't count the nodes of a capture, so "
                "the lines that record them are not known; capture without it.",
                capability=str(Capability.NODES),
            )
        self._count, self._front = count, self._calls.front()
        events.begin(self)

    # ---- at the interpreter's events, on any thread ------------------------------------------------

    def at_line(self, frame: FrameType, line: int) -> None:
        """Ask before a line runs."""
        if threading.get_ident() == self.thread:
            self._ask(frame)
            self._last = frame.f_code, line, True

    def at_return(self, frame: FrameType, value: object) -> None:
        """Ask before a function in Python returns."""
        if threading.get_ident() == self.thread:
            self._ask(frame)
            self._streams.after_python(frame)
            caller = frame.f_back
            if caller is not None:
                self._last = caller.f_code, caller.f_lasti, False

    def after_call(self, frame: FrameType, offset: int, function: Any, first: object) -> None:
        """Ask after a frame has called a function in C."""
        if threading.get_ident() == self.thread:
            self._note(partial(stack_of, frame))
            self._streams.after_c(function, first, frame)
            self._last = frame.f_code, offset, False

    def _ask(self, frame: FrameType) -> None:
        self._note(partial(stack_between, frame, self._last))

    def _note(self, stack: Callable[[], list[Place]]) -> None:
        """Put the nodes that have been recorded since down to a stack.

        Drivers walk over the nodes to count them, so that is done only if the captured stream has another
        front, or while streams are forked from it.
        """
        if self._capture is None:
            return
        with suppress(AcceleratorGraphError):  # a capture that is broken says so at its end
            front = self._calls.front()
            if front is not None and front == self._front and not self._streams.forked():
                return
            self._front = front
            count = self._capture.recorded()
            if count is None or count == self._count:
                return
            if count < self._count:  # another piece, which `diagnose(all=True)` has begun
                self._origins, self._count = Origins(), 0
            self._origins.add(self._count, frames_of(stack()))
            self._count = count

    # ---- as the capture sees it ----------------------------------------------------------------

    def stop(self) -> None:
        """Watch no more."""
        if self._capture is None:
            return
        if threading.get_ident() == self.thread:
            self._ask(sys._getframe(1))
        events.end(self)
        self._capture = self._last = None

    @staticmethod
    def inside(capture: Capture) -> None:
        """Watch the body of a loop or a branch, unless its stacks are kept already."""
        if not any(isinstance(each, StackTrace) for each in capture.observations):
            capture.observations.append(StackTrace(capture))

    def hand_on(self) -> Origins:
        """Return the stacks, which stay with the work."""
        return self._origins


class Origins:
    """The stacks of the nodes of one graph."""

    __slots__ = ("_stacks", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stacks: list[tuple[Frame, ...]] = []

    def add(self, start: int, stack: tuple[Frame, ...]) -> None:
        """Note the stack of the nodes from a number on."""
        self._starts.append(start)
        self._stacks.append(stack)

    def hand_on(self) -> Origins:
        """Return itself: it does not change any more."""
        return self

    def stack(self, node: int) -> tuple[Frame, ...]:
        """Return the stack of a node; nothing for one that was recorded before the code began."""
        at = bisect_right(self._starts, node)
        return self._stacks[at - 1] if at else ()


def frames_of(stack: list[Place]) -> tuple[Frame, ...]:
    """Return the innermost frames of a stack that are worth keeping, the one in the user's own code included.

    Neither this package nor Python's standard library is worth it.
    """
    own = users(stack)
    kept = [place for place in stack if not place.is_ours() and not place.is_standard()] or [own]
    if own in kept[_MOST:]:
        kept[_MOST - 1] = own
    return tuple(Frame(*place, not place.is_library()) for place in kept[:_MOST])
