"""A signal handler that is called at exactly those moments at which Python calls one."""

from __future__ import annotations

import contextlib
import enum
import inspect
import linecache
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import accelerator_graph as ag

from .signals import steps

OURS = os.path.dirname(str(ag.__file__))
WATCHED = (OURS, contextlib.__file__, enum.__file__)
"""Files: the library, and what runs within its calls."""


class Interrupter:
    """Calls a signal handler at the n-th moment at which it could be in the library's code, on this thread.

    To be given to `sys.settrace`. It has struck if `where` says so. `also` are files of a binding in Python.
    """

    def __init__(
        self,
        at: int,
        handler: Callable[[int, FrameType], object] = signal.default_int_handler,
        also: tuple[str, ...] = (),
    ) -> None:
        self.at = at
        self.handler = handler
        self.moments = 0
        self.where = ""
        self._watched = (*WATCHED, *also)
        self._entered: set[int] = set()
        sys._getframe().f_trace_opcodes = True  # without one such frame, Python 3.12 traces no opcodes at all

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code.co_name not in ("__new__", "__init__") and not code.co_flags & inspect.CO_GENERATOR:
            self._entered.add(id(frame.f_back))
        if not code.co_filename.startswith(self._watched):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        between = steps(code)
        last = -1
        if event == "call" and not code.co_flags & inspect.CO_GENERATOR:  # where no `try` watches yet
            self._moment(frame)

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal last
            if event == "opcode":
                before, last = last, frame.f_lasti
                straight = id(frame) in self._entered
                self._entered.discard(id(frame))
                if (before, last) in between and not straight:
                    self._moment(frame)
            return trace

        return trace

    def _moment(self, frame: FrameType) -> None:
        self.moments += 1
        if self.moments == self.at:
            frame.f_trace_opcodes = False
            self.where = self._place(frame)
            self.handler(signal.SIGINT, frame)

    def _place(self, frame: FrameType) -> str:
        """Name the functions from the library's own line inwards."""
        names: list[str] = []
        each: FrameType | None = frame
        while each is not None and not each.f_code.co_filename.startswith(OURS):
            names.insert(0, each.f_code.co_name)
            each = each.f_back
        if each is None:
            return " > ".join(names)
        file, line = each.f_code.co_filename, each.f_lineno
        source = linecache.getline(file, line).strip()
        return " > ".join((f"{os.path.basename(file)}:{line} {source}", *names))
