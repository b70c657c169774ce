"""Counts what a runtime has alive, where its functions make and destroy it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

Made = Callable[[Any, tuple[Any, ...]], bool]
"""Whether a call has made or destroyed something, by its answer and its arguments."""


class Counts:
    """The objects that were made since the counting began, less those that were destroyed.

    Parameters
    ----------
    steps : dict
        By the name of a function: the kind of object, and 1 if the function makes one, -1 if it destroys one.
    made : callable
        Whether a call has done so.
    """

    def __init__(self, steps: Mapping[str, tuple[str, int]], made: Made) -> None:
        self._steps = steps
        self._made = made
        self._lock = threading.Lock()
        self.alive: Counter[str] = Counter()

    @contextmanager
    def counting(self, place: Any) -> Iterator[None]:
        """Count the calls of the functions that are attributes of `place`."""
        self.alive.clear()
        with ExitStack() as undo:
            for name in self._steps:
                undo.enter_context(patch.object(place, name, _Counted(self, name, getattr(place, name))))
            yield

    def note(self, name: str, answer: Any, arguments: tuple[Any, ...]) -> None:
        """Count a call."""
        if self._made(answer, arguments):
            kind, step = self._steps[name]
            with self._lock:
                self.alive[kind] += step


class _Counted:
    """A function whose calls are counted."""

    def __init__(self, counts: Counts, name: str, function: Any) -> None:
        self._counts = counts
        self._name = name
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        answer = self._function(*arguments)
        self._counts.note(self._name, answer, arguments)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)
