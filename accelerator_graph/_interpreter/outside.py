"""What comes from outside of the library: environment variables, arguments, and exceptions.

Some variables are read for every graph: a notebook can set one after a failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Set
from functools import cache
from operator import index
from typing import Any


def variable(name: str) -> str:
    """Return an environment variable without white space around it; empty if it is not set.

    `os.environ.get` raises and catches two exceptions if a variable is not set, which takes five times as
    long as to look into the dictionary beneath it first.
    """
    beneath = getattr(os.environ, "_data", None)
    if beneath is not None and _key(name) not in beneath:
        return ""
    return os.environ.get(name, "").strip()


def setting(name: str, *values: str) -> str:
    """Return what an environment variable is set to, one of these values; empty if it is not set, or empty.

    Raises ValueError if it has another value.
    """
    value = variable(name)
    if value and value not in values:
        raise ValueError(f"{name} is {value!r}; set it to {' or '.join(values)}, or unset it.")
    return value


environment: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
"""The environment as a plain dictionary, to ask for `keys` without a function in Python."""


def keys(*names: str) -> Set[Any]:
    """Return what these environment variables are called in `environment`."""
    return {*names, *map(_key, names)}


_key = cache(os.environ.encodekey)


def integer(value: object, name: str) -> int:
    """Return an argument as an `int`.

    Raises
    ------
    TypeError
        It is not an integer. True and False don't count as integers.
    """
    if not isinstance(value, bool):
        try:
            return index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise TypeError(f"{name} must be an int, not {value!r}.")


def boolean(value: object, name: str) -> bool:
    """Return an argument that is True or False. Raises TypeError for everything else."""
    if isinstance(value, bool):
        return value
    raise TypeError(f"{name} must be True or False, not {value!r}.")


def message_of(error: BaseException) -> str:
    """Return the message of any exception without its last full stop, even if its `__str__` raises."""
    try:
        return str(error).strip().rstrip(".")
    except Exception:
        return "its message can't be shown"


def text_of(error: BaseException) -> str:
    """Return the type and the message of any exception."""
    name, message = type(error).__name__, message_of(error)
    return f"{name}: {message}" if message else name


def raises_again(call: Callable[[], object]) -> bool:
    """Call a plug-in again after it has raised; return True if it raises again.

    If it does not, the first exception may have come from a signal handler, such as the SystemExit of
    one that ends the process.
    """
    try:
        call()
    except (Exception, SystemExit):
        return True
    return False
