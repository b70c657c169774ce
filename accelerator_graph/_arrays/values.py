"""How values that are not arrays are compared: more strictly than by ``==``, which takes 1 for True."""

from __future__ import annotations

import copyreg
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from enum import Enum
from types import BuiltinMethodType, EllipsisType, MethodType, NoneType, NotImplementedType
from typing import Any

from .arrays import array_type_of

Describe = Callable[[Any], Hashable]
"""Returns equal descriptions for two values of a type if and only if they behave alike."""

_EXACT = {bool, int, str, bytes, MethodType, BuiltinMethodType, NoneType, EllipsisType, NotImplementedType}
"""Types whose values behave alike if they are equal."""

_DEEPEST = 50
"""How many values may be taken apart within one another."""


class _Thread(threading.local):
    depth = 0


_thread = _Thread()


def is_constant(x: Any) -> bool:
    """Return True if a value is described in the same way as long as it is the same object, and no array."""
    cls = type(x)
    if cls is tuple:
        return all(map(is_constant, x))
    if cls in _EXACT or cls in (float, complex) or issubclass(cls, Enum):
        return True
    return array_type_of(x) is None and _by_identity(cls, x)


def _by_identity(cls: Any, x: Any) -> bool:
    """Return True if nothing but the identity of an object counts."""
    return array_type_of(x) is not None or cls.__eq__ is object.__eq__ or issubclass(cls, type)


class Identity:
    """Describes an object by its identity, and keeps it alive."""

    __slots__ = ("object",)

    def __init__(self, of: object) -> None:
        self.object = of

    def __hash__(self) -> int:
        return id(self.object)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.object is self.object


class Values:
    """Describes values so that equal descriptions mean values that behave alike.

    A value whose type defines equality is described by what it would be pickled as. A value that can't be
    taken apart in that way, and an array in a value, is described by its identity.
    """

    def __init__(self) -> None:
        self._describers: dict[type, Describe] = {
            float: lambda x: x if x and x == x else repr(x),  # 0.0 equals -0.0, and no nan equals itself
            complex: repr,
            tuple: self.all_of,
            list: self.all_of,
            dict: self._items_of,
            set: self._members_of,
            frozenset: self._members_of,
        }

    def describe(self, x: Any) -> Hashable:
        """Return a description of a value and its type."""
        cls = type(x)
        return cls, (self._describers.get(cls) or self.describer(x))(x)

    def all_of(self, values: Any) -> Hashable:
        """Describe values in their order."""
        return tuple(map(self.describe, values))

    def attributes_of(self, x: Any) -> Hashable:
        """Describe what a container of a class of its own has beside its items."""
        return self.describe((getattr(x, "__dict__", None), getattr(x, "default_factory", None)))

    def describer(self, x: Any) -> Describe:
        """Return how values of a type are described; found out once for each type."""
        cls = type(x)
        describe = self._describers.get(cls)
        if describe is None:
            describe = self._describers[cls] = self._describer(cls, x)
        return describe

    def _describer(self, cls: type, x: Any) -> Describe:
        if cls in _EXACT or issubclass(cls, Enum):
            return lambda x: x
        if _by_identity(cls, x):
            return Identity
        return self._parts_of

    def _items_of(self, x: dict[Any, Any]) -> Hashable:
        return self.all_of(x), self.all_of(x.values())

    def _members_of(self, x: Any) -> Hashable:
        return frozenset(Counter(map(self.describe, x)).items())

    def _parts_of(self, x: Any) -> Hashable:
        depth = _thread.depth
        try:
            if depth == _DEEPEST:  # it is nested without end
                raise RecursionError
            _thread.depth += 1
            reduce = copyreg.dispatch_table.get(type(x))
            parts = x.__reduce_ex__(4) if reduce is None else reduce(x)
            if isinstance(parts, str):  # the name of a global
                return Identity(x)
            return self.all_of([list(each) if i in (3, 4) and each else each for i, each in enumerate(parts)])
        except RecursionError:
            if depth:
                raise
            return Identity(x)
        except Exception:
            return Identity(x)
        finally:
            _thread.depth = depth
