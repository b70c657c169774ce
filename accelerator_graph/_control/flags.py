"""The flag of a loop or a branch: one element in memory that captured work writes."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any

from .._arrays.arrays import ArrayType, array_type_of, copy_all, on_device, on_host
from .._arrays.placement import check_place, extent, works_on_host, writable
from .._breaks.parts import EagerCall, HostTest
from .._core.current_stream import current_stream
from .._core.observers import ambient
from .._core.replay import parts_in
from .._interpreter import outside
from ..backends.base import Capability, unsupported
from ..backends.memory import elements_of
from ..errors import AcceleratorGraphError, CaptureError, UnsupportedError

if TYPE_CHECKING:
    from .._core.graph import BaseGraph
    from .._core.streams import Stream
    from ..backends.base import AnyBackend

_SIZES = {"bool": 1} | {f"{sign}int{8 * size}": size for size in (1, 2, 4, 8) for sign in ("", "u")}
"""The bytes of an element by the name of its type."""


class Flag:
    """One element, boolean or integer: true unless all its bytes are zero.

    Parameters
    ----------
    obj : array, or tuple of memory and str
        The array; or memory that `Stream.copy` accepts, such as an address, with the name of a type.
    what : str
        The call that it was given to, for messages.

    Raises
    ------
    TypeError, ValueError
        It is neither, or has another number of elements or another type.
    """

    __slots__ = ("memory", "nbytes", "obj", "what")

    def __init__(self, obj: Any, what: str) -> None:
        self.obj = obj
        self.what = what
        self.memory: Any
        self.nbytes: int
        """The bytes of the element."""
        if isinstance(obj, tuple):
            if len(obj) != 2 or not isinstance(obj[1], str) or obj[1] not in _SIZES:
                raise TypeError(
                    f"{what}: the flag as a tuple must be memory and the name of its type, one of "
                    f"{', '.join(_SIZES)}, not {obj!r}."
                )
            self.memory, self.nbytes = obj[0], _SIZES[obj[1]]
            return
        kind, itemsize, count = _element_of(obj)
        if kind is None:
            raise TypeError(
                f"{what}: the flag must be an array of one element, or a tuple of memory and the name of its "
                f"type, such as (address, 'int32'), not {obj!r}."
            )
        if kind not in "biu":
            raise TypeError(
                f"{what}: the flag must be boolean or an integer, not of type {obj.dtype}; compare it with "
                "something on the device."
            )
        if isinstance(obj, Hashable) and not writable(obj):
            raise TypeError(f"{what}: the flag is a NumPy scalar, which never changes; pass an array.")
        if count != 1:
            raise ValueError(f"{what}: the flag must have one element, not {count}; reduce it on the device.")
        span = extent(obj)
        self.memory, self.nbytes = (obj if span is None else span[0]), itemsize

    def has_address(self) -> bool:
        """Return True if it is known where the flag is."""
        return isinstance(self.memory, int)

    def check(self, stream: Stream) -> None:
        """Raise UnsupportedError, TypeError or ValueError if work on a stream can't read or write it."""
        if Capability.ENQUEUE not in stream._backend.capabilities(stream.device):
            raise unsupported(stream._backend, Capability.ENQUEUE)
        if not isinstance(self.obj, tuple) and array_type_of(self.obj) is not None:
            check_place(self.obj, f"{self.what}: the flag", stream)

    def now(self) -> bool:
        """Return what it is once all work on the current stream is done, outside of a capture."""
        stream = current_stream(required=False)
        if stream is not None and stream._is_capturing():
            raise CaptureError(
                f"{self.what}: the current stream is being captured, and not by a Graph of this thread; "
                "capture it with accelerator_graph.Graph, whose captures know loops and branches.",
                reason="foreign_capture",
            )
        if hasattr(self.obj, "item"):  # in its own library's order
            if stream is not None and works_on_host(stream):
                stream.synchronize()
            return bool(self.obj.item())
        if stream is None:
            raise TypeError(f"{self.what}: {self.obj!r} is read on the current stream; make one current.")
        self.check(stream)
        return self.read(stream)

    def read(self, stream: Stream) -> bool:
        """Return what it is once all work on a stream is done, on which `check` has found it readable."""
        return any(stream._backend.read(stream._native, self.memory, self.nbytes))


def _element_of(obj: Any) -> tuple[str | None, int, int]:
    """Return the kind of an array's elements, as NumPy names it, their size, and their number."""
    dtype, shape = getattr(obj, "dtype", None), getattr(obj, "shape", None)
    if dtype is None or shape is None:
        found = elements_of(obj)  # a buffer of Python
        return (None, 0, 0) if found is None else (found[0][1], found[1], memoryview(obj).nbytes // found[1])
    kind = getattr(dtype, "kind", None)
    if kind is None:  # torch
        real = getattr(dtype, "is_floating_point", True) or getattr(dtype, "is_complex", True)
        kind = "f" if real else "i"
    return kind, dtype.itemsize, prod(shape)


def warn_if_endless(
    graph: BaseGraph,
    test: HostTest,
    backend: AnyBackend,
    work: Iterable[tuple[Any, Sequence[object]]],
) -> None:
    """Warn if no work in a loop's body is known to write its flag, and nothing else ends the loop.

    To read what was captured takes longer than to capture it, so this is done for graphs that are kept, and
    for those that somebody observes.

    Parameters
    ----------
    graph : Graph
        The graph that is being captured.
    test : HostTest
        The loop.
    backend : Backend
        The backend.
    work : iterable
        The graphs of the body, as the backend knows them, and what each keeps alive.
    """
    flag = test.flag
    if test.kind != "while" or test.limit is not None or not flag.has_address():
        return
    if any(isinstance(part, EagerCall) for body in test.bodies for part in parts_in(body)):
        return
    if graph._keeps == "executable" and not graph._observers and not ambient.get():
        return
    from .._checking.check import may_write

    obj = flag.obj[0] if isinstance(flag.obj, tuple) else flag.obj
    element = range(flag.memory, flag.memory + flag.nbytes)
    with suppress(AcceleratorGraphError):  # then nothing is known
        if not any(may_write(obj, element, backend, *each) for each in work):
            warnings.warn(
                f"{test.what}: no work in its body writes its flag, so a replay that finds it true does not "
                "end; write it by work on the current stream, or pass limit=.",
                RuntimeWarning,
                stacklevel=outside()[0],
            )


# ---- what a body carries on ----------------------------------------------------------------------


def check_carry(carry: Any, what: str) -> tuple[Any, ...]:
    """Return the arrays that a body's results are copied into; raise TypeError if some can't be copied to."""
    found = tuple(carry) if isinstance(carry, Iterable) and not hasattr(carry, "shape") else (carry,)
    for i, x in enumerate(found):
        if _carried_type(x) is None or not writable(x) or any(x is each for each in found[:i]):
            raise TypeError(f"{what}: carry must be different arrays that can be copied to, not {x!r}.")
    return found


def _carried_type(x: Any) -> ArrayType | None:
    """Return how an array is handled that can be copied, and whose shape can be compared; else None."""
    found = array_type_of(x)
    return None if found is None or found.kind == "place" or not hasattr(x, "shape") else found


def carry_on(stream: Stream | None, carry: tuple[Any, ...], results: Any, what: str) -> None:
    """Copy what a body has returned into the arrays that it carries on, in the order of the stream.

    Raises
    ------
    TypeError, ValueError
        It returned something else than arrays like these.
    UnsupportedError
        Gradients are on, and a result requires one.
    """
    new = results if isinstance(results, tuple | list) else (results,)
    if len(new) != len(carry):
        raise ValueError(f"{what}: the body must return {len(carry)} arrays, as in carry, not {len(new)}.")
    for i, (x, y) in enumerate(zip(carry, new, strict=True)):
        array_type = _carried_type(y)
        if array_type is None:
            raise TypeError(f"{what}: the body must return arrays, and result {i} is {y!r}.")
        if array_type.takes_gradients(y):
            raise UnsupportedError(
                f"{what}: result {i} of the body requires grad, and no gradients pass through a loop; call "
                "it under no_grad(), or return its detach().",
                capability="autograd",
            )
        was, now = ((tuple(each.shape), each.dtype) for each in (x, y))
        if was != now:
            raise ValueError(
                f"{what}: result {i} of the body has shape {now[0]} and type {now[1]}, and carry[{i}] has "
                f"{was[0]} and {was[1]}; return arrays like those."
            )
    pairs = [pair for pair in zip(carry, new, strict=True) if pair[0] is not pair[1]]
    if not pairs:
        return
    if stream is None:
        copy_all(pairs)
    else:
        (on_host if works_on_host(stream) else on_device)(stream, copy_all, pairs)
