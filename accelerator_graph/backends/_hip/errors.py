"""The library's own errors for the error codes of the HIP runtime."""

from __future__ import annotations

from typing import Any

from ...errors import DriverError, driver_error
from .._shared import reasons

_DEVICE_LOST = (214, 220, 700, 702, 710, 719)
_REASONS = reasons(_DEVICE_LOST)
_DETAILS = {
    ("", 709): "the stream has been destroyed; use one that lives",
    (
        "hipGraphInstantiateWithFlags",
        801,
    ): "a graph that allocates memory can be instantiated once; capture it again",
}
"""Explanations that are better than the runtime's, by call (empty: any) and code."""


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
