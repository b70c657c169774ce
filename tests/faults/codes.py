"""How the calls of the driver fail, and what the library says of it."""

from __future__ import annotations

from lanes import step

from .vendor import codes


def failures(function: str, number: int) -> list[tuple[int, bool]]:
    """Return how a call fails: the code, and whether it does its work all the same.

    A plain run takes a sample, at least one. Which it is depends on the number of the call among all.
    """
    found = [(code, False) for code in codes.CODES.get(function, codes.EVERY)]
    found += [(code, True) for code in codes.LATE_CODES if function in codes.LATE]
    return found[number % min(step("codes"), len(found)) :: step("codes")]


def reason(code: int) -> str:
    """Return the library's reason for a code."""
    return codes.REASONS.get(code, "other")
