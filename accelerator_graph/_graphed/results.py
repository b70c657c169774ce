"""The result of a captured call, and what every replay returns in its place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .array_placement import place_of
from .arrays import ArrayType, Copy
from .containers import only_tuples, rebuild
from .recorded_work import RecordedWork
from .signature import Leaves, Reader

if TYPE_CHECKING:
    from .._core.streams import Stream


class Argument:
    """The place of an argument in a result."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class Output(Argument):
    """The place of one of the function's own arrays in a result."""


class Result:
    """The result of a capture with places in it, from which the results of replays are made.

    `arguments` has the index of every static array among the arguments, by its id. `work` is what was
    recorded, if nothing else can change a result.
    """

    def __init__(
        self,
        value: Any,
        arguments: dict[int, int],
        reader: Reader,
        copy: Copy,
        *,
        on_host: bool,
        copies: bool,
        work: RecordedWork | None,
    ) -> None:
        self._copy = copy
        self._on_host = on_host
        self._copies = copies
        self.returned: set[int] = set()
        """The indices of the arguments that are in the result."""
        self.outputs: list[tuple[Any, ArrayType]] = []
        """The function's own arrays in the result."""
        self._template = rebuild(value, partial(self._place, arguments, reader, work, {}))
        self._arrays = [array for array, _ in self.outputs]
        self._constant: Any = None
        """The result of every call, if that is always the same object."""
        if not copies and not self.returned and only_tuples(value):
            self._constant = rebuild(self._template, _filler([], self._arrays))

    def _place(
        self,
        arguments: dict[int, int],
        reader: Reader,
        work: RecordedWork | None,
        outputs: dict[int, Output],
        value: Any,
    ) -> Any:
        """Return what stands for a part of the result in the template.

        Raises CaptureError if a replay would return this part unchanged, and TypeError if it is an array that
        no call can return a copy of.
        """
        index = arguments.get(id(value))
        if index is not None:
            self.returned.add(index)
            return Argument(index)
        array_type = reader.array_type(value)
        if work is not None:
            work.check_result(value, is_array=array_type is not None)
        if array_type is None:
            return value
        if place_of(value)[0] != self._on_host:
            if not self._copies:
                return value
            raise TypeError(
                f"the graphed function returned an array of type {type(value).__name__!r} that is not in the "
                "memory that its graph works on, so no call can return a new one; return it there, or use "
                "outputs='static'."
            )
        if array_type.kind == "place" and self._copies:
            raise TypeError(
                f"the graphed function returned an array of type {type(value).__name__!r}, which can't be "
                "copied; use outputs='static'."
            )
        if id(value) not in outputs:
            outputs[id(value)] = Output(len(self.outputs))
            tracked = array_type.kind == "tensor" and value.requires_grad
            self.outputs.append((value.detach() if tracked else value, array_type))
        return outputs[id(value)]

    def for_call(self, leaves: Leaves, stream: Stream) -> Any:
        """Return the result of a replay on a stream, for the call with these arrays."""
        arrays = self._new_arrays(stream) if self._copies else self._arrays
        template = self._template
        if type(template) is Output:
            return arrays[template.index]
        if self._constant is not None:
            return self._constant
        return rebuild(template, _filler(leaves, arrays))

    def _new_arrays(self, stream: Stream) -> list[Any]:
        if not self._on_host:
            return [array_type.copy(array) for array, array_type in self.outputs]
        new = [array_type.empty_like(array) for array, array_type in self.outputs]
        for target, (source, array_type) in zip(new, self.outputs, strict=True):
            self._copy(stream, array_type.assign, target, source)
        return new


def _filler(leaves: Leaves, arrays: list[Any]) -> Callable[[Any], Any]:
    """Return what puts the caller's and the function's arrays in their places in a template."""

    def fill(value: Any) -> Any:
        if type(value) is Output:
            return arrays[value.index]
        return leaves[value.index] if type(value) is Argument else value

    return fill
