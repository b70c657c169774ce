"""Calls that are like the one before: seen, and where nothing has moved repeated, by the extension in C."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._core import capture_table
from .._core.extension import fast
from .arguments import Source
from .signature import Call, Reader, has_repeats
from .values import is_constant

if TYPE_CHECKING:
    from .._core._fast import Guard
    from .call_order import ReplayStream
    from .recorded_call import RecordedCall

_ARRAY, _CONSTANT, _INSTANCE = range(3)


def guard_for(
    call: Call, sources: Sequence[Source], instance: weakref.ref[Any] | None, reader: Reader, lock: Any
) -> Guard | None:
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
        made: Guard = fast.Guard(capture_table.live, lock, positional, named, tuple(parameters), modes)
    except Exception:  # a type that does not describe its arrays, or not these
        return None
    return made


def follow(guard: Guard, recorded: RecordedCall, where: ReplayStream, leaves: list[Any]) -> None:
    """Have a guard repeat the call that was replayed now, as long as no array moves."""
    assert fast is not None
    result = recorded.result.of_every_call()
    addresses = recorded.inputs.addresses()
    launch: Any = where.launch
    if result is None or addresses is None or where.seen is None or type(launch) is not fast.Launcher:
        return
    questions, *capturing = where.seen
    kept = leaves if recorded.inputs.bound is not None else None
    guard.follow((launch, questions, result), addresses, kept, *capturing)
