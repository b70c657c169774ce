"""Arrays that a run still uses: they are kept until it is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from .._arrays.arrays import ArrayType
from .._core import capture_table
from .._core.events import Event
from .._core.ownership import Callback
from .._core.streams import Stream
from .._interpreter.process import after_fork
from .call_order import lives_while_held

_MOST_RUNS = 16
"""How many runs may be under way before the next one waits for the first of them."""


class InFlight:
    """Keeps the arrays of runs.

    When the owner of an array drops it, the framework reuses its memory for the next array made on the same
    stream. The run may be on another stream, and still be using that memory.
    """

    def __init__(self, array_types: Sequence[ArrayType]) -> None:
        self._told = [_teller(each) for each in array_types]
        self._unmarked: list[tuple[list[Any], Stream]] = []
        """The arrays of runs whose ends are not marked yet: of the latest, and while its stream captures."""
        self._finalizer = Callback(_mark_ends, self._unmarked)

    def keep(self, arrays: Sequence[Any], stream: Stream) -> None:
        """Keep arrays, in the order of the types, until the work on the current stream so far is done."""
        rest = []
        current: dict[Any, Any] = {}
        for x, tell in zip(arrays, self._told, strict=True):
            if tell is None:
                rest.append(x)
            else:
                if tell not in current:
                    current[tell] = tell(x.device)
                x.record_stream(current[tell])
        if rest:
            self._keep_until_done(rest, stream)

    def user(self, device: Any) -> Any:
        """Return the current stream if each array can be told that its memory is used there, else None."""
        tellers = set(self._told)
        tell = tellers.pop() if len(tellers) == 1 else None
        return None if tell is None else tell(device)

    def _keep_until_done(self, arrays: list[Any], stream: Stream) -> None:
        if self._unmarked:
            before, where = self._unmarked[-1]
            if where is stream and len(before) == len(arrays) and all(map(is_, before, arrays)):
                return
            _mark_ends(self._unmarked)
        self._unmarked.append((arrays, stream))
        if not lives_while_held(stream):
            _mark_ends(self._unmarked)
        if _runs and not capture_table.live:
            with stream._relaxed():
                while _runs and _is_over(_runs[0][0]):
                    _runs.popleft()


_runs: deque[tuple[Event, list[Any]]] = deque()
"""The runs under way of all functions, each with an event behind it: arrays outlive the function."""


def _mark_ends(unmarked: list[tuple[list[Any], Stream]]) -> None:
    """Mark the ends of runs, but for those on streams that are being captured now."""
    for run in list(unmarked):
        arrays, stream = run
        if not stream._is_capturing():
            _runs.append((stream.record(), arrays))
            unmarked.remove(run)


def _is_over(event: Event) -> bool:
    if len(_runs) > _MOST_RUNS:
        event.synchronize()
        return True
    return event.query()


after_fork(_runs.clear)


def _teller(array_type: ArrayType) -> Callable[[Any], Any] | None:
    """Return what tells the current stream of a package whose arrays can be told who uses them."""
    if array_type.kind != "tensor":
        return None
    current = getattr(getattr(array_type.package, "accelerator", None), "current_stream", None)
    return current if callable(current) else None
