"""The marks that labels leave in a capture, and the ranges of nodes that they become in its graph."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from ..backends.base import Backend, GraphEdge
from .call_site import Site, outside

LabelledRange = tuple[str, int, int, str, int]
"""A name, the number of the first node and the one after the last, a file and a line."""


class Mark:
    """A label in a capture. `stop` is None until its block is left."""

    __slots__ = ("label", "name", "site", "start", "stop")

    def __init__(self, label: object, name: str, start: int, site: Site) -> None:
        self.label = label
        self.name = name
        self.start = start
        self.site = site
        self.stop: int | None = None


def open_names(marks: Sequence[Mark]) -> list[str]:
    """Return the names of the labels whose blocks have not been left."""
    return [mark.name for mark in marks if mark.stop is None]


def kept(marks: Sequence[Mark], count: int | None, backend: Backend) -> list[Mark]:
    """Return the labels of a graph that has so many nodes; those without a node are left out.

    Nothing, with a RuntimeWarning, if the backend has counted wrongly during the capture.
    """
    if count is None:
        return []
    if all(0 <= mark.start <= _stop(mark, count) <= count for mark in marks):
        return [mark for mark in marks if mark.start < _stop(mark, count)]
    _complain(backend, "counted the nodes of a capture wrongly")
    return []


def ranges(marks: Sequence[Mark], count: int) -> tuple[LabelledRange, ...]:
    """Return labels as plain data."""
    return tuple((mark.name, mark.start, _stop(mark, count), *mark.site) for mark in marks)


def if_in_order(
    labels: tuple[LabelledRange, ...], edges: Sequence[GraphEdge], backend: Backend
) -> tuple[LabelledRange, ...]:
    """Return the labels; nothing, with a RuntimeWarning, if nodes are not in the order of recording."""
    if labels and any(edge.source >= edge.target for edge in edges):
        _complain(backend, "lists nodes in another order than that of recording")
        return ()
    return labels


def _stop(mark: Mark, count: int) -> int:
    return count if mark.stop is None else mark.stop


def _complain(backend: Backend, fact: str) -> None:
    warnings.warn(
        f"backend {backend.name!r} {fact}, so the labels are left out; report that to its authors.",
        RuntimeWarning,
        stacklevel=outside()[0],
    )
