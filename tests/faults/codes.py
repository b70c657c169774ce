"""Which codes the calls of the driver are made to answer, and what the library says of each."""

from __future__ import annotations

from .vendor import vendor


def failures(function: str) -> list[tuple[int, bool]]:
    """Return how a call fails: the code, and whether it does its work all the same."""
    codes = [(code, False) for code in vendor.CODES.get(function, vendor.EVERY)]
    return codes + [(code, True) for code in vendor.LATE_CODES if function in vendor.LATE]


def reason(code: int) -> str:
    """Return the library's reason for a code."""
    return vendor.REASONS.get(code, "other")
