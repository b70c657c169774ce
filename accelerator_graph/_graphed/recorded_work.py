"""What a capture has recorded, and what its replays can change, where all work goes through our streams.

There, ordinary Python and NumPy in a graphed function run at once, and a replay does not repeat them: only
the work that was enqueued can change a result.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .._arrays.arrays import ArrayType
from .._arrays.placement import extent
from ..errors import CaptureError

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
