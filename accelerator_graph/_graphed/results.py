"""The result of a captured call, what every replay returns in its place, and what replays can change of it.

Where all work goes through our streams, ordinary Python and NumPy in a graphed function run at once, and a
replay does not repeat them: only the work that was enqueued can change a result.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .._arrays.arrays import ArrayType, Assign, detaching
from .._arrays.containers import only_tuples, rebuild
from .._arrays.placement import extent, place_of
from .._arrays.signatures import Leaves, Reader
from ..errors import CaptureError


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
        *,
        on_host: bool,
        copies: bool,
        work: RecordedWork | None,
    ) -> None:
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
        self.fills: list[tuple[Any, Assign]] = []
        """What `new_arrays` have to be filled with, and how; empty if they are made with their elements."""
        if copies and on_host:
            self.fills = [(array, _assign_on_host(array_type)) for array, array_type in self.outputs]
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

    def for_call(self, leaves: Leaves, arrays: Sequence[Any] | None = None) -> Any:
        """Return the result of a replay, for the call with these arrays; by default in `new_arrays`."""
        if arrays is None:
            arrays = self.new_arrays()
        template = self._template
        if type(template) is Output:
            return arrays[template.index]
        if self._constant is not None:
            return self._constant
        return rebuild(template, _filler(leaves, arrays))

    def in_place(self, leaves: Leaves) -> Any:
        """Return the result with the graph's own arrays in it, and the arrays of a call."""
        return rebuild(self._template, _filler(leaves, self._arrays))

    def new_arrays(self) -> Sequence[Any]:
        """Return the arrays for the result of a call, which are the function's own or others."""
        if not self._copies:
            return self._arrays
        new = []
        for array, array_type in self.outputs:
            new.append(array_type.empty_like(array) if self._on_host else array_type.copy(array))
        return new


def _assign_on_host(array_type: ArrayType) -> Assign:
    return detaching(array_type.assign) if array_type.kind == "tensor" else array_type.assign


def _filler(leaves: Leaves, arrays: Sequence[Any]) -> Callable[[Any], Any]:
    """Return what puts the caller's and the function's arrays in their places in a template."""

    def fill(value: Any) -> Any:
        if type(value) is Output:
            return arrays[value.index]
        return leaves[value.index] if type(value) is Argument else value

    return fill


# ---- recorded work ---------------------------------------------------------------------------------

_MOST = 100_000
"""How many objects are looked at before every array counts as reached."""

_WAY_OUT = (
    "ordinary Python and NumPy run at once and are not replayed, so let the current stream do all the work, "
    "for example `accelerator_graph.current_stream().launch(numpy.add, x, y, out)`"
)


def nothing_recorded() -> CaptureError:
    """Make the error for a capture in which nothing was enqueued."""
    return CaptureError(f"the graphed function recorded nothing: {_WAY_OUT}.")


class RecordedWork:
    """The objects that recorded work can reach, and the memory of the arrays among them.

    `work` holds the arguments of `Stream.launch`, `copy` and `fill`, and the static arrays, which every run
    fills. `passed` are the ids of the values in the arguments of the function.
    """

    def __init__(self, work: Sequence[object], passed: Iterable[int]) -> None:
        self._passed = frozenset(passed)
        self._reached = {id(each): each for each in reachable(work)}
        self._bases = {id(base) for each in self._reached.values() for base in _bases(each)}
        found = map(extent, self._reached.values())
        self._extents = [each for each in found if each is not None]

    def check_result(self, value: Any, *, is_array: bool) -> None:
        """Raise `CaptureError` if a replay would return a part of the function's result unchanged.

        That is an array that no recorded work was given, or a NumPy scalar that was not passed in.
        """
        if is_array:
            if not self._reaches(value):
                raise CaptureError(
                    f"the graphed function returned an array of type {type(value).__name__!r} that no "
                    f"recorded work was given: {_WAY_OUT}.",
                    reason="illegal_call",
                )
        elif hasattr(type(value), "__array_interface__") and id(value) not in self._passed:
            raise CaptureError(
                f"the graphed function returned a scalar of type {type(value).__name__!r}, which no replay "
                f"computes again: {_WAY_OUT}, and return the array; return a constant as a Python number.",
                reason="illegal_call",
            )

    def _reaches(self, x: Any) -> bool:
        memory = extent(x)
        known = self._bases if memory is None else self._reached
        if len(self._reached) >= _MOST or any(id(each) in known for each in _bases(x)):
            return True
        if memory is None:
            return False
        low, high = memory
        return low == high or any(low < end and start < high for start, end in self._extents)


def contents(x: Any, array_type: ArrayType) -> object:
    """Return an object that differs once a host array has been written; None where that can't be known."""
    if array_type.kind == "tensor":
        return x._version
    if array_type.kind == "buffer":
        return bytes(memoryview(x))
    return x.tobytes() if array_type.kind == "array" and hasattr(x, "tobytes") else None


def check_unwritten(before: Sequence[object], after: Sequence[object], names: Sequence[str]) -> None:
    """Raise `CaptureError` if the `contents` of an argument changed in a capture: no recorded work ran."""
    for old, new, name in zip(before, after, names, strict=True):
        if new != old:
            raise CaptureError(
                f"the graphed function wrote argument {name} itself: {_WAY_OUT}.", reason="illegal_call"
            )


def _bases(x: Any) -> Iterator[object]:
    """Yield an array, the array that it is a view of, and so on."""
    while x is not None:
        yield x
        if isinstance(x, memoryview):
            x = x.obj
        else:
            x = getattr(x, "base", None) if hasattr(type(x), "__array_interface__") else None


def reachable(roots: Sequence[object]) -> Iterator[object]:
    """Yield all objects that can be reached: for recorded work, its arguments, and what its functions use."""
    found: dict[int, object] = {}
    rest: list[Any] = list(roots)
    while rest and len(found) < _MOST:
        x = rest.pop()
        if id(x) in found or isinstance(x, type | ModuleType):
            continue
        found[id(x)] = x
        yield x
        if isinstance(x, FunctionType):
            rest += [x.__closure__, x.__defaults__, x.__kwdefaults__, x.__dict__]
            rest += [x.__globals__[name] for name in _names(x.__code__) if name in x.__globals__]
        else:
            rest += gc.get_referents(x)
            if hasattr(type(x), "grad_fn") and x.is_leaf:
                rest.append(x.grad)  # which torch holds outside of Python


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function, and the functions in it, may look up in its module."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
