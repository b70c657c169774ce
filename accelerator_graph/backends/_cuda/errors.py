"""What the CUDA driver's error codes mean, in the library's own errors."""

from __future__ import annotations

import re
from typing import Any

from ...errors import DriverError, Reason, UnsupportedError, driver_error

_REASONS: dict[int, Reason] = {
    2: "out_of_memory",
    900: "illegal_call",  # STREAM_CAPTURE_UNSUPPORTED
    901: "invalidated",
    902: "foreign_capture",  # STREAM_CAPTURE_MERGE: two captures would have become one
    903: "foreign_capture",  # STREAM_CAPTURE_UNMATCHED: begun on another stream
    904: "unjoined",
    905: "foreign_capture",  # STREAM_CAPTURE_ISOLATION: waiting for what was recorded outside
    906: "default_stream",  # STREAM_CAPTURE_IMPLICIT
    907: "illegal_call",  # CAPTURED_EVENT
    908: "wrong_thread",
}
# After these every further call answers the same, or has no context to run in.
for _code in (214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911):
    _REASONS[_code] = "device_lost"


def call_failed(backend: str, call: str, code: Any) -> DriverError:
    """Make the error for a call that answered `code`, a ``CUresult``."""
    return driver_error(
        backend=backend,
        call=call,
        code=int(code),
        code_name=code.name,
        reason=_REASONS.get(int(code), "other"),
        detail=_explanation(code),
    )


def call_broke(
    backend: str, call: str, error: Exception, driver_version: str
) -> DriverError | UnsupportedError | None:
    """Make the error for a call out of which the binding raised `error`; None if it is about neither.

    The binding raises `RuntimeError` if the driver does not have the function, and `ValueError` if the
    driver answers a code that the binding does not know.
    """
    if isinstance(error, RuntimeError):
        return UnsupportedError(
            f"the driver, which supports CUDA {driver_version}, does not have {call}; install a newer driver."
        )
    unknown = re.fullmatch(r"(\d+) is not a valid CUresult", str(error))
    if unknown is None:
        return None
    code = int(unknown[1])
    return driver_error(
        backend=backend,
        call=call,
        code=code,
        code_name="an unknown code",
        reason=_REASONS.get(code, "other"),
        detail="the driver is newer than cuda-python, which has no name for it; upgrade cuda-python",
    )


def _explanation(code: Any) -> str:
    """Return the first sentence of what the driver's documentation says of a code."""
    text = getattr(code, "__doc__", None) or ""
    if text == type(code).__doc__:  # an enum without documentation of its members
        return ""
    text = re.sub(r":py:obj:`~?\.?([^`]*)`", r"\1", " ".join(text.split()))
    return re.split(r"(?<=[^.])\.(?: |$)", text, maxsplit=1)[0]
