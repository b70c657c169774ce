"""Translate torch's errors into those of the library."""

from __future__ import annotations

import re
from typing import Any

from ...backends.base import Backend
from ...errors import DriverError, Reason, driver_error

CAPTURE_CODES = range(900, 909)
"""The codes of CUDA's runtime and HIP's that are about captures."""

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

_REFUSAL = re.compile(
    r"Cannot copy between CPU and \w+ tensors during \w+ graph capture unless the CPU tensor is pinned"
    r"|.* during \w+ graph capture\. If you need this call to be captured, please file an issue\."
    r"|Current \w+: \w+\s+Capturing .* ?is prohibited\. Possible causes of this error:"
    r"|CTCLoss cannot be graph captured with CPU length tensors\."
    r"|\w+::set_current_seed can be called during stream capture only if new seed is "
    r"|Attempt to increase offset for a \w+ generator not in capture mode\."
    r"|RNG op during graph capture but could not find the \w+ object\."
    r"|RNG within data-dependent conditional nodes is not supported yet\."
    r"|Capturing NCCL collectives is only allowed with NCCL >="
    r"|Attempting \w+ graph capture of step\(\) for an instance of \w+ but param_groups' capturable is False"
    r"|(CUDA|HIP) error: operation not permitted when stream is capturing\b"
)
"""The beginning of each message with which torch, from 2.3 to 2.15, refuses a call because of a capture."""


def is_refusal(error: Exception, torch: Any) -> bool:
    """Return True if torch has raised an exception because a call can't be made during a capture.

    Most of torch's refusals are plain RuntimeErrors, known by their whole first sentence only.
    """
    if isinstance(error, getattr(torch, "AcceleratorError", ())):
        return error.error_code in CAPTURE_CODES  # type: ignore[attr-defined]
    return type(error) is RuntimeError and _REFUSAL.match(str(error)) is not None


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
