"""What a graphed function is told, counts, and remembers of calls without a graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import NamedTuple

from .._core.pools import PoolId

_MOST = 256
_MANY = 64


class CacheInfo(NamedTuple):
    """What a graphed function has done so far, and holds."""

    replays: int
    """Calls that replayed a graph, as the one that captured it did too."""
    eager: int
    """Calls that ran the function as it is: warm-up, signatures that can't be captured, and calls while
    another graphed function was captured. Those in a capture, or in the middle of another call, are not
    counted."""
    captures: int
    """Graphs that were captured."""
    dropped: int
    """Graphs that were dropped to make room."""
    graphs: int
    """Graphs that there are now."""
    max_graphs: int
    """How many there may be."""


class Options(NamedTuple):
    """As in `graphed`."""

    warmup: int
    key: Callable[..., Hashable] | None
    max_graphs: int
    outputs: str
    pool: PoolId | None
    on_capture_error: str

    def __deepcopy__(self, memo: object) -> Options:
        return self


class Seen:
    """A signature without a graph."""

    __slots__ = ("calls", "eager", "read")

    def __init__(self, read: Hashable) -> None:
        self.calls = 0
        self.eager = False
        self.read = read


class SeenTable:
    """The signatures without a graph, the latest of them.

    Parameters
    ----------
    max_graphs : int
        How many graphs there may be.
    """

    def __init__(self, max_graphs: int) -> None:
        self._most = max(_MOST, 2 * max_graphs)
        self._many = max(_MANY, 2 * max_graphs)
        self._seen: dict[Hashable, Seen] = {}

    def of(self, key: Hashable, read: Hashable, who: object) -> Seen:
        """Find what is known of a signature, and warn of `who` once there are too many of them."""
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= self._most:
                del self._seen[next(iter(self._seen))]
            seen = self._seen[key] = Seen(read)
            if len(self._seen) > self._many:
                self._many = self._most  # never again
                warnings.warn(
                    f"{who!r} was called with {len(self._seen)} signatures too seldom to be captured; an "
                    "argument that changes at every call, as a counter does, has to be an array, or be left "
                    "out by `key`.",
                    RuntimeWarning,
                    stacklevel=7,
                )
        return seen

    def forget(self, key: Hashable) -> None:
        """Forget a signature, which has a graph now."""
        self._seen.pop(key, None)
