"""Help with Python itself: forks and exits, ends of ``with`` blocks, threads, integers, exceptions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
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
