"""Options that are True, False, or as the environment says."""

from __future__ import annotations

import os


def is_on(given: object, name: str, variable: str) -> bool:
    """Return the value of an option; None means as an environment variable says, and False if it is unset.

    Raises TypeError for another type, ValueError if the variable is neither 0 nor 1. Empty counts as unset.
    """
    if isinstance(given, bool):
        return given
    if given is not None:
        raise TypeError(f"{name} must be True, False or None, not {given!r}.")
    value = os.environ.get(variable, "").strip()
    if value not in ("", "0", "1"):
        raise ValueError(f"{variable} is {value!r}; set it to 1 or 0, or unset it.")
    return value == "1"
