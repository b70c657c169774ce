"""Help with Python itself, and what comes from outside of the library.

That is environment variables, arguments, exceptions, and the lines that call. Some variables are read for
every graph: a notebook can set one after a failure.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Set
from functools import cache
from importlib import import_module
from operator import index
from types import FrameType
from typing import Any


@cache
def in_c() -> Any:
    """Return the C extension; None without one. Whoever asks first imports it."""
    return import_module("accelerator_graph._core.extension").fast


def imported_on_use(module: str, homes: dict[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a module. `homes` has the names, with spaces between, by their modules."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return __getattr__


def runs_later(function: object) -> bool:
    """Return True for generators and coroutines, whose body runs after the call."""
    flags: int = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return bool(flags & (0x20 | 0x80 | 0x200))  # as in `inspect`, asynchronous generators among them


class Record:
    """Base of such a class, whose `__slots__` are its fields.

    An import defines it in a tenth of the time that a `typing.NamedTuple` takes.
    """

    __slots__: tuple[str, ...] = ()

    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({', '.join(shown)})"


# ---- environment variables ---------------------------------------------------------------------


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


# ---- arguments ---------------------------------------------------------------------------------


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


# ---- exceptions --------------------------------------------------------------------------------


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


# ---- calls ---------------------------------------------------------------------------------------

Site = tuple[str, int]
"""A file and a line."""


def caller() -> Site:
    """Return the first file and line outside of this package on the stack."""
    frame = sys._getframe(1)
    package = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def outside() -> tuple[int, FrameType]:
    """Return the first frame outside of this package, and the `stacklevel` of the caller's warning for it."""
    level, frame = 1, sys._getframe(1)
    package = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    return level, frame


def warn_of_nothing(message: str, category: type[Warning]) -> None:
    """Issue a warning for the first line outside of this package."""
    warnings.warn(message, category, stacklevel=outside()[0])
