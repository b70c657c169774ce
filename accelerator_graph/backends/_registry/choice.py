"""Automatic choice: the backend that is used if nobody has named one."""

from __future__ import annotations

from collections.abc import Iterator
from threading import RLock
from typing import NamedTuple

from ..._interpreter.process import after_fork
from ..._plugins.catalogue import Catalogue
from ...errors import BackendError, BackendUnavailableError
from ..base import Backend
from .instances import Instances, reason_of

ACCELERATORS = ("cuda", "hip")
"""These built-in backends are tried first, in this order, before any third party is loaded."""


class Decision(NamedTuple):
    """The result of automatic choice."""

    backend: Backend | None
    reasons: dict[str, str]
    """Why each backend that was tried can't be used, by name."""


class AutomaticChoice:
    """Makes the choice once, and keeps it until the tables of backends change."""

    def __init__(self, catalogue: Catalogue[Backend], instances: Instances) -> None:
        self._catalogue = catalogue
        self._instances = instances
        self._lock = RLock()
        self._decision: Decision | None = None
        self._changes = 0
        after_fork(self._after_fork)

    def decide(self) -> Decision:
        """Return the choice, made now if it has not been made."""
        decision = self._decision
        if decision is None:
            changes = self._changes
            decision = self._first_that_opens()
            with self._lock:
                if self._changes == changes:  # else the tables have changed meanwhile
                    decision = self._decision = self._decision or decision
        return decision

    def any_usable(self) -> bool:
        """Return True if there is an accelerator to choose whose probe says usable. Opens nothing."""
        for name in self._in_order({}):
            try:
                if self._instances.availability(name).usable:
                    return True
            except BackendError:
                continue
        return False

    def start_over(self) -> None:
        """Forget the choice."""
        with self._lock:
            self._changes += 1
            self._decision = None

    def _first_that_opens(self) -> Decision:
        reasons: dict[str, str] = {}
        for name in self._in_order(reasons):
            try:
                return Decision(self._instances.get(name), reasons)
            except BackendError as error:
                if isinstance(error, BackendUnavailableError) and self._instances.lost_by_fork(name):
                    raise  # another accelerator in its place would hide that
                reasons[name] = reason_of(error, name)
        return Decision(None, reasons)

    def _in_order(self, reasons: dict[str, str]) -> Iterator[str]:
        """Yield the names to try. Third parties are loaded only after all built-in ones have been tried."""
        yield from (name for name in ACCELERATORS if name in self._catalogue.builtins)
        for name, only_named in third_parties(self._catalogue, reasons):
            if only_named:
                reasons[name] = f"it is used only if you name it, as in Stream(backend={name!r})"
            else:
                yield name

    def _after_fork(self) -> None:
        self._lock = RLock()
        self.start_over()


def third_parties(catalogue: Catalogue[Backend], reasons: dict[str, str]) -> list[tuple[str, bool]]:
    """Load all third parties, and note in `reasons` why some can't be loaded.

    Returns
    -------
    list of tuple
        The name of each, best first, and True if it is used only where the user names it.
    """
    loaded = []
    for name in catalogue.third_parties():
        try:
            priority = catalogue.load(name).priority
        except BackendError as error:
            reasons[name] = reason_of(error, name)
        else:
            loaded.append((priority is None, -(priority or 0), name))
    return [(name, only_named) for only_named, _, name in sorted(loaded)]


def nothing_usable(reasons: dict[str, str]) -> BackendUnavailableError:
    """Make the error that gives every reason."""
    listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return BackendUnavailableError(
        f"no accelerator is available ({listed}); to work without one, capture a stream of the cpu "
        "backend: `with accelerator_graph.Stream(backend='cpu'), graph:`.",
        reasons=reasons,
    )
