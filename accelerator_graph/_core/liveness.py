"""Watching arrays that a graph uses but does not keep alive.

A graph goes on using the addresses that it was captured with. If an array was freed meanwhile, the results
are wrong, without an error. If the array is watched, the replay is refused.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import GraphStateError
from . import switches

if TYPE_CHECKING:
    from types import FrameType

VARIABLE = "ACCELERATOR_GRAPH_CHECK_INPUT_LIVENESS"

_NONE: frozenset[int] = frozenset()
_SHOWN = 5


def asked_for(given: object) -> bool:
    """Return True if captures should find and watch their inputs; None means as the environment says.

    Raises TypeError for another type, ValueError if the variable is neither 0 nor 1. Empty counts as unset.
    """
    return switches.is_on(given, "check_input_liveness", VARIABLE)


class _Sentinel:
    """Dies with the memory of an array that can't be referenced weakly itself."""


class _Memory(weakref.ref[Any]):
    """The memory of one array, referenced weakly, and the facts for a message."""

    __slots__ = ("address", "freed", "root", "text", "traced")

    address: int | None
    """The address, if the memory can move."""
    freed: str
    root: str
    text: str
    traced: bool

    def is_there(self) -> bool:
        """Return True if the memory still exists, at the same address."""
        memory = self()
        return memory is not None and (self.address is None or memory.data_ptr() == self.address)


class Watchlist:
    """The arrays that one graph watches."""

    __slots__ = ("_before", "_entries", "_named")

    def __init__(self) -> None:
        self._entries: dict[int, _Memory] = {}
        self._named: set[int] = set()
        """The entries that the user asked for, by key."""
        self._before = _NONE

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, array: object) -> None:
        """Watch an array at the user's request. Raises TypeError if it can't be referenced weakly."""
        self._add(array, "watched", threading.get_ident(), self._named)

    def begin(self) -> Callable[[object], Callable[[], object]]:
        """Return a callable that adds an array which this thread uses, and returns its undo."""
        self._before = frozenset(self._entries) if self._entries else _NONE
        thread = threading.get_ident()
        return lambda array: self._add(array, "first used", thread)

    def abandon(self) -> None:
        """Remove all arrays that were added since `begin`."""
        for key in set(self._entries) - self._before:
            del self._entries[key]

    def replace(self, others: Watchlist | None) -> None:
        """Watch what another graph watches in place of what was found in a capture."""
        named = {key: entry for key, entry in self._entries.items() if key in self._named}
        self._entries = named if others is None else named | others._entries

    def check(self) -> None:
        """Raise `GraphStateError` if the memory of an array is gone, with its history as far as known."""
        gone = [entry for entry in list(self._entries.values()) if not entry.is_there()]
        if gone:
            raise GraphStateError(_message(gone))

    def _add(
        self, array: object, how: str, thread: int, named: set[int] | None = None
    ) -> Callable[[], object]:
        memory = _memory_of(array)
        try:
            entry = _Memory(memory, _note)
        except TypeError:
            which = "" if memory is array else f", whose memory is of type {type(memory).__name__!r},"
            raise TypeError(
                f"an object of type {type(array).__name__!r}{which} can't be watched, since it can't be "
                "referenced weakly; keep it alive with graph.retain(x)."
            ) from None
        entry.address = memory.data_ptr() if hasattr(memory, "data_ptr") else None
        entry.freed, entry.root = "", _root(array)
        made, entry.traced = _made(array)
        entry.text = f"{_description(array)}, {how} at {_place(entry.root, thread)}{made}"
        key = id(entry)
        if named is not None:
            named.add(key)
        self._entries[key] = entry
        return lambda: self._entries.pop(key, None)


def checked(check: Callable[[], None], call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a callable that makes a check, then the launch."""

    def launch() -> None:
        check()
        call()

    return launch


def _note(entry: _Memory) -> None:
    """Note where memory was freed."""
    entry.freed = f", freed at {_place(entry.root, threading.get_ident())}"


def _memory_of(array: Any) -> Any:
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


def _message(gone: list[_Memory]) -> str:
    count = len(gone)
    what = f"{count} arrays that the graph uses are" if count > 1 else "An array that the graph uses is"
    lines = [
        f"{what} gone, and a replay would use what is there now; keep arrays as long as the graph, for "
        "example with graph.retain(x), and capture again."
    ]
    lines += [f"{entry.text}{entry.freed or ', given other memory'}" for entry in gone[:_SHOWN]]
    if count > _SHOWN:
        lines.append(f"and {count - _SHOWN} more")
    if not all(entry.traced for entry in gone):
        lines.append("To see where arrays were made, start tracemalloc first: python -X tracemalloc=10.")
    return "\n  ".join(lines)


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


def _made(array: object) -> tuple[str, bool]:
    """Return where an object was made, if tracemalloc knows, and whether tracemalloc is running."""
    import tracemalloc

    if not tracemalloc.is_tracing():
        return "", False
    trace = tracemalloc.get_object_traceback(array)
    if not trace:
        return "", True
    inside = os.path.dirname(getattr(sys.modules.get(_root(array)), "__file__", None) or "")
    frames = [each for each in trace if not inside or not each.filename.startswith(inside + os.sep)]
    return f", made at {frames[-1] if frames else trace[-1]}", True
