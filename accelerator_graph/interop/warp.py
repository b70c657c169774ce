"""Warp: its current stream. All threads of the process share it, so their launches go there, too."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from threading import RLock
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from .base import Framework, Undo

_CONTEXTS = ("warp._src.context", "warp.context")  # the second one is Warp's up to 1.9
_REFUSAL = re.compile(
    r"Cannot synchronize (stream|event|device '?[\w:]+'?) while graph capture is active$"
    r"|Failed to allocate \d+ bytes on device '[\w:]+': +Failed to allocate memory during graph capture"
    r"|Failed to allocate a CPU staging buffer during graph capture$"
    r"|Cannot run CPU/CUDA wp\.copy\(\) adjoints during CUDA graph capture$"
    r"|BsrMatrix\.\w+\(\) cannot read [\w ]+ during a live CUDA graph capture because\b"
    r"|`\w+` requires .* to be set for use in graph capture$"
)
"""The messages with which Warp refuses a call because of a capture."""


class Warp(Framework):
    """NVIDIA Warp."""

    api_version: ClassVar[int] = 1
    always_has_a_stream: ClassVar[bool] = True

    def __init__(self) -> None:
        self._seen: WeakValueDictionary[int, Any] = WeakValueDictionary()
        # Warp's objects for streams that Warp did not make. They are kept, because the end of one makes Warp
        # forget the stream and free the memory that work on it uses, even if there is another object for it.
        self._wrapped: dict[tuple[int, int], Any] = {}
        self._entered: dict[int, list[_Entered]] = {}
        self._lock = RLock()

    @property
    def warp(self) -> Any:
        """The module, which the program has imported."""
        return sys.modules["warp"]

    def backend(self) -> str | None:
        """Return ``"cuda"`` once Warp is initialised and has found a device."""
        contexts = filter(None, map(sys.modules.get, _CONTEXTS))
        runtime = getattr(next(contexts, None), "runtime", None)
        return "cuda" if getattr(runtime, "cuda_devices", None) else None

    def as_stream(self, obj: object) -> int | None:
        """Return the handle of a ``warp.Stream``."""
        if not isinstance(obj, self.warp.Stream):
            return None
        handle = _handle(obj)
        self._seen[handle] = obj
        return handle

    def current_stream(self, device: int | None = None) -> tuple[int, int] | None:
        """Return a device's current stream; None if Warp has not used the device or it is the CPU."""
        there = self.warp.get_device(None if device is None else f"cuda:{device}")
        if not there.is_cuda or not there.has_stream:
            return None
        return _handle(there.stream), there.ordinal

    def use_stream(self, handle: int, device: int) -> Undo:
        """Make a stream Warp's current one on its device, and that device the current one."""
        there = self.warp.get_device(f"cuda:{device}")
        mine, before = _Entered(self._stream(handle, there, there.stream)), ExitStack()

        def leave() -> None:
            self._leave(there, mine)
            before.close()

        try:
            before.enter_context(self.warp.ScopedDevice(there))
            with self._lock:
                self._entered.setdefault(there.ordinal, [_Entered(there.stream)]).append(mine)
                there.set_stream(mine.stream, sync=False)
            return leave
        except BaseException:
            leave()
            raise

    def refuses(self, error: Exception) -> bool:
        """Return True for Warp's own refusals."""
        return type(error) is RuntimeError and _REFUSAL.match(str(error)) is not None

    def _leave(self, there: Any, mine: _Entered) -> None:
        """Leave a stream. The last one that any thread has entered and not left becomes the current one."""
        with self._lock:
            stack = self._entered.get(there.ordinal, [])
            others = [each for each in stack if each is not mine]
            if len(others) < len(stack):
                there.set_stream(others[-1].stream, sync=False)
                stack[:] = others
            if len(stack) == 1:
                del self._entered[there.ordinal]

    def _stream(self, handle: int, there: Any, before: Any) -> Any:
        """Return Warp's object for a stream: an existing one, or a new one that is kept."""
        if _handle(before) == handle:
            return before
        seen = self._seen.get(handle)
        if seen is not None and seen.device == there:
            return seen
        key = (there.ordinal, handle)
        if key not in self._wrapped:
            self._wrapped[key] = self.warp.Stream(there, cuda_stream=handle or None)
        return self._wrapped[key]


@dataclass(eq=False, slots=True)
class _Entered:
    """A stream that a call of `use_stream` has made the current one."""

    stream: Any


def _handle(stream: Any) -> int:
    return int(stream.cuda_stream or 0)
