"""The arrays in results and in the state of a function, with their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from ..._arrays.arrays import ArrayType, array_type_of
from ..._arrays.containers import is_container, parts_of
from ..._arrays.signatures import Reader
from ..._core.streams import Stream
from .places import Place, readable


def is_module(x: Any) -> bool:
    """Return True for a torch module."""
    return not isinstance(x, type) and hasattr(x, "named_parameters") and hasattr(x, "named_buffers")


def arrays_in(value: Any, name: str, reader: Reader) -> Iterator[tuple[str, Any, ArrayType]]:
    """Yield the arrays in nested containers, with their names."""
    if is_container(type(value)):
        for step, part in parts_of(value):
            yield from arrays_in(part, name + step, reader)
    else:
        array_type = reader.array_type(value)
        if array_type is not None:
            yield name, value, array_type


def named_state(state: Any) -> list[tuple[str, Any]]:
    """Return what the caller has named as state; TypeError if a part is neither an array nor a module."""
    one = is_module(state) or _is_array(state) or not isinstance(state, Iterable)
    if isinstance(state, dict):
        named = [(str(key), value) for key, value in state.items()]
    else:
        named = [(f"state[{i}]", value) for i, value in enumerate([state] if one else state)]
    for name, value in named:
        if value is not None and not is_module(value) and not _is_array(value):
            raise TypeError(f"verify: {name} must be an array or a module, not {value!r}.")
    return named


def _is_array(x: Any) -> bool:
    found: ArrayType | None = None
    with suppress(Exception):
        found = array_type_of(x)
    return found is not None


def arrays_in_state(named: Iterable[tuple[str, Any]], reader: Reader, stream: Stream) -> Iterator[Place]:
    """Yield the arrays among named values once each, with the parameters and buffers of modules."""
    seen: set[int] = set()
    for name, value in named:
        for label, array in _parts_of_state(name, value):
            if isinstance(array, type) or id(array) in seen:
                continue
            seen.add(id(array))
            with suppress(Exception):  # it is no array, or its memory can't be found
                array_type = reader.array_type(array)
                if array_type is not None and readable(array, stream):
                    yield Place(array, array_type, label)
            grad = getattr(array, "grad", None) if getattr(array, "is_leaf", False) else None
            if grad is not None and id(grad) not in seen:
                seen.add(id(grad))
                with suppress(Exception):
                    yield Place(grad, reader.array_types[type(grad)], f"{label}.grad")


def _parts_of_state(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if is_module(value):
        prefix = f"{name}." if name else ""
        for key, array in (*value.named_parameters(), *value.named_buffers()):
            yield f"{prefix}{key}", array
    elif is_container(type(value)) and not name:
        for step, part in parts_of(value):
            yield from _parts_of_state(f"{name}{step}", part)
    else:
        yield name, value
