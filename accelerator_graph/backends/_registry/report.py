"""What is known of every backend, whatever state it is in."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ..._plugins.catalogue import Catalogue
from ...errors import BackendError
from ..base import Backend
from .instances import Instances, reason_of


class BackendReport(NamedTuple):
    """What is known of one backend."""

    name: str
    origin: str
    """``"built-in"``, ``"registered"``, or the distribution and its version."""
    loaded: bool = False
    """Its class is imported and fulfils the contract."""
    opened: bool = False
    """Its one instance is opened in this process."""
    usable: bool = False
    """It probes usable, and opening it has not failed."""
    reason: str = ""
    """Why it is not usable."""
    versions: Mapping[str, str] = MappingProxyType({})
    """Versions by component, as its probe says."""
    devices: int | None = None
    """How many devices there are, as its probe says; None if it can't tell."""
    only_named: bool = False
    """It is used only if you name it: its `priority` is None."""
    warning: str = ""
    """A known defect of what is installed, with the way out, as its probe says."""


def report(catalogue: Catalogue[Backend], instances: Instances) -> list[BackendReport]:
    """Load every backend and say what became of it; then list the entry points that take no part."""
    rows = [_row(name, catalogue, instances) for name in catalogue.names()]
    rows += [BackendReport(name, origin, reason=reason) for name, origin, reason in catalogue.ignored()]
    return rows


def _row(name: str, catalogue: Catalogue[Backend], instances: Instances) -> BackendReport:
    origin = " and ".join(candidate.origin for candidate in catalogue.find(name))
    try:
        found = instances.availability(name)
    except BackendError as error:
        return BackendReport(name, origin, reason=reason_of(error, name))
    reason = found.reason or instances.failure(name)
    usable = found.usable and not instances.failure(name)
    opened, only_named = instances.opened(name), catalogue.load(name).priority is None
    facts = found.versions, found.devices, only_named, found.warning
    return BackendReport(name, origin, True, opened, usable, reason, *facts)
