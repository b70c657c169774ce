"""Options that are True, False, or as the environment says."""

from __future__ import annotations

import os
from contextvars import ContextVar

LIVENESS = "ACCELERATOR_GRAPH_CHECK_INPUT_LIVENESS"
DIAGNOSE = "ACCELERATOR_GRAPH_DIAGNOSE"

diagnosing: ContextVar[bool] = ContextVar("diagnosing", default=False)
"""True inside ``with diagnose():``."""


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


def finds_inputs(given: object) -> bool:
    """Return True if captures should find and watch their inputs. See `is_on`."""
    return is_on(given, "check_input_liveness", LIVENESS)


def is_diagnosed(given: object) -> bool:
    """Return True if a graph's captures should be watched. See `is_on`."""
    return is_on(given, "diagnose", DIAGNOSE)
