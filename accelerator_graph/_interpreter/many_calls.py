"""Calls of a C function for many objects: in the C extension, or by ctypes, a microsecond each."""

from __future__ import annotations

import ctypes
from array import array
from itertools import repeat

import accelerator_graph._interpreter as interpreter

WORD = 8
"""The size of a handle."""

_ANSWER_WORDS = 16
"""As in `fast_calls.h`."""


def call_each(function: int, objects: bytes, words: bytes, which: int = -1) -> tuple[int, bytes]:
    """Call an ``int function(void *object, void *answer)`` for each object, until one call fails.

    Parameters
    ----------
    function : int
        Its address. It is called without the interpreter's lock. An answer may be 128 bytes long.
    objects : bytes
        The handles.
    words : bytes
        The places of the words of 8 bytes to keep of each answer. What the function does not write is 0.
    which : int
        If not negative, it is passed between the object and the answer.

    Returns
    -------
    code : int
        0, or that of the call that failed.
    kept : bytes
        The words of the answers before it.
    """
    if interpreter.in_c is not None:
        found: tuple[int, bytes] = interpreter.in_c.call_each(function, objects, words, which)
        return found
    handles = memoryview(objects).cast("Q")
    answers = (ctypes.c_uint64 * (_ANSWER_WORDS * len(handles)))()
    more, types = ((), ()) if which < 0 else ((repeat(which),), (ctypes.c_int,))
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *types, ctypes.c_void_p)(function)
    start, size = ctypes.addressof(answers), WORD * _ANSWER_WORDS
    places = range(start, start + size * len(handles), size)
    codes = map(call, handles, *more, places)
    told, code = next(((number, code) for number, code in enumerate(codes) if code), (len(handles), 0))
    kept = array("Q", bytes(WORD * len(words) * told))
    found_words = array("Q", bytes(answers))[: _ANSWER_WORDS * told]
    for number, word in enumerate(words):
        kept[number :: len(words)] = found_words[word::_ANSWER_WORDS]
    return code, kept.tobytes()


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
