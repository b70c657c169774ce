"""Finds the device memory behind an object."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import pyopencl as cl

from ._driver import translated

if TYPE_CHECKING:
    from ._queue import Queue


class Region(NamedTuple):
    """Bytes of a memory object."""

    handle: int
    offset: int
    nbytes: int
    owner: object
    """What the user has passed."""


def region_of(obj: Any, nbytes: int | None, queue: Queue) -> Region:
    """Find the memory behind an object.

    Parameters
    ----------
    obj : pyopencl.Buffer or pyopencl.array.Array
        An array without gaps, in a buffer.
    nbytes : int, optional
        How many bytes from its beginning; all of it if None.
    queue : Queue
        The memory has to be of its context.

    Raises
    ------
    TypeError
        The object is not memory of OpenCL.
    ValueError
        It has fewer bytes, has gaps, or is of another context.
    """
    whole = _whole(obj)
    check_context(whole.owner if isinstance(obj, cl.Buffer) else obj.base_data, queue)
    if nbytes is None:
        return whole
    nbytes = operator.index(nbytes)
    if nbytes > whole.nbytes:
        raise ValueError(
            f"the {type(obj).__name__!r} object has {whole.nbytes} bytes, not {nbytes}; pass a smaller "
            "nbytes or more memory."
        )
    return whole._replace(nbytes=nbytes)


def check_context(memory: Any, queue: Queue) -> None:
    """Raise ValueError if memory does not belong to the queue's context."""
    with translated("clGetMemObjectInfo"):
        context = memory.context.int_ptr
    if context != queue.context:
        raise ValueError(
            f"the {type(memory).__name__!r} object belongs to another context than the stream; make it with "
            "stream.native.queue.context."
        )


def _whole(obj: Any) -> Region:
    if isinstance(obj, cl.Buffer):
        with translated("clGetMemObjectInfo"):
            return Region(obj.int_ptr, 0, obj.size, obj)
    base = getattr(obj, "base_data", None)  # of an array; its module takes long to import
    if isinstance(base, cl.Buffer):
        if not obj.flags.forc:
            raise ValueError("the array is not contiguous; pass a contiguous copy of it.")
        return Region(base.int_ptr, obj.offset, obj.nbytes, obj)
    raise TypeError(
        f"{type(obj).__name__!r} object is not a pyopencl.Buffer or an array in one. A graph can't read or "
        "write host memory; use pyopencl.enqueue_copy with stream.native.queue outside of it."
    )
