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

from .._interpreter import setting
from ..errors import GraphStateError
from .observers import LIVENESS, Lasting, Observer

if TYPE_CHECKING:
    from types import FrameType

_SHOWN = 5


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
    """Arrays that replays need."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, _Memory] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, array: object) -> None:
        """Watch an array at the user's request. Raises TypeError if it can't be referenced weakly."""
        self._add(array, "watched", threading.get_ident())

    def hand_on(self) -> Watchlist | None:
        """Return this list; None if it is empty, so that replays have nothing to check."""
        return self if self._entries else None

    def check(self) -> None:
        """Raise `GraphStateError` if the memory of an array is gone, with its history as far as known."""
        gone = [entry for entry in list(self._entries.values()) if not entry.is_there()]
        if gone:
            raise GraphStateError(_message(gone))

    def _add(self, array: object, how: str, thread: int) -> Callable[[], object]:
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
        self._entries[key] = entry
        return lambda: self._entries.pop(key, None)


class UsedArrays(Watchlist):
    """The arrays that one capture's work uses, as far as their frameworks can see them."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def used(self, array: object) -> Callable[[], object]:
        """Watch an array that the capturing thread uses; return the undo."""
        return self._add(array, "first used", self._thread)


class Watched(Watchlist, Lasting):
    """The arrays that a graph watches until it is reset, whatever work it does."""

    __slots__ = ("_copy",)

    def __init__(self) -> None:
        super().__init__()
        self._copy: Watchlist | None = None

    def hand_on(self) -> Watchlist | None:
        """Return a list of the present arrays: always the same one, as long as these are the same."""
        if self._copy is None or len(self._copy) != len(self):
            self._copy = Watchlist()
            self._copy._entries.update(self._entries)
        return self._copy.hand_on()


class ownership(Observer):
    """Refuse replays once an array that the captured work uses is gone: `Graph(observe=ownership())`.

    A graph goes on using the addresses that it was captured with. If an array was freed meanwhile, the
    results are wrong, without an error. The arrays are found as far as their frameworks can see them, and
    referenced weakly; `Graph.watch` adds others. A replay then raises `GraphStateError`, which names the
    array.

    For a whole program, there is the environment variable ``ACCELERATOR_GRAPH_CHECK_INPUT_LIVENESS=1``; ``0``
    forbids it.

    Examples
    --------
    ::

        with torch.cuda.Stream(), ag.Graph(observe=ag.ownership()) as graph:
            y = model(x)
    """

    __slots__ = ()

    def begin(self, capture: Any) -> object | None:
        """Watch the arrays of a capture, unless another observer does, or the environment forbids it."""
        if setting(LIVENESS, "1", "0") == "0":
            return None
        found = any(isinstance(each, UsedArrays) for each in capture.observations)
        return None if found else UsedArrays()


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
