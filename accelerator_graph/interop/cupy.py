"""CuPy: its current stream, and its allocations during a capture."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from .base import Framework, Undo


class CuPy(Framework):
    """CuPy on CUDA and ROCm."""

    api_version: ClassVar[int] = 1

    @property
    def cupy(self) -> Any:
        """The module. It has been imported by somebody else."""
        return sys.modules["cupy"]

    def backend(self) -> str | None:
        """Return ``"cuda"`` or ``"hip"``. Whether CuPy has used a device yet, it does not say."""
        cuda = getattr(self.cupy, "cuda", None)
        runtime = getattr(cuda, "runtime", None)
        if runtime is None:
            return None
        return "hip" if runtime.is_hip else "cuda"

    def as_stream(self, obj: object) -> int | None:
        """Return the handle of a ``cupy.cuda.Stream`` or ``ExternalStream``."""
        return int(obj.ptr) if isinstance(obj, self.cupy.cuda.stream.BaseStream) else None

    def current_stream(self, device: int | None = None) -> tuple[int, int]:
        """Return CuPy's current stream."""
        cuda = self.cupy.cuda
        device = cuda.runtime.getDevice() if device is None else device
        return int(cuda.get_current_stream(device).ptr), device

    def use_stream(self, handle: int, device: int) -> Undo:
        """Make a stream CuPy's current one on its device, and that device the current one."""
        cuda = self.cupy.cuda
        device_before = cuda.runtime.getDevice()
        stream_before = cuda.get_current_stream(device)

        def undo() -> None:
            cuda.runtime.setDevice(device)
            stream_before.use()
            cuda.runtime.setDevice(device_before)

        try:
            cuda.runtime.setDevice(device)
            _wrapped(cuda, handle, device).use()
        except BaseException:
            undo()
            raise
        return undo


class _Handle:
    """A stream, in the words of the protocol."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


def _wrapped(cuda: Any, handle: int, device: int) -> Any:
    """Return CuPy's object for somebody else's stream, by the way that this version has."""
    if hasattr(cuda.Stream, "from_external"):
        return cuda.Stream.from_external(_Handle(handle))
    return cuda.ExternalStream(handle, device)
