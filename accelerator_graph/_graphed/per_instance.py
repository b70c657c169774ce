"""The graphed function that each instance of a class has for a graphed method."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_numbers = itertools.count()


class PerInstance(Generic[T]):
    """One object for every instance of a class, which is collected with the instance.

    The object lies in the ``__dict__`` of its instance. Its graphs may refer to the instance: from a table
    they would keep it alive for ever, in a cycle with the instance they are collected. An instance without
    a ``__dict__`` has its object in a table, and is kept if its graphs refer to it.
    """

    def __init__(self, method: str) -> None:
        self._all: weakref.WeakSet[T] = weakref.WeakSet()
        self._key = f"_graphed_{method}_{next(_numbers)}"
        self._without_dict: dict[int, _Entry] = {}

    def find(self, instance: Any) -> T | None:
        """Return the object of an instance; None if there is none."""
        table, key = self._table(instance)
        entry = table.get(key)
        if entry is None or entry.instance() is not instance:  # a copied instance has a copied __dict__
            return None
        return entry.value  # type: ignore[no-any-return]

    def add(self, instance: Any, make: Callable[[weakref.ref[Any]], T]) -> T:
        """Make the object of an instance from a weak reference to it; TypeError if there can be none."""
        table, key = self._table(instance)
        try:
            if table is self._without_dict:
                reference = weakref.ref(instance, lambda _: table.pop(key, None))
            else:
                reference = weakref.ref(instance)
        except TypeError:
            raise TypeError(
                f"a graphed function can't be a method of {type(instance).__name__!r}, whose instances can't "
                "be referenced weakly; add '__weakref__' to its __slots__."
            ) from None
        value = make(reference)
        self._all.add(value)
        table[key] = _Entry(value, reference)
        return value

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._all))

    def _table(self, instance: Any) -> tuple[dict[Any, Any], Any]:
        table = getattr(instance, "__dict__", None)
        return (table, self._key) if type(table) is dict else (self._without_dict, id(instance))


class _Entry:
    """The object of one instance. A copied or unpickled entry belongs to no instance."""

    __slots__ = ("instance", "value")

    def __init__(self, value: object = None, instance: Callable[[], object] = lambda: None) -> None:
        self.value = value
        self.instance = instance

    def __reduce__(self) -> tuple[type[_Entry], tuple[()]]:
        return _Entry, ()
