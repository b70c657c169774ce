"""What one operation is: how it is prepared, what it does, and what has to be true afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .bench import Bench
from .calls import Call, Phase

States = Callable[[Call], str]


def nothing(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes
    ----------
    name : str
        What the test is called.
    run : callable
        Does it, with a bench and a function to be told the phase.
    prepare : callable
        Makes what it needs.
    options : dict
        How the bench's graph is made.
    ends : type, optional
        What it raises when no call fails.
    done, failed : str
        The graph's state when no call fails, and when one does.
    interrupted : tuple of str
        Other states in which an interrupt may leave the graph.
    ignores : set of str
        Functions whose failure it goes without.
    made : int
        How many objects a call of the backend makes, which an interrupt may lose before the library has them.
    graphs : int
        How many graphs stay if one is not destroyed: the software driver counts child graphs.
    consequence : int
        The code that the driver may answer after what should have been destroyed was not.
    check : callable, optional
        More that has to be true, whether a call failed or not.
    """

    name: str
    run: Callable[[Bench, Phase], object]
    prepare: Callable[[Bench], object] = nothing
    options: dict[str, Any] = field(default_factory=dict)
    ends: type[Exception] | None = None
    done: str = "empty"
    failed: str | States = "empty"
    interrupted: tuple[str, ...] = ()
    ignores: frozenset[str] = frozenset()
    check: Callable[[Bench, Exception | None], object] = nothing
    made: int = 1
    graphs: int = 1
    consequence: int = 0

    def state(self, failed: Call | None) -> str:
        """Return the state of the graph after this call failed, or after none did."""
        if failed is None:
            return self.done
        return self.failed if isinstance(self.failed, str) else self.failed(failed)
