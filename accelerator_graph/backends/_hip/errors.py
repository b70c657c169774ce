"""The library's own errors for the error codes of the HIP runtime."""

from __future__ import annotations

from typing import Any

from ...errors import Reason
from ..driver import reasons

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


def explain(call: str, code: int, names: Any, text: bytes | None) -> tuple[str, str, Reason]:
    """Return the name of a code, an explanation, and the neutral reason.

    The name is from the enumeration `names`. The explanation is the runtime's `text`, if there is no better.
    """
    try:
        name = names(code).name
    except ValueError:
        name = "an unknown code"
    detail = _DETAILS.get((call, code)) or _DETAILS.get(("", code)) or (text or b"").decode(errors="replace")
    return name, detail, _REASONS.get(code, "other")
