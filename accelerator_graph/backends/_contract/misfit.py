"""Why an executable could not get the work of another graph."""

from __future__ import annotations

from typing import NamedTuple


class Misfit(NamedTuple):
    """What did not fit when an executable was to get the work of another graph in place."""

    reason: str
    """A clause, such as "the kernels are different functions"."""
    node: int | None = None
    """The node in question, by its number in the new graph; None if it is not one node."""
