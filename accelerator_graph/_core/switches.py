"""Options that are as the environment says if a program leaves them out."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Literal

from .._interpreter.outside import variable

diagnosing: ContextVar[bool | Literal["all"]] = ContextVar("diagnosing", default=False)
"""True inside ``with diagnose():``, and "all" if every call that breaks a capture is to be found."""


class _Thread(threading.local):
    depth = 0

    def __init__(self) -> None:
        self.blocks: set[object] = set()


measuring = _Thread()
"""`measuring.blocks`: the `measure_memory` blocks that this thread is in; `measuring.depth`: their number."""

LIVENESS = "check_input_liveness"
"""Whether captures find and watch their inputs."""
DIAGNOSE = "diagnose"
"""Whether captures are watched for the call that breaks them."""
VERIFY = "verify"
"""Whether the first graph of every signature of a graphed function is compared with eager runs."""

VARIABLES = {
    LIVENESS: "ACCELERATOR_GRAPH_CHECK_INPUT_LIVENESS",
    DIAGNOSE: "ACCELERATOR_GRAPH_DIAGNOSE",
    VERIFY: "ACCELERATOR_GRAPH_VERIFY",
}


def is_on(given: object, name: str) -> bool:
    """Return the value of an option; None means as its environment variable says, and False if that is unset.

    Raises TypeError for another type, ValueError if the variable is neither 0 nor 1. Empty counts as unset.
    """
    if isinstance(given, bool):
        return given
    if given is not None:
        raise TypeError(f"{name} must be True, False or None, not {given!r}.")
    value = variable(VARIABLES[name])
    if value not in ("", "0", "1"):
        raise ValueError(f"{VARIABLES[name]} is {value!r}; set it to 1 or 0, or unset it.")
    return value == "1"


def is_forbidden(name: str) -> bool:
    """Return True if the environment says that an option is off unless a program asks for it."""
    return variable(VARIABLES[name]) == "0"


def to_verify(given: str | None) -> str | None:
    """Return the option `verify` as given; None means as its environment variable says.

    Raises ValueError if the variable has another value than ``"first"``. Empty counts as unset.
    """
    if given is not None:
        return given
    value = variable(VARIABLES[VERIFY])
    if value not in ("", "first"):
        raise ValueError(f"{VARIABLES[VERIFY]} is {value!r}; set it to 'first', or unset it.")
    return value or None
