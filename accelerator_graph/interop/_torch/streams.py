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
    device_before = current_device(torch)

    def undo() -> None:
        before()  # sets its device as well
        torch.cuda.set_device(device_before)

    try:
        put(**stream)
        return before if device_before == device else undo
    except BaseException:
        undo()
        raise
