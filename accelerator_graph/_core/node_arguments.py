"""The arguments of a kernel that is in a graph, as bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence

from ..backends.base import Argument, Change


def argument_changes(where: str, arguments: Sequence[Argument], given: object) -> Iterator[Change]:
    """Yield the changes that give a kernel new arguments: all of them, or some by their positions.

    Raises
    ------
    TypeError, ValueError
        There are too few or too many, or one is of another size. The message begins with `where`.
    """
    count = len(arguments)
    if isinstance(given, Mapping):
        by_position = dict(given)
        wrong = [at for at in by_position if not isinstance(at, int) or not 0 <= at < count]
        if wrong or not by_position:
            raise ValueError(
                f"{where}: the positions of its arguments are 0 to {count - 1}, not {list(given)}."
            )
    elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
        if len(given) != count:
            raise ValueError(
                f"{where} takes {count} arguments, not {len(given)}; pass some of them by position."
            )
        by_position = dict(enumerate(given))
    else:
        raise TypeError(
            f"{where}: arguments must be a sequence of all, or a dict by position, not {given!r}."
        )
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
        return int(interface["data"][0] or 0).to_bytes(8, "little")
    if hasattr(value, "dtype") and hasattr(value, "tobytes"):
        if value.shape != ():  # type: ignore[attr-defined]
            raise TypeError(f"{where} is an array in host memory; pass an array in device memory.")
        return bytes(value.tobytes())
    if isinstance(value, float | complex | str) or not hasattr(value, "__int__"):
        raise TypeError(
            f"{where} can't be a {type(value).__name__!r} object; pass a ctypes or NumPy scalar, such as "
            "ctypes.c_float(1.5), an int, or an object with __cuda_array_interface__."
        )
    number = int(value)
    if not -1 << 8 * nbytes - 1 <= number < 1 << 8 * nbytes:
        raise ValueError(f"{where} has {nbytes} bytes, and {number} does not fit into them.")
    return (number % (1 << 8 * nbytes)).to_bytes(nbytes, "little")
