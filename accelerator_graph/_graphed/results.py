"""The result of a captured call: the arrays in it, and what every call returns in their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .arrays import Family, place_of
from .containers import rebuild
from .recorded_work import RecordedWork
from .signature import Leaves, Reader


class Argument:
    """The place of an argument in a result."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class Output(Argument):
    """The place of an array of the function's own in a result."""


class Result:
    """What a function returned in its capture.

    Parameters
    ----------
    value : object
        The result.
    arguments : dict
        The static arrays' places among the arguments, by their ids.
    reader : Reader
        Knows the types of arrays.
    host, copies : bool
        Whether the graph works on memory of the host, and whether every call returns new arrays.
    work : RecordedWork, optional
        What was recorded, if nothing else can change a result.

    Raises
    ------
    CaptureError
        There is something in it that a replay would return unchanged.
    TypeError
        There is an array of which no call can return a new one.
    """

    def __init__(
        self,
        value: Any,
        arguments: dict[int, int],
        reader: Reader,
        *,
        host: bool,
        copies: bool,
        work: RecordedWork | None,
    ) -> None:
        self._arguments = arguments
        self._reader = reader
        self._host = host
        self._copies = copies
        self._work = work
        self._places: dict[int, int] = {}
        self.returned: set[int] = set()
        """The arguments in it."""
        self.outputs: list[tuple[Any, Family]] = []
        """The function's own arrays in it."""
        self.template = rebuild(value, self._adopt)
        """The result with places in it."""

    def _adopt(self, value: Any) -> Any:
        index = self._arguments.get(id(value))
        if index is not None:
            self.returned.add(index)
            return Argument(index)
        family = self._reader.family(value)
        if self._work is not None:
            self._work.check_result(value, is_array=family is not None)
        if family is None:
            return value
        if place_of(value)[0] != self._host:
            if not self._copies:
                return value
            raise TypeError(
                f"the graphed function returned an array of type {type(value).__name__!r} that is not in the "
                "memory that its graph works on, so no call can return a new one; return it there, or use "
                "outputs='static'."
            )
        if family.kind == "place" and self._copies:
            raise TypeError(
                f"the graphed function returned an array of type {type(value).__name__!r}, which can't be "
                "copied; use outputs='static'."
            )
        if id(value) not in self._places:
            self._places[id(value)] = len(self.outputs)
            tracked = family.kind == "tensor" and value.requires_grad
            self.outputs.append((value.detach() if tracked else value, family))
        return Output(self._places[id(value)])


def filler(leaves: Leaves, arrays: list[Any]) -> Callable[[Any], Any]:
    """Return what puts the caller's and the function's arrays in their places in a template."""

    def fill(value: Any) -> Any:
        if type(value) is Output:
            return arrays[value.index]
        return leaves[value.index] if type(value) is Argument else value

    return fill
