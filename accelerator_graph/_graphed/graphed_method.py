"""What a graphed method of an instance is to type checkers."""

from __future__ import annotations

from typing import ParamSpec, Protocol, TypeVar

from .options import CacheInfo, GraphInputs

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class GraphedMethod(Protocol[P, R_co]):
    """A graphed method of an instance: a bound method, which has the attributes of its `Graphed`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """As `Graphed.__call__`, without the instance."""
        ...

    def cache_info(self) -> CacheInfo:
        """As `Graphed.cache_info`, of this instance."""
        ...

    def cache_clear(self) -> None:
        """As `Graphed.cache_clear`, of this instance."""
        ...

    def explain(self) -> list[GraphInputs]:
        """As `Graphed.explain`, of this instance."""
        ...
