"""torch's current device and streams, by its functions in C where it has them: those make no objects."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..base import Undo


def current(torch: Any, device: int | None) -> tuple[int, int]:
    """Return handle and device of the current stream, on the given or the current device."""
    native = torch._C
    if device is None:
        ask = getattr(native, "_cuda_getDevice", None)
        device = int(torch.cuda.current_device() if ask is None else ask())
    ask = getattr(native, "_cuda_getCurrentRawStream", None)
    return int(torch.cuda.current_stream(device).cuda_stream if ask is None else ask(device)), device


def is_torchs_own(torch: Any, handle: int, device: int) -> bool:
    """Return True if a handle is that of the current stream of a device, and torch has made that stream.

    The number of such a stream is odd; that of any other is 0 or the handle (c10/cuda/CUDAStream.cpp).
    """
    ask = getattr(torch._C, "_cuda_getCurrentStream", None)
    if ask is None or handle != current(torch, device)[0]:
        return False
    number = ask(device)[0]
    return bool(number % 2) and number != handle


def use(torch: Any, stream: Any, device: int) -> Undo:
    """Make a stream the current one on its device, and that device the current one."""
    native = torch._C
    put = getattr(native, "_cuda_setStream", None)
    if put is None:
        put, stream = torch.cuda.set_stream, {"stream": stream}
        before = partial(put, stream=torch.cuda.current_stream(device))
    else:
        number, index, kind = native._cuda_getCurrentStream(device)
        before = partial(put, stream_id=number, device_index=index, device_type=kind)
        index, kind = stream.device_index, stream.device_type
        stream = {"stream_id": stream.stream_id, "device_index": index, "device_type": kind}
    ask = getattr(native, "_cuda_getDevice", None)
    device_before = int(torch.cuda.current_device() if ask is None else ask())

    def undo() -> None:
        before()  # sets its device as well
        torch.cuda.set_device(device_before)

    try:
        put(**stream)
        return before if device_before == device else undo
    except BaseException:
        undo()
        raise
