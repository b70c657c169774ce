"""What stands for a thread, and never for another one."""

from __future__ import annotations

import threading


class Identity:
    """Lives as long as its thread does, if it is held by weak references alone."""

    __slots__ = ("__weakref__",)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.identity = Identity()


_thread = _Thread()


def this_thread() -> Identity:
    """Return the identity of the calling thread.

    An ident is given to another thread once its own has ended, and `threading.current_thread` takes two
    threads that Python did not start for one if they have the same ident.
    """
    return _thread.identity
