"""Automatic choice: which backend it is if nobody has named one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..._plugins.catalogue import Catalogue
from ...errors import BackendError, BackendUnavailableError
from ..base import Backend
from .instances import Instances, reason_of

ACCELERATORS = ("cuda", "hip")
"""The built-in ones that are tried, in this order, before any third party is loaded."""


class Decision(NamedTuple):
    """What automatic choice came to."""

    backend: Backend | None
    reasons: dict[str, str]
    """Why not, by name: of those that were tried."""


def third_parties(catalogue: Catalogue[Backend], reasons: dict[str, str]) -> list[tuple[str, bool]]:
    """Load all third parties; note why some can't be loaded.

    Returns
    -------
    list of tuple
        The name of each, best first, and True if it is used only where it is named.
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


def in_order(catalogue: Catalogue[Backend], reasons: dict[str, str]) -> Iterator[str]:
    """Yield the names to try. Third parties are loaded only when the built-in ones are used up."""
    for name in ACCELERATORS:
        if name in catalogue.builtins:
            yield name
    for name, only_named in third_parties(catalogue, reasons):
        if only_named:
            reasons[name] = f"it is used only if you name it, as in Stream(backend={name!r})"
        else:
            yield name


def decide(catalogue: Catalogue[Backend], instances: Instances) -> Decision:
    """Open the first accelerator that can be opened.

    Raises
    ------
    BackendUnavailableError
        The process lost its accelerator by a fork. Taking another one in its place would hide that.
    """
    reasons: dict[str, str] = {}
    for name in in_order(catalogue, reasons):
        try:
            return Decision(instances.get(name), reasons)
        except BackendUnavailableError as error:
            if instances.lost_by_fork(name):
                raise
            reasons[name] = reason_of(error, name)
        except BackendError as error:
            reasons[name] = reason_of(error, name)
    return Decision(None, reasons)


def any_usable(catalogue: Catalogue[Backend], instances: Instances) -> bool:
    """Return True if automatic choice has an accelerator that probes usable. Opens nothing."""
    for name in in_order(catalogue, {}):
        try:
            if instances.availability(name).usable:
                return True
        except BackendError:
            continue
    return False


def nothing_usable(reasons: dict[str, str]) -> BackendUnavailableError:
    """Make the error that has every reason."""
    all_of_them = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return BackendUnavailableError(
        f"no accelerator is available ({all_of_them}); to do without one, capture a stream of the cpu "
        "backend: `with accelerator_graph.Stream(backend='cpu'), graph:`.",
        reasons=reasons,
    )
