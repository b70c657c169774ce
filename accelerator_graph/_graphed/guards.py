"""Calls that are like the one before: seen, and repeated, by the extension in C."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._arrays.signatures import Call, Reader, has_repeats
from .._arrays.values import is_constant
from .._core import capture_table
from .._core.extension import fast
from .arguments import Source

if TYPE_CHECKING:
    from .._core._fast import Guard
    from .call_order import ReplayStream
    from .recorded_call import RecordedCall
    from .results import Result
    from .static_inputs import StaticInputs

_ARRAY, _CONSTANT, _INSTANCE = range(3)


def guarded(
    recorded: RecordedCall,
    call: Call,
    sources: Sequence[Source],
    instance: weakref.ref[Any] | None,
    reader: Reader,
    lock: Any,
) -> Guarded | None:
    """Return what sees that calls are like this one; None if that takes more than C can read.

    C reads arrays whose types describe them by DLPack's functions in C, and values that are the same objects
    again.
    """
    leaves = call.leaves
    modes = () if reader.modes is None else reader.modes.answers()
    if fast is None or not leaves or modes is None or has_repeats(leaves):
        return None
    skipped = len(call.instance)
    parameters: list[tuple[object, ...]] = [(0, _INSTANCE, instance)] if skipped else []
    for source, value in zip(sources, call.values, strict=True):
        array_type = reader.array_type(value)
        where = source + skipped if isinstance(source, int) else source
        if array_type is not None and where is not None and array_type.kind == "tensor":
            parameters.append((where, _ARRAY, value, array_type.altered))
        elif array_type is not None or not is_constant(value):
            return None
        elif where is not None:
            parameters.append((where, _CONSTANT, value))
    named = sum(isinstance(source, str) for source in sources)
    positional = skipped + sum(isinstance(source, int) for source in sources)
    try:
        guard = fast.Guard(capture_table.live, lock, positional, named, tuple(parameters), modes)
    except Exception:  # a type that does not describe its arrays, or not these
        return None
    return Guarded(guard, recorded.inputs, recorded.result)


class Guarded:
    """A graph whose calls are seen to be alike, and repeated by C, which changes nodes where arrays move."""

    def __init__(self, guard: Guard, inputs: StaticInputs, result: Result) -> None:
        self.same = guard
        """Takes the arguments of a call. See `Guard`."""
        self._inputs = inputs
        self._result = result
        self.where: ReplayStream | None = None
        """The stream of the latest call."""
        self._place: Any = None
        self._how: tuple[object, ...] = ()
        """How C repeats calls there; empty if it can't."""

    def follow(self, leaves: list[Any], where: ReplayStream) -> None:
        """Note that this is the latest call."""
        if where.questions is None:
            return
        if where is not self.where:
            self._to(where)
        inputs = self._inputs
        addresses = inputs.addresses() if self._how else None
        self.same.follow(self._place, self._how, addresses, leaves if inputs.bound is not None else None)

    def _to(self, where: ReplayStream) -> None:
        self._place = where, *(where.questions or ())
        self._how = ()
        launch: object = where.launch
        if fast is not None and type(launch) is fast.Launcher:
            result, finish = self._result.of_every_call(), None
            if result is None:
                finish = self._result.for_call
            self._how = launch, result, finish, *self._inputs.patches()
        self.where = where
