"""Where the memory of an array is, and whether a graph can read and write it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ..backends.base import Capability
from ..interop import registry as interop

if TYPE_CHECKING:
    from .._core.streams import Stream


_HOST = (1, 3, 11)  # of DLPack's kinds of devices: the CPU, and host memory that CUDA or ROCm pinned


def works_on_host(stream: Stream) -> bool:
    """Return True if graphs of a stream's backend work on host memory."""
    return Capability.HANDLES not in stream._backend.capabilities(stream.device)


def only_our_streams(stream: Stream) -> bool:
    """Return True if work can be enqueued on a stream's backend only through this library's streams.

    That holds where the backend records explicitly, and where no other library could name a stream, as on
    the CPU backend; unless a framework takes part, which may record in its own way.
    """
    closed = stream._backend.recording == "explicit" or works_on_host(stream)
    return closed and not interop.active(stream.backend)


def check_place(x: Any, name: str, stream: Stream) -> None:
    """Raise TypeError or ValueError if a graph that is captured beside a stream could not read an array.

    It can't if the array is in host memory and the backend works on device memory, or the other way round, or
    if the array is on another device.
    """
    on_host, device = place_of(x)
    if on_host is not works_on_host(stream):
        where, wanted = ("host", "device") if on_host else ("device", "host")
        raise TypeError(
            f"{name} is in {where} memory, but graphs of backend {stream.backend!r} work on {wanted} memory; "
            "move it there."
        )
    if device not in (None, stream.device):
        raise ValueError(
            f"{name} is on device {device} and the current stream on device {stream.device}; make a stream "
            f"of device {device} the current one."
        )


def place_of(x: Any) -> tuple[bool, int | None]:
    """Return whether an array is in host memory, and the ordinal of its device where that is known."""
    if hasattr(x, "__dlpack_device__"):
        kind, ordinal = x.__dlpack_device__()
        return (True, None) if int(kind) in _HOST else (False, int(ordinal))
    return not hasattr(x, "__cuda_array_interface__"), None


def extent(x: Any) -> tuple[int, int] | None:
    """Return where the memory of an array begins and ends; None if its type does not say."""
    layout = _layout(x)
    if layout is None:
        return None
    start, shape, strides, itemsize = layout
    if 0 in shape:
        return start, start
    if strides is None:
        return start, start + itemsize * prod(shape)
    steps = [(size - 1) * step for size, step in zip(shape, strides, strict=True)]
    below = sum(step for step in steps if step < 0)
    above = sum(step for step in steps if step > 0)
    return start + below, start + above + itemsize


def _layout(x: Any) -> tuple[int, Sequence[int], Sequence[int] | None, int] | None:
    """Return address, shape, strides (None for C order) and size of an element; None if that is not known."""
    cls = type(x)
    if hasattr(cls, "data_ptr") and hasattr(cls, "stride"):  # torch has no interface for some element types
        try:
            start = x.data_ptr()
        except RuntimeError:  # it has no memory of its own, as a sparse tensor
            return None
        size = x.element_size()
        return start, x.shape, [step * size for step in x.stride()], size
    for name in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(x, name, None) if hasattr(cls, name) else None
        if isinstance(interface, dict):
            kind = interface["typestr"]
            size = int(kind[2:].partition("[")[0]) * (4 if kind[1] == "U" else 1)
            return (interface["data"] or (0,))[0], interface["shape"], interface.get("strides"), size
    return None


def writable(x: Any) -> bool:
    """Return True unless an array says that it can't be written."""
    if hasattr(x, "stride"):
        return not any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape, strict=True))
    return getattr(getattr(x, "flags", None), "writeable", True) is not False


def same_bytes(x: Any, y: Any) -> int:
    """Return how many bytes two arrays have that can be copied as they are; 0 if they can't.

    They can't if there are gaps, or the order is another one. Complex tensors may be conjugated lazily.
    """
    if hasattr(x, "stride"):
        steps, others, size = x.stride(), y.stride(), 1
    else:
        steps, others, size = x.strides, y.strides, x.dtype.itemsize
    if tuple(steps) != tuple(others) or getattr(x.dtype, "is_complex", False):
        return 0
    for step, length in sorted(zip(steps, x.shape, strict=True)):
        if length == 1:
            continue
        if step != size:
            return 0
        size *= length
    return int(x.nbytes)
