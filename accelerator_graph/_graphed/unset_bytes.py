"""Parameters have bytes that nobody has set: they are made to differ from capture to capture."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_DEPTH = 1 << 15
"""How many bytes of the stack are filled."""


class _Contents(ctypes.Structure):
    _fields_ = (("contents", ctypes.c_char * _DEPTH),)


@contextmanager
def filled(byte: int) -> Iterator[None]:
    """Fill the unused stack with a byte before each call from Python to C in this thread.

    A struct that the called function leaves unset in part has this byte there. Does nothing while a profiler
    is on.
    """
    if sys.getprofile() is not None:
        yield
        return
    contents = _Contents(bytes((byte,)) * _DEPTH)
    function = ctypes.pythonapi.Py_IsInitialized  # takes no argument; the struct is passed on the stack

    def fill(frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            function(contents)

    sys.setprofile(fill)
    try:
        yield
    finally:
        sys.setprofile(None)
