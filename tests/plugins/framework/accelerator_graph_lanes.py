"""Lets a framework take part in captures: what its author would ship, complete.

The framework is called ``lanes``. It has streams, ``lanes.Lane``, a current one, ``lanes.current`` and
``lanes.choose``, and an allocator that can be told which arena to take from, ``lanes.arena``.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from accelerator_graph.interop.base import Framework


class Lanes(Framework):
    """The framework, once somebody has imported it."""

    api_version: ClassVar[int] = 1

    @property
    def lanes(self) -> Any:
        """The module."""
        return sys.modules["lanes"]

    def backend(self) -> str | None:
        """Return the backend of its streams, once it has any."""
        return "cpu" if self.lanes.started else None

    def as_stream(self, obj: object) -> int | None:
        """Return the handle of a lane."""
        return obj.handle if isinstance(obj, self.lanes.Lane) else None

    def current_stream(self, device: int | None = None) -> tuple[int, int]:
        """Return the current lane."""
        return self.lanes.current().handle, 0

    def use_stream(self, handle: int, device: int):
        """Make a lane the current one, for a while."""
        before = self.lanes.current()
        self.lanes.choose(self.lanes.Lane(handle))
        return lambda: self.lanes.choose(before)

    def route(self, pool, handle, device, relaxed):
        """Take memory from the arena of that name, for a while."""
        before = self.lanes.arena
        self.lanes.arena = self.lanes.arenas.setdefault(pool, [])
        return lambda: setattr(self.lanes, "arena", before)

    def release(self, pool):
        """Give up the arena."""
        self.lanes.arenas.pop(pool, None)
