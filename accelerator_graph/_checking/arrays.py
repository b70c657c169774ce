"""Arrays that a graph uses but does not keep alive, referenced weakly.

So it is known later that the memory of one is gone, even if somebody else has got that memory meanwhile.
"""

from __future__ import annotations

import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from .._arrays.placement import extent

if TYPE_CHECKING:
    from types import FrameType

    from .observer import Watchlist


class _Sentinel:
    """Dies with the memory of an array that can't be referenced weakly itself."""


class WatchedMemory(weakref.ref[Any]):
    """The memory of one array, referenced weakly, and the facts for a message."""

    __slots__ = ("freed", "movable", "root", "span", "text", "watched_by")

    freed: str
    """Where it was freed, once it was and if that is known."""
    movable: int | None
    """The address, if the memory can move."""
    root: str
    span: range
    """The addresses of the memory; empty if they are not known."""
    text: str
    watched_by: list[weakref.ref[Watchlist]]

    def is_there(self) -> bool:
        """Return True if the memory still exists, at the same address."""
        memory = self()
        return memory is not None and (self.movable is None or memory.data_ptr() == self.movable)


def watched(array: object, how: str, thread: int) -> WatchedMemory:
    """Reference the memory of an array weakly. Raises TypeError if that is not possible.

    The message of an error says `how` the library has come to know it. If this thread runs no code of the
    user's, the array is used on the other `thread`.
    """
    memory = memory_of(array)
    try:
        entry = WatchedMemory(memory, _note)
    except TypeError:
        which = "" if memory is array else f", whose memory is of type {type(memory).__name__!r},"
        raise TypeError(
            f"an object of type {type(array).__name__!r}{which} can't be watched, since it can't be "
            "referenced weakly; keep it alive with graph.retain(x)."
        ) from None
    entry.movable = memory.data_ptr() if hasattr(memory, "data_ptr") else None
    entry.span = span_of(array, memory)
    entry.freed, entry.root, entry.watched_by = "", _root(array), []
    entry.text = f"{_description(array)}, {how} at {_place(entry.root, thread)}"
    return entry


def _note(entry: WatchedMemory) -> None:
    """Note where memory was freed, and have the next replays of its graphs checked."""
    entry.freed = _place(entry.root, threading.get_ident())
    for each in entry.watched_by:
        watchlist = each()
        if watchlist is not None:
            watchlist.alarm()


def memory_of(array: Any) -> Any:
    """Return an object that lives as long as an array's memory: its storage, or the array that it views."""
    if callable(getattr(array, "untyped_storage", None)):
        return array.untyped_storage()
    if hasattr(type(array), "__cuda_array_interface__"):  # to ask for it may synchronise
        attributes = getattr(getattr(getattr(array, "data", None), "mem", None), "__dict__", None)
        if attributes is not None:
            return attributes.setdefault("_accelerator_graph", _Sentinel())
    while getattr(array, "base", None) is not None:
        array = array.base
    return array


def span_of(array: Any, memory: Any) -> range:
    """Return the addresses of an array's whole memory; none if they are not known. Never synchronises."""
    if hasattr(memory, "data_ptr") and hasattr(memory, "nbytes"):
        start, size = memory.data_ptr(), memory.nbytes
        return range(start, start + int(size() if callable(size) else size))
    block: Any = getattr(getattr(array, "data", None), "mem", None)
    if hasattr(block, "ptr") and hasattr(block, "size"):
        return range(int(block.ptr), int(block.ptr) + int(block.size))
    if hasattr(type(array), "__cuda_array_interface__"):
        return range(0)
    return range(*(extent(array) or (0, 0)))


def _description(array: Any) -> str:
    """Describe an array: its type, shape, dtype, device and address, as far as it has them."""
    shape, kind = getattr(array, "shape", None), type(array)
    facts = [f"{_root(array)}.{kind.__qualname__}" + ("" if shape is None else f" of shape {tuple(shape)}")]
    if hasattr(array, "dtype"):
        facts.append(str(array.dtype))
    if hasattr(array, "device"):
        facts.append(f"on {array.device}")
    address = _address(array)
    return ", ".join(facts if address is None else [*facts, f"at {address:#x}"])


def _address(array: Any) -> int | None:
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr())
    if hasattr(array, "__array_interface__"):
        return int(array.__array_interface__["data"][0])
    if hasattr(type(array), "__cuda_array_interface__"):
        address = getattr(getattr(array, "data", array), "ptr", None)
        return address if isinstance(address, int) else None
    return None


def _root(array: object) -> str:
    """Return the package that an array comes from, even if a user has subclassed its class."""
    bases = type(array).__mro__[:-1]
    return bases[-1].__module__.partition(".")[0] if bases else ""


def _place(root: str, thread: int) -> str:
    """Return file and line of the innermost frame of user code, here or else on a thread."""
    inside = {__name__.partition(".")[0], root, ""}  # generated code may be in no module
    # no variable may hold this very frame, which would keep all frames and their arrays
    found = _outside(sys._getframe(1), inside) or _outside(sys._current_frames().get(thread), inside)
    return "an unknown place" if found is None else f"{found.f_code.co_filename}:{found.f_lineno}"


def _outside(frame: FrameType | None, packages: set[str]) -> FrameType | None:
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in packages:
        frame = frame.f_back
    return frame
