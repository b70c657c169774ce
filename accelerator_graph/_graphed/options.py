"""The options of `graphed`."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from .._core.pools import PoolId


class Options(NamedTuple):
    """As in `graphed`."""

    warmup: int
    key: Callable[..., Hashable] | None
    max_graphs: int
    outputs: str
    pool: PoolId | None
    on_capture_error: str

    def __deepcopy__(self, memo: object) -> Options:
        return self  # a copied pool id would not keep its pool

    def check(self) -> None:
        """Raise TypeError or ValueError if an option can't be used."""
        if self.warmup < 0:
            raise ValueError(f"warmup must be at least 0, not {self.warmup}.")
        if self.max_graphs < 1:
            raise ValueError(f"max_graphs must be at least 1, not {self.max_graphs}.")
        if self.key is not None and not callable(self.key):
            raise TypeError(f"key must be a callable, not {self.key!r}.")
        if self.outputs not in ("copy", "static"):
            raise ValueError(f"outputs must be 'copy' or 'static', not {self.outputs!r}.")
        if self.on_capture_error not in ("raise", "eager"):
            raise ValueError(f"on_capture_error must be 'raise' or 'eager', not {self.on_capture_error!r}.")
