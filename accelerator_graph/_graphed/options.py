"""The options of `graphed`, and the records that a graphed function returns about itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal, NamedTuple, ParamSpec, Protocol, TypedDict, TypeVar

from .._core.pools import AnyPool, PoolId
from .._interpreter import boolean

Mode = Literal["copy", "node", "bind"]
"""How a graph gets the arrays of a call; see `graphed`."""


class GivenOptions(TypedDict, total=False):
    """The options of `graphed` that a program gives."""

    warmup: int
    key: Callable[..., Hashable] | None
    max_graphs: int
    outputs: Literal["copy", "static"]
    pool: AnyPool | None
    on_capture_error: Literal["raise", "eager", "break"]
    inputs: Mode
    verify: Literal["first"] | None
    check: bool


class Options(NamedTuple):
    """The options of `graphed`, as a function has them."""

    warmup: int
    key: Callable[..., Hashable] | None
    max_graphs: int
    outputs: str
    pool: PoolId | None
    on_capture_error: str
    inputs: Mode = "copy"
    verify: str | None = None
    check: bool = False

    def __deepcopy__(self, memo: object) -> Options:
        return self  # a copied pool id would not keep its pool

    def refuse_wrong_ones(self) -> None:
        """Raise TypeError or ValueError if an option can't be used."""
        if self.warmup < 0:
            raise ValueError(f"warmup must be at least 0, not {self.warmup}.")
        if self.max_graphs < 1:
            raise ValueError(f"max_graphs must be at least 1, not {self.max_graphs}.")
        if self.key is not None and not callable(self.key):
            raise TypeError(f"key must be a callable, not {self.key!r}.")
        if self.outputs not in ("copy", "static"):
            raise ValueError(f"outputs must be 'copy' or 'static', not {self.outputs!r}.")
        if self.inputs not in ("copy", "node", "bind"):
            raise ValueError(f"inputs must be 'copy', 'node' or 'bind', not {self.inputs!r}.")
        if self.on_capture_error not in ("raise", "eager", "break"):
            raise ValueError(
                f"on_capture_error must be 'raise', 'eager' or 'break', not {self.on_capture_error!r}."
            )
        if self.on_capture_error == "break" and (self.inputs != "copy" or self.verify is not None):
            raise ValueError(
                "on_capture_error='break' is for copied inputs and without verify=: calls are made while the "
                "graph runs, so it is neither bound to arrays nor run again; leave inputs= and verify= out."
            )
        if self.verify not in (None, "first"):
            raise ValueError(f"verify must be 'first' or None, not {self.verify!r}.")
        boolean(self.check, "check")


class CacheInfo(NamedTuple):
    """The statistics of a graphed function."""

    replays: int
    """Calls that replayed a graph, including each call that captured one."""
    eager: int
    """Calls that ran the function as it is: warm-up, signatures that can't be captured, and calls while
    another graphed function was captured. Calls in a capture, or in the middle of another call, are not
    counted."""
    captures: int
    """Graphs that were captured."""
    evictions: int
    """Graphs that were dropped to make room for others."""
    graphs: int
    """Graphs that are held now."""
    max_graphs: int
    """How many graphs may be held."""


class GraphInputs(NamedTuple):
    """How one graph of a graphed function gets the arrays of a call."""

    arguments: tuple[str, ...]
    """The names of the arrays in the arguments."""
    inputs: Mode
    """The option in force; see `graphed`."""
    why: str
    """Why the arrays, or some of them, are copied although another option was asked for; else empty."""


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
