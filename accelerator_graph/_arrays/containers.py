"""Containers in arguments and results: tuples, lists, dicts and dataclasses, nested at will."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any


def is_container(cls: type) -> bool:
    """Return True if objects of a type are containers."""
    return is_dataclass(cls) or issubclass(cls, tuple | list | dict)


def only_tuples(value: Any) -> bool:
    """Return True if the only containers in a value are tuples, which nobody can change."""
    if not is_container(type(value)):
        return True
    return isinstance(value, tuple) and all(only_tuples(part) for part in value)


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a container, each after the text by which it is reached."""
    if is_dataclass(type(value)):
        yield from ((f".{field.name}", getattr(value, field.name)) for field in fields(value))
        yield from ((f"[{key!r}]", part) for key, part in more_items(value))
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    else:
        yield from ((f"[{i}]", part) for i, part in enumerate(value))


def leaves_of(value: Any) -> Iterator[Any]:
    """Yield everything in nested containers that is not a container."""
    if is_container(type(value)):
        for _, part in parts_of(value):
            yield from leaves_of(part)
    else:
        yield value


def more_items(value: Any) -> list[tuple[Any, Any]]:
    """Return a dataclass's items that are not fields: it may be a dict, as Hugging Face's outputs are."""
    if not isinstance(value, dict):
        return []
    names = {field.name for field in fields(value)}  # type: ignore[arg-type]
    return [item for item in value.items() if item[0] not in names]


def rebuild(value: Any, swap: Callable[[Any], Any], is_whole: Callable[[Any], bool] | None = None) -> Any:
    """Return a value like this one, with what `swap` returns in the place of everything in its containers.

    A container for which `is_whole` returns True is swapped itself.
    """
    if is_whole is not None and is_whole(value):
        return swap(value)
    cls = type(value)
    if is_dataclass(cls):
        new = copy.copy(value)
        for field in fields(cls):
            part = rebuild(getattr(value, field.name), swap, is_whole)
            object.__setattr__(new, field.name, part)
            if isinstance(value, dict) and field.name in value:
                dict.__setitem__(new, field.name, part)
        for key, item in more_items(value):
            new[key] = rebuild(item, swap, is_whole)
        return new
    if isinstance(value, tuple):
        parts = [rebuild(part, swap, is_whole) for part in value]
        if cls is tuple:
            return tuple(parts)
        new = _new_tuple(cls, parts)
        if hasattr(value, "__dict__"):
            vars(new).update(vars(value))
        return new
    if isinstance(value, list):
        parts = [rebuild(part, swap, is_whole) for part in value]
        if cls is list:
            return parts
        new = copy.copy(value)
        new[:] = parts
        return new
    if isinstance(value, dict):
        new = {} if cls is dict else copy.copy(value)
        for key, part in value.items():
            new[key] = rebuild(part, swap, is_whole)
        return new
    return swap(value)


def _new_tuple(cls: type[tuple[Any, ...]], parts: list[Any]) -> Any:
    """Return a tuple of a subclass, whose constructor may take anything."""
    try:
        return tuple.__new__(cls, parts)
    except TypeError:  # a class of an extension, such as torch.return_types.max
        return cls(parts)
