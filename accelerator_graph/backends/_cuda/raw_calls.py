"""Functions of the driver that are called without the binding.

The binding drops what the driver says about an update that it refuses, and it takes longer than the driver
where a thousand nodes are read, or one is changed. A function is called for many objects in the C extension,
or by ctypes, a microsecond each.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from ctypes import CFUNCTYPE, ArgumentError, c_int, c_void_p
from typing import NamedTuple, NoReturn, Protocol

from ..._interpreter import in_c
from .._shared import no_memory

Function = Callable[..., int]


class Calls(NamedTuple):
    """Addresses for `call_each`, and functions of ctypes."""

    kind: int
    kernel: int
    attribute: int
    nodes: Function
    update: Function
    edges: Function | None
    """None before CUDA 12.3."""
    set_kernel: int
    """Addresses of the functions that set the parameters of a node in an executable."""
    set_memcpy: int
    set_memset: int


class Addresses(Protocol):
    """The part of the driver that the functions are looked up with."""

    calls: Calls | None
    edges_address: int
    """That of ``cuGraphGetEdges`` as CUDA 12.3 has it; 0 before."""

    def address(self, function: str, version: int) -> int:
        """Return the address of a function as CUDA `version` has it; 0 if the driver does not report it."""

    def broke(self, function: str, error: Exception) -> NoReturn:
        """Raise the error for a function that is missing."""


def calls_of(driver: Addresses) -> Calls:
    """Return the functions, which are looked up once."""
    if driver.calls is None:
        edges = driver.edges_address
        driver.calls = Calls(
            _address(driver, "cuGraphNodeGetType"),
            _address(driver, "cuGraphKernelNodeGetParams"),
            _address(driver, "cuGraphKernelNodeGetAttribute"),
            _function(_address(driver, "cuGraphGetNodes"), 3),
            _function(_address(driver, "cuGraphExecUpdate"), 3),
            _function(edges, 5) if edges else None,
            _address(driver, "cuGraphExecKernelNodeSetParams"),
            _address(driver, "cuGraphExecMemcpyNodeSetParams"),
            _address(driver, "cuGraphExecMemsetNodeSetParams"),
        )
    return driver.calls


def _function(address: int, arguments: int) -> Function:
    function = CFUNCTYPE(c_int, *(c_void_p,) * arguments)(address)

    def call(*values: int | None) -> int:
        try:
            code: int = function(*values)
        except ArgumentError as error:  # all of them have the right type
            raise no_memory(error) from error
        return code

    return call


def _address(driver: Addresses, name: str) -> int:
    address = driver.address(name, 12000)
    if not address:
        driver.broke(name, RuntimeError(f"there is no {name}"))
    return address


WORD = 8
"""The size of a handle."""

_ANSWER_WORDS = 16
"""As in `fast/calls.h`."""


def call_each(
    objects: bytes, questions: tuple[tuple[int, bytes, int], ...], other: int = 0
) -> tuple[int, int, bytes]:
    """Call functions for each object, one object after the other, until a call fails.

    Parameters
    ----------
    objects : bytes
        The handles.
    questions : tuple
        At most four, asked in this order: the address of an ``int function(void *object, void *answer)``,
        which is called without the interpreter's lock; the places of the words of 8 bytes to keep of the
        answer, which may be 128 bytes long and is 0 where the function does not write; and a number that is
        passed between the object and the answer unless it is negative.
    other : int
        If not 0, the code of the first function for an object that it is not for. The words of such an
        object are 0.

    Returns
    -------
    code : int
        0, or that of the call that failed.
    failed : int
        The number of the question that it was.
    kept : bytes
        The words of the objects before it.
    """
    if in_c() is not None:
        found: tuple[int, int, bytes] = in_c().call_each(objects, questions, other)
        return found
    width = sum(len(words) for _, words, _ in questions)
    asked = [(*_prototyped(address, which), words) for address, words, which in questions]
    kept = array("Q")
    answer = (ctypes.c_uint64 * _ANSWER_WORDS)()
    place, size = ctypes.addressof(answer), ctypes.sizeof(answer)
    for handle in memoryview(objects).cast("Q"):
        row: list[int] = []
        for number, (call, more, words) in enumerate(asked):
            ctypes.memset(place, 0, size)
            code = call(handle, *more, place)
            if code and (number or code != other):
                return code, number, kept.tobytes()
            if code:
                row = [0] * width
                break
            row += map(answer.__getitem__, words)
        kept.extend(row)
    return 0, 0, kept.tobytes()


def _prototyped(address: int, which: int) -> tuple[Callable[..., int], tuple[int, ...]]:
    types = () if which < 0 else (ctypes.c_int,)
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *types, ctypes.c_void_p)(address)
    return function, () if which < 0 else (which,)


def distinct(objects: bytes) -> bytes:
    """Return the different handles, in the order in which they come first."""
    if in_c() is not None:
        found: bytes = in_c().distinct(objects)
        return found
    return array("Q", dict.fromkeys(memoryview(objects).cast("Q"))).tobytes()


def numbers_of(objects: bytes, wanted: bytes) -> bytes:
    """Return the place of each wanted handle among the objects, as 32-bit integers.

    Raises
    ------
    ValueError
        One is not among them.
    """
    if in_c() is not None:
        found: bytes = in_c().numbers_of(objects, wanted)
        return found
    number_of = {handle: number for number, handle in enumerate(memoryview(objects).cast("Q"))}
    try:
        return array("I", map(number_of.__getitem__, memoryview(wanted).cast("Q"))).tobytes()
    except KeyError:
        raise ValueError("one of the wanted objects is not among the objects.") from None
