"""What the HIP runtime's error codes mean, in the library's own errors."""

from __future__ import annotations

from typing import Any

from ...errors import DriverError, Reason, driver_error

_REASONS: dict[int, Reason] = {
    2: "out_of_memory",
    900: "illegal_call",  # hipErrorStreamCaptureUnsupported
    901: "invalidated",
    902: "foreign_capture",  # hipErrorStreamCaptureMerge: two captures would have become one
    903: "foreign_capture",  # hipErrorStreamCaptureUnmatched: begun on another stream
    904: "unjoined",
    905: "foreign_capture",  # hipErrorStreamCaptureIsolation: waiting for what was recorded outside
    906: "default_stream",  # hipErrorStreamCaptureImplicit
    907: "illegal_call",  # hipErrorCapturedEvent
    908: "wrong_thread",
}
# After these every further call answers the same.
for _code in (214, 220, 700, 702, 710, 719):
    _REASONS[_code] = "device_lost"

_DETAILS = {
    ("", 709): "the stream has been destroyed; use one that lives",
    (
        "hipGraphInstantiateWithFlags",
        801,
    ): "a graph that allocates memory can be instantiated once; capture it again",
}
"""What the runtime says less well: by the call, or for any, and the code."""


def call_failed(backend: str, call: str, code: int, names: Any, text: bytes | None) -> DriverError:
    """Make the error for a call that answered `code`, which the enumeration `names` and `text` explain."""
    try:
        name = names(code).name
    except ValueError:
        name = "an unknown code"
    return driver_error(
        backend=backend,
        call=call,
        code=code,
        code_name=name,
        reason=_REASONS.get(code, "other"),
        detail=_DETAILS.get((call, code))
        or _DETAILS.get(("", code))
        or (text or b"").decode(errors="replace"),
    )
