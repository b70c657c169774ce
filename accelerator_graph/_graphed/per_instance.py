"""What a graphed method has of its own for every instance."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_numbers = itertools.count()


class Instances(Generic[T]):
    """One object for every instance of a class, which goes with the instance.

    It lies in the dictionary of the instance, if there is one, so that the two may refer to each other.

    Parameters
    ----------
    name : str
        Of the method.
    """

    def __init__(self, name: str) -> None:
        self._all: weakref.WeakSet[T] = weakref.WeakSet()
        self._key = f"_graphed_{name}_{next(_numbers)}"
        self._without_dictionary: dict[int, _Own] = {}

    def find(self, instance: Any) -> T | None:
        """Return the object of an instance; None if there is none."""
        table, key = self._table(instance)
        own = table.get(key)
        if own is None or own.whose() is not instance:  # a copy of an instance has a copy of the dictionary
            return None
        return own.value  # type: ignore[no-any-return]

    def add(self, instance: Any, make: Callable[[weakref.ref[Any]], T]) -> T:
        """Make the object of an instance, given a weak reference to that.

        Raises
        ------
        TypeError
            It can't be referenced weakly.
        """
        table, key = self._table(instance)
        elsewhere = table is self._without_dictionary
        try:
            whose = weakref.ref(instance, (lambda _: table.pop(key, None)) if elsewhere else None)
        except TypeError:
            raise TypeError(
                f"a graphed function can't be a method of {type(instance).__name__!r}, whose instances can't "
                "be referenced weakly; add '__weakref__' to its __slots__."
            ) from None
        value = make(whose)
        self._all.add(value)
        table[key] = _Own(value, whose)
        return value

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._all))

    def _table(self, instance: Any) -> tuple[dict[Any, Any], Any]:
        table = getattr(instance, "__dict__", None)
        return (table, self._key) if type(table) is dict else (self._without_dictionary, id(instance))


class _Own:
    """What an instance has. A copy of it, or one from a pickle, is nobody's."""

    __slots__ = ("value", "whose")

    def __init__(self, value: object = None, whose: Callable[[], object] = lambda: None) -> None:
        self.value = value
        self.whose = whose

    def __reduce__(self) -> tuple[type[_Own], tuple[()]]:
        return _Own, ()
