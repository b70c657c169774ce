"""Work that tests do in threads of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from accelerator_graph.testing._tools import Thread

T = TypeVar("T")

LIMIT = 120
"""Seconds without use of the processor after which a thread counts as hanging."""


def in_thread(work: Callable[..., T], *args: Any, name: str = "another") -> T:
    """Call `work` in a thread of its own; return or raise what it does."""
    return Thread(partial(work, *args), name).result(LIMIT)


def in_threads(*works: Callable[[], T]) -> list[T]:
    """Call each in a thread of its own, at the same time; return what they return, raise what one raises."""
    return [each.result(LIMIT) for each in [Thread(work, "another") for work in works]]
