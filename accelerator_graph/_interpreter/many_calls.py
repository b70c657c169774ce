"""Calls of a C function for many objects.

By ctypes, where a call takes about a microsecond; or by the C extension, once that is imported.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Protocol

WORD = 8
"""The size of a handle."""


class CallEach(Protocol):
    """`call_each`, here or in C."""

    def __call__(self, function: int, objects: bytes, size: int, which: int = -1, /) -> tuple[int, bytes]:
        """Call a function for each object."""


def _call_each(function: int, objects: bytes, size: int, which: int = -1, /) -> tuple[int, bytes]:
    import ctypes

    handles = memoryview(objects).cast("Q")
    answers = bytearray(size * len(handles))
    room = (ctypes.c_char * len(answers)).from_buffer(answers)
    more, types = ((), ()) if which < 0 else ((which,), (ctypes.c_int,))
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *types, ctypes.c_void_p)(function)
    code, at = 0, ctypes.addressof(room)
    for number, handle in enumerate(handles):
        code = call(handle, *more, at + size * number)
        if code:
            return code, bytes(answers[: size * number])
    return 0, bytes(answers)


def _numbers_of(objects: bytes, wanted: bytes, /) -> bytes:
    number_of = {handle: number for number, handle in enumerate(memoryview(objects).cast("Q"))}
    try:
        return array("I", map(number_of.__getitem__, memoryview(wanted).cast("Q"))).tobytes()
    except KeyError:
        raise ValueError("one of the wanted objects is not among the objects.") from None


_in_use: tuple[CallEach, Callable[[bytes, bytes], bytes]] = _call_each, _numbers_of


def use(call_each: CallEach, numbers_of: Callable[[bytes, bytes], bytes]) -> None:
    """Make the calls by these functions from now on."""
    global _in_use
    _in_use = call_each, numbers_of


def call_each(function: int, objects: bytes, size: int, which: int = -1) -> tuple[int, bytes]:
    """Call an ``int function(void *object, void *answer)`` for each object, until one call fails.

    Parameters
    ----------
    function : int
        Its address. The interpreter's lock is not held during the calls.
    objects : bytes
        The handles.
    size : int
        The size of an answer.
    which : int
        The second of three arguments, if it is not negative.

    Returns
    -------
    code : int
        0, or that of the call that failed.
    answers : bytes
        Those of the calls before it.
    """
    return _in_use[0](function, objects, size, which)


def numbers_of(objects: bytes, wanted: bytes) -> bytes:
    """Return the place of each wanted handle among the objects, as 32-bit integers.

    Raises
    ------
    ValueError
        One is not among them.
    """
    return _in_use[1](objects, wanted)
