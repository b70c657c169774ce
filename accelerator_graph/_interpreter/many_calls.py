"""Calls of a C function for many objects: in the C extension, or by ctypes, a microsecond each."""

from __future__ import annotations

import ctypes
from array import array
from itertools import repeat

import accelerator_graph._interpreter as interpreter

WORD = 8
"""The size of a handle."""


def call_each(function: int, objects: bytes, size: int, which: int = -1) -> tuple[int, bytes]:
    """Call an ``int function(void *object, void *answer)`` for each object, until one call fails.

    Parameters
    ----------
    function : int
        Its address. It is called without the interpreter's lock.
    objects : bytes
        The handles.
    size : int
        The size of an answer.
    which : int
        If not negative, it is passed between the object and the answer.

    Returns
    -------
    code : int
        0, or that of the call that failed.
    answers : bytes
        Those of the calls before it.
    """
    if interpreter.in_c is not None:
        found: tuple[int, bytes] = interpreter.in_c.call_each(function, objects, size, which)
        return found
    handles = memoryview(objects).cast("Q")
    answers = bytearray(size * len(handles))
    room = (ctypes.c_char * len(answers)).from_buffer(answers)
    more, types = ((), ()) if which < 0 else ((repeat(which),), (ctypes.c_int,))
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *types, ctypes.c_void_p)(function)
    start = ctypes.addressof(room)
    places = range(start, start + len(answers), size)
    for number, code in enumerate(map(call, handles, *more, places)):
        if code:
            return code, bytes(answers[: size * number])
    return 0, bytes(answers)


def numbers_of(objects: bytes, wanted: bytes) -> bytes:
    """Return the place of each wanted handle among the objects, as 32-bit integers.

    Raises
    ------
    ValueError
        One is not among them.
    """
    if interpreter.in_c is not None:
        found: bytes = interpreter.in_c.numbers_of(objects, wanted)
        return found
    number_of = {handle: number for number, handle in enumerate(memoryview(objects).cast("Q"))}
    try:
        return array("I", map(number_of.__getitem__, memoryview(wanted).cast("Q"))).tobytes()
    except KeyError:
        raise ValueError("one of the wanted objects is not among the objects.") from None
