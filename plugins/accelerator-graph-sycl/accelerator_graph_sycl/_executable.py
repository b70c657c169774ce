"""Executables, and what has to be waited for before the interpreter exits."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from accelerator_graph.errors import DriverError

from ._library import Handle, Library


class Executable(Handle):
    """A finalized graph. `queue` is that of its latest run, after which no earlier run is in progress."""

    __slots__ = ("__weakref__", "is_empty", "queue")

    def __init__(self, library: Library, *, is_empty: bool) -> None:
        super().__init__(library, "delete_executable")
        self.is_empty: bool = is_empty
        """It has no nodes. The runtime loses the order of what is recorded around such a graph."""
        self.queue: Any = None


def wait_for_runs(library: Library, executables: Collection[Executable], process: int) -> None:
    """Wait for the latest runs, at the exit of the process that enqueued them.

    When it exits, the interpreter frees the memory that running graphs use, and the runtime does not wait.
    """
    if os.getpid() != process:
        return
    for executable in list(executables):
        if executable.queue is not None:
            with suppress(DriverError):
                library.call("synchronize", executable.queue.addressof_ref())
