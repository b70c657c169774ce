"""What backends of runtimes like CUDA's have in common; here calls of ctypes that no interrupt can lose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ctypes import ArgumentError
from itertools import chain
from typing import Any


def keep(answers: list[Any], function: Callable[..., Any], *args: Any, before: Iterable[Any] = ()) -> None:
    """Append `before` to a list, call a function, and append its answer.

    All of it happens in C: an interrupt can't come between the call and the keeping. If there is no memory
    for the arguments, the list is as it was.
    """
    count = len(answers)
    try:
        answers.extend(chain(before, map(function, *zip(args))))
    except ArgumentError as error:
        del answers[count:]
        raise no_memory(error) from error


def no_memory(error: ArgumentError) -> MemoryError:
    """Return the error for arguments that ctypes could not convert although their types are right."""
    return MemoryError(f"there was no memory for the arguments of a call ({error}).")
