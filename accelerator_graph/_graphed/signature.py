"""What a call looks like: its arguments in order, the arrays in them, and the key of its graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from .arrays import Family, family_of
from .containers import is_container, more_items, parts_of
from .values import Values

Leaves = list[Any]
Kind = Callable[[Any, Leaves], Hashable]
"""Returns an argument's part of the key, and appends the arrays in it to the leaves."""

Shape = tuple[int, tuple[str, ...]]
"""How many of the values of a call are given by position, and the names of the others."""

_MOST_PLANS = 64


class Arguments:
    """Brings the arguments of every call into one order, with the defaults filled in.

    Parameters
    ----------
    function : callable
        Whose arguments.
    skip : int
        How many of its first parameters to leave out.
    """

    def __init__(self, function: Callable[..., Any], skip: int) -> None:
        self.plain = -1
        """The number of arguments, all by position, that are in order already."""
        self._plans: dict[Hashable, tuple[Shape, list[Any]]] = {}
        try:
            parameters = list(inspect.signature(function).parameters.values())[skip:]
        except (TypeError, ValueError):  # a builtin: what is given is what there is
            kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
            parameters = [inspect.Parameter(n, k) for n, k in zip(("args", "kwargs"), kinds, strict=True)]
        self._signature = inspect.Signature(parameters)
        if all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters):
            self.plain = len(parameters)

    def ordered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Shape, Sequence[Any]]:
        """Return how the values are given, and the values. TypeError if the function can't take them."""
        given = (len(args), *kwargs)
        plan = self._plans.get(given)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[given] = self._plan(len(args), kwargs)
        shape, sources = plan
        return shape, [source(args, kwargs) for source in sources]

    def _plan(self, count: int, names: dict[str, Any]) -> tuple[Shape, list[Any]]:
        def at(key: int | str) -> Any:
            if isinstance(key, int):
                return _Source(lambda args, kwargs: args[key])
            return _Source(lambda args, kwargs: kwargs[key])

        bound = self._signature.bind(*map(at, range(count)), **{name: at(name) for name in names})
        bound.apply_defaults()
        named = sorted(bound.kwargs.items())
        sources = [
            value.get if isinstance(value, _Source) else lambda args, kwargs, default=value: default
            for value in (*bound.args, *(value for _, value in named))
        ]
        return (len(bound.args), tuple(name for name, _ in named)), sources

    def names(self, shape: Shape) -> list[str]:
        """Return what the values are called, for messages."""
        found: list[str] = []
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                found += [f"{parameter.name}[{i}]" for i in range(shape[0] - len(found))]
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                found.append(parameter.name)
        return [*found[: shape[0]], *shape[1]]


class _Source:
    """Stands for an argument while the order is made."""

    def __init__(self, get: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self.get = get


def repeats(leaves: Leaves) -> bool:
    """Say whether two of the leaves are the same object. Fast for the few that there mostly are."""
    match leaves:
        case a, b:
            return a is b
        case a, b, c:
            return a is b or a is c or b is c
        case a, b, c, d:
            return a is b or a is c or a is d or b is c or b is d or c is d
    return len(set(map(id, leaves))) < len(leaves)


def same_among(leaves: Leaves) -> Hashable:
    """Return which of the leaves are the same object."""
    ids = [*map(id, leaves)]
    return tuple(map(ids.index, ids))


class Reader:
    """Finds the arrays in the arguments of calls, and makes the keys.

    Parameters
    ----------
    by_value : bool
        Whether arguments that are no arrays count, by type and value.
    """

    def __init__(self, by_value: bool) -> None:
        self._by_value = by_value
        self._kinds: dict[type, Kind] = {}
        self._values = Values()
        self.families: dict[type, Any] = {}
        """The `Family` of every type that was seen; None if it is no array."""
        self.ambient: Callable[[Leaves], Hashable] | None = None
        """Modes of a framework in which the same function does different work."""

    def read(self, values: Sequence[Any], leaves: Leaves) -> tuple[Hashable, ...]:
        """Return the values' part of the key, and append the arrays to the leaves.

        Raises
        ------
        TypeError
            A value is neither an array, nor a container, nor hashable.
        """
        kinds = self._kinds
        return tuple([(kinds.get(type(value)) or self._learn(value))(value, leaves) for value in values])

    def family(self, value: Any) -> Family | None:
        """Return how an array is handled; None if it is none."""
        cls = type(value)
        if cls not in self.families:
            self.families[cls] = None if is_container(cls) else family_of(value)
        family: Family | None = self.families[cls]
        return family

    def array_names(self, values: Sequence[Any], names: Sequence[str]) -> list[str]:
        """Return what the arrays are called, in the order of the leaves."""
        found = []
        for value, name in zip(values, names, strict=True):
            if is_container(type(value)):
                parts = list(parts_of(value))
                found += self.array_names([part for _, part in parts], [name + step for step, _ in parts])
            elif self.family(value) is not None:
                found.append(name)
        return found

    def explain(self, values: Sequence[Any], names: Sequence[str], error: Exception) -> TypeError:
        """Make the error for a call that can't be read or whose key has no hash, naming the argument."""
        for value, name in zip(values, names, strict=True):
            where = self._culprit(value, f"argument {name}")
            if where is not None:
                path, culprit = where
                if self.families.get(type(culprit)) is not None:
                    return TypeError(
                        f"{path} is no strided array whose address can be read ({error}); pass the arrays "
                        "that it is made of, on the device."
                    )
                return TypeError(
                    f"{path} is neither an array nor hashable, but of type {type(culprit).__name__!r}, so no "
                    "graph can be found by it; pass arrays, hashable values, or tuples, lists, dicts and "
                    "dataclasses of them."
                )
        return TypeError(f"the arguments can't be told apart from others: {error}.")

    def _culprit(self, value: Any, path: str) -> tuple[str, Any] | None:
        if is_container(type(value)):
            found = (self._culprit(part, f"{path}{step}") for step, part in parts_of(value))
            return next(filter(None, found), None)
        try:
            hash(self.read((value,), []))
        except Exception:
            return path, value
        return None

    def _items(self, x: dict[Any, Any], leaves: Leaves) -> Hashable:
        return self._values.all_of(x), self.read(tuple(x.values()), leaves)

    def _learn(self, value: Any) -> Kind:
        """Find out once for all how values of a type are read."""
        cls = type(value)
        kind = self._kind(cls, value)
        self._kinds[cls] = kind
        return kind

    def _kind(self, cls: type, value: Any) -> Kind:
        if is_dataclass(cls):
            names = [field.name for field in fields(cls)]
            if issubclass(cls, dict):
                return lambda x, leaves: (
                    cls,
                    self.read([getattr(x, name) for name in names], leaves),
                    self._items(dict(more_items(x)), leaves),
                )
            return lambda x, leaves: (cls, self.read([getattr(x, name) for name in names], leaves))
        if issubclass(cls, tuple | list | dict):
            read = self._items if issubclass(cls, dict) else self.read
            if cls in (tuple, list, dict) or not self._by_value:
                return lambda x, leaves: (cls, read(x, leaves))
            return lambda x, leaves: (cls, read(x, leaves), self._values.attributes_of(x))
        family = self.family(value)
        if family is not None:
            if family.kind == "tensor" and self.ambient is None:
                self.ambient = _ambient(family.module, value.device.type)
            return family.read
        if not self._by_value:
            return lambda x, leaves: None
        way = self._values.way(value)

        def by_value(x: Any, leaves: Leaves) -> Hashable:
            hash(x)  # what has no hash may change
            return cls, way(x)

        return by_value


def _ambient(module: Any, kind: str) -> Callable[[Leaves], Hashable] | None:
    """Return what reads the modes of a framework like torch, for tensors on a kind of device."""
    names = ("is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled", "get_autocast_dtype")
    if not all(hasattr(module, name) for name in names):
        return None
    grad, inference, autocast, dtype = (getattr(module, name) for name in names)
    autocast = partial(autocast, kind)

    def read(leaves: Leaves) -> Hashable:
        if autocast():
            kinds = {leaf.device.type for leaf in leaves if hasattr(leaf, "copy_")}
            return grad(), inference(), *((kind, dtype(kind)) for kind in sorted(kinds))
        return grad(), inference()

    return read
