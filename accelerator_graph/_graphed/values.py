"""What tells values apart that are not arrays: more than `==`, by which 0.0 is -0.0 and 1 is True."""

from __future__ import annotations

import copyreg
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from enum import Enum
from types import BuiltinMethodType, EllipsisType, MethodType, NoneType, NotImplementedType
from typing import Any

from .arrays import family_of

Way = Callable[[Any], Hashable]
"""Returns what two values of a type have in common if and only if they behave alike."""

_EXACT = {bool, int, str, bytes, MethodType, BuiltinMethodType, NoneType, EllipsisType, NotImplementedType}
"""Types whose values behave alike if they are equal."""

_DEEPEST = 50
"""How many values may be taken apart within one another."""


class _Thread(threading.local):
    depth = 0


_thread = _Thread()


class Itself:
    """Stands for an object that nothing but its identity can tell apart, and keeps it."""

    __slots__ = ("it",)

    def __init__(self, it: object) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and other.it is self.it


class Values:
    """Describes values so that equal descriptions mean values that behave alike.

    A value whose type defines equality is described by what it would be pickled as. What can't be taken apart
    so, and an array in a value, is described by its identity.
    """

    def __init__(self) -> None:
        self._ways: dict[type, Way] = {
            float: lambda x: x if x and x == x else repr(x),  # 0.0 equals -0.0, and no nan equals itself
            complex: repr,
            tuple: self.all_of,
            list: self.all_of,
            dict: self.items_of,
            set: self._members_of,
            frozenset: self._members_of,
        }

    def describe(self, x: Any) -> Hashable:
        """Return what describes a value and its type."""
        cls = type(x)
        return cls, (self._ways.get(cls) or self.way(x))(x)

    def all_of(self, values: Any) -> Hashable:
        """Describe values in their order."""
        return tuple(map(self.describe, values))

    def items_of(self, x: dict[Any, Any]) -> Hashable:
        """Describe keys and values in their order."""
        return self.all_of(x), self.all_of(x.values())

    def attributes_of(self, x: Any) -> Hashable:
        """Describe what a container of a class of its own has beside its items."""
        return self.describe((getattr(x, "__dict__", None), getattr(x, "default_factory", None)))

    def way(self, x: Any) -> Way:
        """Return how values of a type are described; found out once for all."""
        cls = type(x)
        way = self._ways.get(cls)
        if way is None:
            way = self._ways[cls] = self._way(cls, x)
        return way

    def _way(self, cls: type, x: Any) -> Way:
        if cls in _EXACT or issubclass(cls, Enum):
            return _same
        if family_of(x) is not None or cls.__eq__ is object.__eq__ or issubclass(cls, type):
            return Itself
        return self._parts_of

    def _members_of(self, x: Any) -> Hashable:
        return frozenset(Counter(map(self.describe, x)).items())

    def _parts_of(self, x: Any) -> Hashable:
        depth = _thread.depth
        try:
            if depth == _DEEPEST:  # what it is made of leads on and on
                raise RecursionError
            _thread.depth += 1
            reduce = copyreg.dispatch_table.get(type(x))
            parts = x.__reduce_ex__(4) if reduce is None else reduce(x)
            if isinstance(parts, str):  # a global's name
                return Itself(x)
            return self.all_of([list(each) if i in (3, 4) and each else each for i, each in enumerate(parts)])
        except RecursionError:
            if depth:
                raise
            return Itself(x)
        except Exception:
            return Itself(x)
        finally:
            _thread.depth = depth


def _same(x: Any) -> Hashable:
    return x  # type: ignore[no-any-return]
