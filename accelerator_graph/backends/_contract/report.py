"""A row of the report on backends."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


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
