"""Labels: names for parts of what a capture records."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import TracebackType

from ..backends.base import Backend, GraphEdge
from ..errors import EmptyLabelWarning
from . import capture_table
from .call_site import Site, caller, outside
from .empty import warn_of_nothing, why_empty

LabelledRange = tuple[str, int, int, str, int]
"""A name, the number of the first node and the one after the last, a file and a line."""


class label:
    """Name the nodes that a capture records inside a ``with`` block, for `Graph.describe`.

    The label belongs to the capture that this thread has begun last. Everything that is recorded into that
    capture meanwhile is labelled, on every stream that takes part. Labels can be nested, and names can be
    used again. A block that is left on another thread, or not at all, ends with the capture.

    Outside a capture, on a thread that has begun none, and on a backend that can't count the nodes during a
    capture, a label does nothing.

    Parameters
    ----------
    name : str
        The name.

    Raises
    ------
    TypeError
        The name is not a string.

    Warns
    -----
    EmptyLabelWarning
        The capture has recorded nothing inside the block.

    Examples
    --------
    ::

        with ag.Graph(keep_graph=True) as graph:
            with ag.label("attention"):
                attention(x)
    """

    __slots__ = ("_name",)

    may_be_empty = False
    """No warning is issued if nothing is recorded."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"label: the name must be a str, not {name!r}.")
        self._name = name

    def __enter__(self) -> None:
        if capture_table.live:
            capture = next(reversed(capture_table.thread.unfinished.values()), None)
            if capture is not None and capture.progress is not None:
                capture.progress.enter(capture.backend, capture.native, [*_open(capture.labels), self._name])
            event = None if capture is None or capture.events is None else capture.events.record(capture)
            start = None if capture is None else capture.recorded()
            if capture is not None and start is not None:
                capture.labels.append(Mark(self, self._name, start, self._site(), event))

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not capture_table.live:
            return
        for capture in reversed(capture_table.thread.unfinished.values()):
            for mark in reversed(capture.labels):
                if mark.label is self and mark.stop is None:
                    mark.stop = capture.recorded()
                    if mark.stop == mark.start and kind is None and not self.may_be_empty:
                        fact = f"nothing was recorded inside the label {self._name!r}"
                        warn_of_nothing(f"{fact}: {why_empty(capture.backend)}.", EmptyLabelWarning)
                    if capture.events is not None:
                        mark.end = capture.events.record(capture)
                    if capture.progress is not None:
                        capture.progress.enter(capture.backend, capture.native, _open(capture.labels))
                    return

    def _site(self) -> Site:
        return caller()


class Mark:
    """A label in a capture. `stop` is None until its block is left.

    `begin` and `end` are its events, if the capture records any.
    """

    __slots__ = ("begin", "end", "label", "name", "site", "start", "stop")

    def __init__(self, label: label, name: str, start: int, site: Site, begin: int | None) -> None:
        self.label = label
        self.name = name
        self.start = start
        self.site = site
        self.begin = begin
        self.stop: int | None = None
        self.end: int | None = None

    @property
    def range(self) -> LabelledRange:
        """The label as plain data, once `stop` is known."""
        assert self.stop is not None
        return self.name, self.start, self.stop, *self.site


def _open(marks: Sequence[Mark]) -> list[str]:
    """Return the names of the labels whose blocks have not been left."""
    return [mark.name for mark in marks if mark.stop is None]


def kept(marks: Sequence[Mark], count: int | None, backend: Backend) -> list[Mark]:
    """Return the labels of a graph that has so many nodes; those without a node are left out.

    Nothing, with a RuntimeWarning, if the backend has counted wrongly during the capture.
    """
    if count is None:
        return []
    for mark in marks:
        mark.stop = count if mark.stop is None else mark.stop
    spans = [(mark.start, count if mark.stop is None else mark.stop) for mark in marks]
    if all(0 <= start <= stop <= count for start, stop in spans):
        return [mark for mark in marks if mark.stop != mark.start]
    _complain(backend, "counted the nodes of a capture wrongly")
    return []


def if_in_order(
    labels: tuple[LabelledRange, ...], edges: Sequence[GraphEdge], backend: Backend
) -> tuple[LabelledRange, ...]:
    """Return the labels; nothing, with a RuntimeWarning, if nodes are not in the order of recording."""
    if labels and any(edge.source >= edge.target for edge in edges):
        _complain(backend, "lists nodes in another order than that of recording")
        return ()
    return labels


def _complain(backend: Backend, fact: str) -> None:
    warnings.warn(
        f"backend {backend.name!r} {fact}, so the labels are left out; report that to its authors.",
        RuntimeWarning,
        stacklevel=outside()[0],
    )
