"""The report on all backends, in any state."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ..._plugins.catalogue import Catalogue
from ...errors import BackendError
from ..base import Backend
from .instances import Instances, reason_of


class BackendReport(NamedTuple):
    """The facts about one backend."""

    name: str
    origin: str
    """``"built-in"``, ``"registered"``, or the distribution and its version."""
    loaded: bool = False
    """Its class is imported and fulfils the contract."""
    opened: bool = False
    """Its one instance is opened in this process."""
    usable: bool = False
    """Its probe says usable, and opening it has not failed."""
    reason: str = ""
    """Why it is not usable."""
    versions: Mapping[str, str] = MappingProxyType({})
    """Versions by component, from its probe."""
    devices: int | None = None
    """The number of devices, from its probe; None if the probe can't tell."""
    only_named: bool = False
    """It is used only if you name it: its `priority` is None."""
    warning: str = ""
    """A known defect of the installed software, with the way out, from its probe."""


def report(catalogue: Catalogue[Backend], instances: Instances) -> list[BackendReport]:
    """Load every backend and return a row for each, then a row for each entry point that is ignored."""
    rows = [_row(name, catalogue, instances) for name in catalogue.names()]
    rows += [BackendReport(name, origin, reason=reason) for name, origin, reason in catalogue.ignored()]
    return rows


def _row(name: str, catalogue: Catalogue[Backend], instances: Instances) -> BackendReport:
    origin = catalogue.origin(name)
    try:
        found = instances.availability(name)
    except BackendError as error:
        return BackendReport(name, origin, reason=reason_of(error, name))
    failure = instances.failure(name)
    return BackendReport(
        name,
        origin,
        loaded=True,
        opened=instances.opened(name),
        usable=found.usable and not failure,
        reason=found.reason or failure,
        versions=found.versions,
        devices=found.devices,
        only_named=catalogue.load(name).priority is None,
        warning=found.warning,
    )
