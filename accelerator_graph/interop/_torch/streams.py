"""torch's current device and streams, by its functions in C where it has them: those make no objects."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..base import Undo


def current_device(torch: Any) -> int:
    """Return the current device."""
    ask = getattr(torch._C, "_cuda_getDevice", None)
    return int(torch.cuda.current_device() if ask is None else ask())


def current_handle(torch: Any, device: int) -> int:
    """Return the handle of the current stream of a device."""
    ask = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return int(torch.cuda.current_stream(device).cuda_stream if ask is None else ask(device))


def is_torchs_own(torch: Any, handle: int, device: int) -> bool:
    """Return True if a handle is that of the current stream of a device, and torch has made that stream.

    The number of such a stream is odd; that of any other is 0 or the handle (c10/cuda/CUDAStream.cpp).
    """
    ask = getattr(torch._C, "_cuda_getCurrentStream", None)
    if ask is None or handle != current_handle(torch, device):
        return False
    number = ask(device)[0]
    return bool(number % 2) and number != handle


def use(torch: Any, stream: Any, device: int) -> Undo:
    """Make a stream the current one on its device, and that device the current one."""
    before = _setting(torch, device)
    device_before = current_device(torch)

    def undo() -> None:
        before()  # sets its device as well
        torch.cuda.set_device(device_before)

    try:
        _set(torch, stream)
        return before if device_before == device else undo
    except BaseException:
        undo()
        raise


def _setting(torch: Any, device: int) -> Undo:
    """Return what makes the present stream of a device its current one again."""
    native = torch._C
    if hasattr(native, "_cuda_setStream"):
        number, index, kind = native._cuda_getCurrentStream(device)
        return partial(native._cuda_setStream, stream_id=number, device_index=index, device_type=kind)
    return partial(torch.cuda.set_stream, torch.cuda.current_stream(device))


def _set(torch: Any, stream: Any) -> None:
    put = getattr(torch._C, "_cuda_setStream", None)
    if put is None:
        torch.cuda.set_stream(stream)
    else:
        put(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
