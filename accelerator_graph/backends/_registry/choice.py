"""Which backend is meant if nobody has named one: the automatic choice, and whose a stream is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any

from ..._interpreter import raises_again, text_of
from ..._interpreter.interruptions import after_fork
from ..._plugins import Catalogue
from ...errors import AcceleratorGraphError, BackendContractError, BackendError, BackendUnavailableError
from ..base import Backend
from . import Instances, reason_of

if TYPE_CHECKING:
    from ..base import AnyBackend

ACCELERATORS = ("cuda", "hip")
"""These built-in backends are tried first, in this order, before any third party is loaded."""


class Decision:
    """The result of automatic choice."""

    __slots__ = ("backend", "reasons")

    def __init__(self, backend: AnyBackend | None, reasons: dict[str, str]) -> None:
        self.backend = backend
        self.reasons = reasons
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

    Returns the name of each, best first, and True if it is used only where the user names it.
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


def claim(
    obj: object,
    chosen: str | None,
    catalogue: Catalogue[Backend],
    instances: Instances,
    reasons: dict[str, str],
) -> tuple[AnyBackend, Any] | None:
    """Ask the backends that may know the object's type, and return the first answer: see `Registry.claim`.

    Notes in `reasons` why plug-ins can't be loaded, since the object may have been theirs.
    """
    modules = [getattr(cls, "__module__", None) for cls in type(obj).__mro__]
    packages = {module.partition(".")[0] for module in modules if isinstance(module, str)} - {"builtins"}
    failures: list[Exception] = []
    for name in _claim_order(chosen, catalogue, reasons) if packages else ():
        try:
            if packages.isdisjoint(catalogue.load(name).stream_modules):
                continue
        except BackendError:
            continue
        try:
            backend = instances.get(name)
        except BackendError as error:
            failures.append(error)
            continue
        try:
            stream = backend.as_stream(obj)
        except (AcceleratorGraphError, ValueError) as error:  # a stream of this backend that can't be used
            failures.append(error)
        except (Exception, SystemExit) as error:
            if not raises_again(partial(backend.as_stream, obj)):
                raise
            failures.append(
                BackendContractError(f"backend {name!r}: its as_stream() raised {text_of(error)}.")
            )
            failures[-1].__cause__ = error
        else:
            if stream is not None:
                return backend, stream
    if failures:
        raise failures[0]
    return None


def _claim_order(chosen: str | None, catalogue: Catalogue[Backend], reasons: dict[str, str]) -> Iterator[str]:
    if chosen is not None:
        yield chosen
    yield from (name for name in catalogue.builtins if name != chosen)
    yield from (name for name, _ in third_parties(catalogue, reasons) if name != chosen)
