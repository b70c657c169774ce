"""Work that tests do in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

LIMIT = 120
"""Seconds after which a thread counts as hanging."""


def in_thread(work: Callable[..., T], *args: Any, name: str | None = None) -> T:
    """Call `work` in a thread of its own; return or raise what it does."""
    [result] = in_threads(partial(work, *args), name=name)
    return result


def in_threads(*works: Callable[[], T], name: str | None = None) -> list[T]:
    """Call each in a thread of its own, at the same time; return what they return, raise what one raises."""
    results: list[Any] = [None] * len(works)
    errors: list[BaseException] = []

    def run(place: int) -> None:
        try:
            results[place] = works[place]()
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(place,), name=name, daemon=True) for place in range(len(works))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    return results
