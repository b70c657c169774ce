"""Arrays that a run still uses: they are kept until it is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from .._core import capture_table
from .._core.events import Event
from .._core.streams import Stream
from .arrays import ArrayType

_MOST_CALLS = 16
"""How many calls may be under way before the next one waits for the first of them."""


class InFlight:
    """Keeps the arrays of runs.

    A framework gives the memory of an array that its owner has dropped to whoever asks next on the stream on
    which the array was made. That may be another stream than that of the run.
    """

    def __init__(self, array_types: Sequence[ArrayType]) -> None:
        self._told = [_teller(each) for each in array_types]
        self._calls: deque[tuple[Event, Sequence[Any]]] = deque()

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

    def _keep_until_done(self, arrays: Sequence[Any], stream: Stream) -> None:
        self._calls.append((stream.record(), arrays))
        if len(self._calls) > 1 and not capture_table.live:
            with stream._relaxed():
                while len(self._calls) > 1 and self._first_is_over():
                    self._calls.popleft()

    def _first_is_over(self) -> bool:
        event = self._calls[0][0]
        if len(self._calls) > _MOST_CALLS:
            event.synchronize()
            return True
        return event.query()


def _teller(array_type: ArrayType) -> Callable[[Any], Any] | None:
    """Return what tells the current stream of a package whose arrays can be told who uses them."""
    if array_type.kind != "tensor":
        return None
    current = getattr(getattr(array_type.package, "accelerator", None), "current_stream", None)
    return current if callable(current) else None
