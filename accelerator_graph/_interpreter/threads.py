"""An identity for each thread, which no other thread ever gets."""

from __future__ import annotations

import threading


class Identity:
    """Lives exactly as long as its thread, if everyone else holds it only by weak references."""

    __slots__ = ("__weakref__", "thread")

    def __init__(self) -> None:
        self.thread = threading.current_thread()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.identity = Identity()


_thread = _Thread()


def this_thread() -> Identity:
    """Return the identity of the calling thread.

    `threading.get_ident` can return the same number for another thread after the first has ended, and
    `threading.current_thread` then returns the same object, if Python started neither.
    """
    return _thread.identity
