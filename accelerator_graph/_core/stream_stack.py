"""The streams that a thread has entered: entering makes one current here and in every framework."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..backends.base import Capability
from ..interop import registry as interop

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..interop.base import Framework
    from .streams import Stream

T = TypeVar("T")


class Entry:
    """A stream that is current on a thread from `enter` to `leave`.

    Parameters
    ----------
    stream : Stream
        The stream.
    entrant : object
        Another name for the entry, which `leave` takes as well.
    """

    __slots__ = ("entrant", "guard", "stream", "undos")

    def __init__(self, stream: Stream, entrant: object) -> None:
        self.stream = stream
        self.entrant = entrant
        self.undos: list[Callable[[], object]] = []
        self.guard: object = None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.entries: list[Entry] = []


thread = _Thread()
"""`thread.entries`: the streams that this thread has entered, the innermost last."""


def taking_part(backend: Backend) -> Sequence[Framework]:
    """Return the frameworks that take part in what happens on a backend's streams."""
    return () if backend.recording == "explicit" else interop.taking_part(backend.name)


def enter(entry: Entry, frameworks: Sequence[Framework] | None = None) -> int | None:
    """Make a stream the current one of this thread, and of every framework that takes part.

    By default these are looked up. After an error, `leave` undoes whatever was done. Returns the handle that
    frameworks know the stream by; None without one, or without frameworks.
    """
    thread.entries.append(entry)
    stream = entry.stream
    backend = stream._backend
    if frameworks is None:
        frameworks = taking_part(backend)
    if not frameworks or Capability.HANDLES not in backend.capabilities(stream._device):
        return None
    handle = backend.handle_int(stream._native)
    for framework in frameworks:
        entry.undos.extend(filter(None, (framework.use_stream(handle, stream._device),)))
    return handle


def leave(who: object) -> None:
    """Undo an entry, or the last one of this entrant, on this thread; do nothing if there is none.

    If another stream was entered since, that one stays current, and its end undoes both.
    """
    entries = thread.entries
    for i in range(len(entries) - 1, -1, -1):
        entry = entries[i]
        if entry is who or entry.entrant is who:
            if i + 1 < len(entries):
                later = entries[i + 1]
                later.undos, entry.undos = entry.undos + later.undos, []
            try:
                if entry.undos:
                    undo(entry.undos)
            except Exception:
                del entries[i]
                raise
            del entries[i]
            entry.guard = None
            return


def within(stream: Stream, work: Callable[..., T], *args: Any) -> T:
    """Return ``work(*args)``, done while a stream is the current one."""
    entry = Entry(stream, None)
    try:
        try:
            enter(entry)
            return work(*args)
        finally:
            leave(entry)
    finally:
        leave(entry)  # an interrupt may have come before the first


def undo(undos: list[Callable[[], object]]) -> None:
    """Call all, the last first, even if one of them raises."""
    try:
        while undos:
            undos[-1]()
            undos.pop()
    except Exception:
        undos.pop()
        undo(undos)
        raise
    except BaseException:  # an interrupt, which may have come before the undo was done
        undo(undos)
        raise
