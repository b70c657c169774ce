"""The result of a captured call, and what every replay returns in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._arrays.arrays import ArrayType, Copy
from .._arrays.containers import only_tuples, rebuild
from .._arrays.placement import place_of
from .._arrays.signatures import Leaves, Reader
from .._core.streams import Stream
from .recorded_work import RecordedWork


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
        self.objects: list[object] = []
        """The parts of the result that are the same objects after every call."""
        outputs: dict[int, Output] = {}

        def place(part: Any) -> Any:
            """Return what stands for a part of the result in the template."""
            index = arguments.get(id(part))
            if index is not None:
                self.returned.add(index)
                return Argument(index)
            array_type = reader.array_type(part)
            if work is not None:
                work.check_result(part, is_array=array_type is not None)
            if array_type is None or not self._is_output(part, array_type):
                self.objects.append(part)
                return part
            if id(part) not in outputs:
                outputs[id(part)] = Output(len(self.outputs))
                tracked = array_type.kind == "tensor" and part.requires_grad
                self.outputs.append((part.detach() if tracked else part, array_type))
            return outputs[id(part)]

        self._template = rebuild(value, place)
        self._arrays = [array for array, _ in self.outputs]
        self._constant: Any = None
        """The result of every call, if that is always the same object."""
        if not copies and not self.returned and only_tuples(value):
            self._constant = rebuild(self._template, _filler([], self._arrays))

    def _is_output(self, array: Any, array_type: ArrayType) -> bool:
        """Return True if the graph writes an array; TypeError if no call can return a copy of the array."""
        in_memory = place_of(array)[0] == self._on_host
        if not self._copies:
            return in_memory
        subject = f"the graphed function returned an array of type {type(array).__name__!r}"
        if not in_memory:
            raise TypeError(
                f"{subject} that is not in the memory that its graph works on, so no call can return a new "
                "one; return it there, or use outputs='static'."
            )
        if array_type.kind == "place":
            raise TypeError(f"{subject}, which can't be copied; use outputs='static'.")
        return True

    def of_every_call(self) -> tuple[Any] | None:
        """Return the result of every call, in a tuple, if that is always the same object."""
        if self._copies:
            return None
        if type(self._template) is Output:
            return (self._arrays[self._template.index],)
        return None if self._constant is None else (self._constant,)

    def for_call(self, leaves: Leaves, stream: Stream) -> Any:
        """Return the result of a replay on a stream, for the call with these arrays."""
        arrays = self._new_arrays(stream) if self._copies else self._arrays
        template = self._template
        if type(template) is Output:
            return arrays[template.index]
        if self._constant is not None:
            return self._constant
        return rebuild(template, _filler(leaves, arrays))

    def in_place(self, leaves: Leaves) -> Any:
        """Return the result with the graph's own arrays in it, and the arrays of a call."""
        return rebuild(self._template, _filler(leaves, self._arrays))

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
