"""numba-cuda: its streams.

It has no current stream: a kernel that is launched without a stream goes to the default stream and is not
captured. Launch with ``kernel[blocks, threads, stream]``; for a stream of this library, pass
``cuda.external_stream(s.handle)``.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from .base import Framework


class Numba(Framework):
    """The CUDA target of Numba."""

    api_version: ClassVar[int] = 1

    @property
    def driver(self) -> Any:
        """Numba's module for the driver; None if it is not imported yet."""
        return sys.modules.get("numba.cuda.cudadrv.driver")

    def backend(self) -> str | None:
        """Return ``"cuda"`` once Numba has initialised the device."""
        driver = getattr(self.driver, "driver", None)
        ready = getattr(driver, "is_initialized", False)
        return "cuda" if ready and getattr(driver, "initialization_error", None) is None else None

    def as_stream(self, obj: object) -> int | None:
        """Return the handle of a stream of ``numba.cuda``."""
        return int(obj) if isinstance(obj, getattr(self.driver, "Stream", ())) else None  # type: ignore[call-overload]
