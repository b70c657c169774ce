"""How the calls of the driver fail, and what the library says of it."""

from __future__ import annotations

from .vendor import codes


def failures(function: str) -> list[tuple[int, bool]]:
    """Return how a call fails: the code, and whether it does its work all the same."""
    found = [(code, False) for code in codes.CODES.get(function, codes.EVERY)]
    return found + [(code, True) for code in codes.LATE_CODES if function in codes.LATE]


def reason(code: int) -> str:
    """Return the library's reason for a code."""
    return codes.REASONS.get(code, "other")
