"""Labels: names for parts of what a capture records."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from .._interpreter import runs_later
from ..errors import EmptyLabelWarning
from . import capture_table
from .call_site import Site, caller
from .empty import warn_of_nothing, why_empty
from .marks import Mark, open_names

_P = ParamSpec("_P")
_R = TypeVar("_R")


class label:
    """Name the nodes that a capture records inside a ``with`` block, for `Graph.describe`.

    As a decorator, it names what each call of a function records.

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
        The name is not a string, or a generator or a coroutine is decorated: its body runs after the call.

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

        @ag.label("mlp")
        def mlp(x): ...
    """

    __slots__ = ("_name",)

    may_be_empty = False
    """No warning is issued if nothing is recorded."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"label: the name must be a str, not {name!r}.")
        self._name = name

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Return a function with the same parameters whose calls are labelled."""
        if not callable(function):
            raise TypeError(
                f"label can't decorate {function!r}, which can't be called; write "
                f"`with label({self._name!r}):` around the work."
            )
        if runs_later(function):
            raise TypeError(
                f"label can't decorate {function!r}, whose body runs after the call; write "
                f"`with label({self._name!r}):` inside it."
            )

        @wraps(function)
        def labelled(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self:
                return function(*args, **kwargs)

        return labelled

    def __enter__(self) -> None:
        if capture_table.live:
            capture = next(reversed(capture_table.thread.unfinished.values()), None)
            if capture is not None and capture.progress is not None:
                capture.progress.enter(
                    capture.backend, capture.native, [*open_names(capture.labels), self._name]
                )
            start = None if capture is None else capture.recorded()
            if capture is not None and start is not None:
                capture.labels.append(Mark(self, self._name, start, self._site()))

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
                    if capture.progress is not None:
                        capture.progress.enter(capture.backend, capture.native, open_names(capture.labels))
                    return

    def _site(self) -> Site:
        return caller()
