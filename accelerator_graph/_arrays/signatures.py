"""The signature of a call: what its arguments have in common with those of every call of one graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from .arrays import ArrayType, Read, array_type_of
from .containers import is_container, more_items, parts_of
from .values import Values

Shape = tuple[int, tuple[str, ...]]
"""How many of the values of a call are given by position, and the names of the others."""

Leaves = list[Any]
"""The arrays in the arguments of a call, in order."""


_MODES = ("is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled", "get_autocast_dtype")


class Call(NamedTuple):
    """A call of a function, read."""

    key: Hashable
    """What its graph is found by: the signature, or the caller's bucket, and the modes or the device."""
    signature: Hashable
    """What the calls of one graph have in common."""
    instance: tuple[Any, ...]
    """The instance of a method's call."""
    shape: Shape
    values: Sequence[Any]
    """The arguments, as many by position as the shape says."""
    leaves: Leaves


class Reader:
    """Finds the arrays in the arguments of calls, and makes the signatures.

    Arguments that are not arrays count `by_value`, that is by type and value, or not at all.
    """

    def __init__(self, by_value: bool) -> None:
        self._by_value = by_value
        self._reads: dict[type, Read] = {}
        self._values = Values()
        self.array_types: dict[type, Any] = {}
        """The `ArrayType` of every type that was seen; None if its objects are not arrays."""
        self.modes: Modes | None = None
        """Those of a framework in which the same function does different work."""

    def read(self, values: Sequence[Any], leaves: Leaves) -> tuple[Hashable, ...]:
        """Return the values' part of the signature, and append the arrays to the leaves.

        Raises TypeError if a value is neither an array, nor a container, nor hashable.
        """
        reads = self._reads
        return tuple([(reads.get(type(value)) or self._learn(value))(value, leaves) for value in values])

    def array_type(self, value: Any) -> ArrayType | None:
        """Return how an array is handled; None if the value is not an array."""
        cls = type(value)
        if cls not in self.array_types:
            self.array_types[cls] = None if is_container(cls) else array_type_of(value)
        found: ArrayType | None = self.array_types[cls]
        return found

    def is_array(self, x: Any) -> bool:
        """Return True for an array, and False for an object that is not what it says."""
        with suppress(Exception):
            return not isinstance(x, type) and self.array_type(x) is not None
        return False

    def arrays_in(self, value: Any, name: str) -> Iterator[tuple[str, Any, ArrayType]]:
        """Yield the arrays in nested containers, with their names."""
        if is_container(type(value)):
            for step, part in parts_of(value):
                yield from self.arrays_in(part, name + step)
        elif (array_type := self.array_type(value)) is not None:
            yield name, value, array_type

    def requires_grad(self, value: Any) -> bool:
        """Return True if gradients are on, and go through an array in nested containers."""
        return any(array_type.takes_gradients(x) for _, x, array_type in self.arrays_in(value, ""))

    def array_names(self, values: Sequence[Any], names: Sequence[str]) -> list[str]:
        """Return the names of the arrays, in the order of the leaves."""
        pairs = zip(values, names, strict=True)
        return [label for value, name in pairs for label, _, _ in self.arrays_in(value, name)]

    def explain(self, values: Sequence[Any], names: Sequence[str], error: Exception) -> TypeError:
        """Make the error for a call that can't be read, or whose signature has no hash."""
        for value, name in zip(values, names, strict=True):
            try:
                found = self._unreadable(value, f"argument {name}")
            except RecursionError:
                return TypeError(f"argument {name} contains itself, or is nested too deeply; pass its parts.")
            if found is None:
                continue
            path, culprit = found
            if self.array_types.get(type(culprit)) is not None:
                return TypeError(
                    f"{path} is not a strided array whose address can be read ({error}); pass the arrays "
                    "that it is made of, on the device."
                )
            return TypeError(
                f"{path} is neither an array nor hashable, but of type {type(culprit).__name__!r}, so no "
                "graph can be found by it; pass arrays, hashable values, or tuples, lists, dicts and "
                "dataclasses of them."
            )
        return TypeError(f"the arguments can't be compared with those of other calls: {error}.")

    def _unreadable(self, value: Any, path: str) -> tuple[str, Any] | None:
        """Return the first part of a value that can't be read, with its path."""
        if is_container(type(value)):
            found = (self._unreadable(part, f"{path}{step}") for step, part in parts_of(value))
            return next(filter(None, found), None)
        try:
            hash(self.read((value,), []))
        except Exception:
            return path, value
        return None

    def _read_items(self, x: dict[Any, Any], leaves: Leaves) -> Hashable:
        return self._values.all_of(x), self.read(tuple(x.values()), leaves)

    def _learn(self, value: Any) -> Read:
        """Find out, once, how values of a type are read."""
        cls = type(value)
        read = self._reads[cls] = self._read_of(cls, value)
        return read

    def _read_of(self, cls: type, value: Any) -> Read:
        if is_dataclass(cls):
            names = [field.name for field in fields(cls)]
            if issubclass(cls, dict):
                return lambda x, leaves: (
                    cls,
                    self.read([getattr(x, name) for name in names], leaves),
                    self._read_items(dict(more_items(x)), leaves),
                )
            return lambda x, leaves: (cls, self.read([getattr(x, name) for name in names], leaves))
        if issubclass(cls, tuple | list | dict):
            read = self._read_items if issubclass(cls, dict) else self.read
            if cls in (tuple, list, dict) or not self._by_value:
                return lambda x, leaves: (cls, read(x, leaves))
            return lambda x, leaves: (cls, read(x, leaves), self._values.attributes_of(x))
        array_type = self.array_type(value)
        if array_type is not None:
            if array_type.kind == "tensor" and self.modes is None:
                self.modes = _modes_of(array_type.package, value.device.type)
            return array_type.read
        if not self._by_value:
            return lambda x, leaves: None
        describe = self._values.describer(value)

        def by_value(x: Any, leaves: Leaves) -> Hashable:
            hash(x)  # a value without a hash may change
            return cls, describe(x)

        return by_value


def has_repeats(leaves: Leaves) -> bool:
    """Return True if two of the leaves are the same object. Fast for up to four, which is the usual case."""
    match leaves:
        case a, b:
            return a is b
        case a, b, c:
            return a is b or a is c or b is c
        case a, b, c, d:
            return a is b or a is c or a is d or b is c or b is d or c is d
    return len(set(map(id, leaves))) < len(leaves)


def repeats(leaves: Leaves) -> Hashable:
    """Return which of the leaves are the same object."""
    ids = [id(leaf) for leaf in leaves]
    return tuple([ids.index(each) for each in ids])


class Modes:
    """Reads the modes of a framework like torch, for tensors on a kind of device."""

    def __init__(self, package: Any, kind: str) -> None:
        grad, inference, autocast, dtype = (getattr(package, name) for name in _MODES)
        self._switches: tuple[tuple[Any, ...], ...] = ((grad,), (inference,), (autocast, kind))

        def read(leaves: Leaves) -> Hashable:
            if autocast(kind):
                kinds = {leaf.device.type for leaf in leaves if hasattr(leaf, "copy_")}
                return grad(), inference(), *((kind, dtype(kind)) for kind in sorted(kinds))
            return grad(), inference()

        self.read: Callable[[Leaves], Hashable] = read

    def answers(self) -> tuple[tuple[Any, ...], ...] | None:
        """Return what to call with which argument, and the answers now; None in autocast."""
        found = tuple((*switch, switch[0](*switch[1:])) for switch in self._switches)
        return None if found[-1][-1] else found


def _modes_of(package: Any, kind: str) -> Modes | None:
    return Modes(package, kind) if all(hasattr(package, name) for name in _MODES) else None
