"""The arguments of a kernel that is in a graph, as bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from numbers import Number
from operator import index

from .._interpreter.integers import integer
from ..backends.base import Argument, Change


def arguments_by_position(where: str, count: int, given: object) -> dict[int, object]:
    """Return the new arguments of a kernel by their positions: all of them, or some.

    Raises
    ------
    TypeError, ValueError
        They are not of that form, or too few or too many. The message begins with `where`.
    """
    if isinstance(given, Mapping):
        by_position = {integer(at, f"{where}: a position"): value for at, value in given.items()}
        if not by_position or not all(0 <= at < count for at in by_position):
            raise ValueError(
                f"{where}: the positions of its arguments are 0 to {count - 1}, not {list(given)}."
            )
        return by_position
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        if len(given) != count:
            raise ValueError(
                f"{where} takes {count} arguments, not {len(given)}; pass some of them by position."
            )
        return dict(enumerate(given))
    raise TypeError(f"{where}: arguments must be a sequence of all, or a dict by position, not {given!r}.")


def argument_changes(
    where: str, arguments: Sequence[Argument], by_position: Mapping[int, object]
) -> Iterator[Change]:
    """Yield the changes that give a kernel new arguments.

    Raises
    ------
    TypeError, ValueError
        One can't be passed, or is of another size. The message begins with `where`.
    """
    for position, value in by_position.items():
        place = arguments[position]
        yield Change(place.block, place.offset, _bytes(f"{where}: argument {position}", value, place.nbytes))


def _bytes(where: str, value: object, nbytes: int) -> bytes:
    data = _bytes_of(where, value, nbytes)
    if len(data) != nbytes:
        raise ValueError(f"{where} has {nbytes} bytes, and {value!r} has {len(data)}; pass one of that size.")
    return data


def _bytes_of(where: str, value: object, nbytes: int) -> bytes:
    try:
        return ctypes.string_at(ctypes.addressof(value), ctypes.sizeof(value))  # type: ignore[arg-type]
    except TypeError:
        pass
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        try:
            address = index(interface["data"][0] or 0)
            return address.to_bytes(8, "little")
        except (LookupError, TypeError, OverflowError):
            raise TypeError(
                f"{where} has a __cuda_array_interface__ without an address; pass an array in device memory."
            ) from None
    if hasattr(value, "dtype"):
        if getattr(value, "shape", None) != () or not hasattr(value, "tobytes"):
            raise TypeError(f"{where} is an array in host memory; pass an array in device memory.")
        data: bytes = value.tobytes()
        return data
    if (isinstance(value, Number) and not hasattr(value, "__index__")) or not hasattr(value, "__int__"):
        raise TypeError(
            f"{where} can't be a {type(value).__name__!r} object; pass a ctypes or NumPy scalar, such as "
            "ctypes.c_float(1.5), an int, or an object with __cuda_array_interface__."
        )
    number = int(value)
    if not -1 << 8 * nbytes - 1 <= number < 1 << 8 * nbytes:
        raise ValueError(f"{where} has {nbytes} bytes, and {number} does not fit into them.")
    return (number % (1 << 8 * nbytes)).to_bytes(nbytes, "little")
