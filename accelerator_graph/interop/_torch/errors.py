"""Translate torch's errors into those of the library."""

from __future__ import annotations

from ...backends.base import Backend
from ...errors import DriverError, Reason, driver_error

_REASONS: dict[int, Reason] = {
    2: "out_of_memory",
    900: "illegal_call",
    901: "invalidated",
    902: "foreign_capture",
    903: "foreign_capture",
    904: "unjoined",
    905: "foreign_capture",
    906: "default_stream",
    907: "illegal_call",
    908: "wrong_thread",
}
"""By the driver's code, which is the same on CUDA and HIP."""


def as_driver_error(error: RuntimeError, backend: Backend, call: str) -> DriverError:
    """Return the same error as a `DriverError`. torch has already cleared it in its runtime."""
    code = getattr(error, "error_code", None)
    first = str(error).partition("\n")[0].rstrip(".")
    return driver_error(
        backend=backend.name,
        call=f"torch.cuda.CUDAGraph.{call}",
        code=code,
        code_name=type(error).__name__,
        reason=_REASONS.get(code or 0) or _reason(first),
        detail=first,
    )


def _reason(message: str) -> Reason:
    """Find the reason in torch's message, if torch gives no code."""
    for words, reason in (
        ("unjoined", "unjoined"),
        ("previous error during capture", "invalidated"),
        ("not permitted when stream is capturing", "illegal_call"),
        ("out of memory", "out_of_memory"),
        ("non-default stream", "default_stream"),
    ):
        if words in message:
            return reason  # type: ignore[return-value]
    return "other"
