"""Named tuples of JSON's values, whose types are checked."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from reprlib import repr as shortened
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def record(kind: Callable[..., T], data: Any, **others: object) -> T:
    """Return a named tuple of the fields that JSON has by their names, or in their order.

    Fields that are not known are ignored.

    Parameters
    ----------
    kind : type
        The class of named tuples.
    data : dict or list
        What JSON has.
    others
        Fields that are not taken from `data`.

    Raises
    ------
    TypeError
        A value is not of its field's type.
    KeyError
        A field is missing that has no default.
    """
    types, defaults = _types(kind), getattr(kind, "_field_defaults", {})
    if isinstance(data, list) and len(data) <= len(types):
        data = dict(zip(types, data, strict=False))
    if not isinstance(data, dict):
        raise TypeError(f"{getattr(kind, '__name__', kind)} can't be {shortened(data)}")
    read = {
        name: value(types[name], data[name], repr(name))
        for name in types
        if name not in others and (name in data or name not in defaults)
    }
    return kind(**read, **others)


def value(wanted: Any, data: object, name: str = "a value") -> Any:
    """Return what JSON has for a value of a type; TypeError, with its name, if it is of another one."""
    try:
        return _read(wanted, data)
    except ValueError as error:
        raise TypeError(f"{name} can't be {shortened(data)}") from error


@cache
def _types(kind: Callable[..., object]) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(wanted: Any, value: Any) -> Any:
    """Return a value of a type; ValueError if it is none."""
    if type(value) is wanted:
        return value
    parts = get_args(wanted)
    if get_origin(wanted) is UnionType:
        if value is None and NoneType in parts:
            return None
        [wanted] = set(parts) - {NoneType}
        return _read(wanted, value)
    if get_origin(wanted) is tuple and isinstance(value, list):
        if parts[-1] is ...:
            parts = parts[:1] * len(value)
        return tuple(_read(part, each) for part, each in zip(parts, value, strict=True))
    if hasattr(wanted, "_fields"):
        return record(wanted, value)
    raise ValueError
