"""Calls whose answers no interrupt can lose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

ASKED = object()
"""Stands for the answer to a destruction that was interrupted inside of the call."""


def keep(answers: list[Any], function: Callable[..., Any], *args: Any, before: Iterable[Any] = ()) -> None:
    """Append `before` to a list, call a function, and append its answer.

    All of it happens in C: an interrupt can't come between the call and the keeping.
    """
    answers.extend(chain(before, map(function, *zip(args))))
