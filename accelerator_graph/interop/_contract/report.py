"""A row of the report on frameworks."""

from __future__ import annotations

from typing import NamedTuple


class FrameworkReport(NamedTuple):
    """The facts about one framework."""

    name: str
    """The name that it is imported by."""
    origin: str
    """``"built-in"``, ``"registered"``, or the distribution and its version."""
    imported: bool = False
    """The program has imported the framework."""
    loaded: bool = False
    """Its class is imported and fulfils the contract."""
    usable: bool = False
    """It takes part in captures on `backend`, and none of its methods has failed."""
    reason: str = ""
    """Why it is not usable."""
    backend: str | None = None
    """The backend that it has initialised."""
