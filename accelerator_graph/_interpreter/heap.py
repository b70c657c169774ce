"""How much memory of the process's heap is in use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


def heap_bytes() -> int | None:
    """Return the bytes that the C library has given out; None where it does not tell.

    Python's own small objects are not among them, and neither is memory that a library maps itself.
    """
    ask = _function()
    if ask is None:
        return None
    info = ask()
    return int(info.uordblks + info.hblkhd)


@cache
def _function() -> Callable[[], Any] | None:
    """Return ``mallinfo2`` of the GNU C library 2.33 and later."""
    import ctypes

    class Information(ctypes.Structure):
        _fields_ = (
            *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
            *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
        )

    try:
        function = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError, TypeError):  # TypeError: on Windows
        return None
    function.restype, function.argtypes = Information, ()
    return function
