"""Independent branches of the cpu backend's graphs, run side by side."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from .threads import Notices, here, start
from .work import Call, Failure, failure_of

_MOST_HELPERS = max(2, os.cpu_count() or 1)


class Helpers:
    """Threads shared by all executables. They end when the last reference to this object is gone."""

    __slots__ = ("__weakref__", "_count", "_lock", "_notices")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._count = 0
        self._notices: Notices = SimpleQueue()

    def start(self, count: int) -> None:
        """Have at least `count` threads, up to the limit. Where the system has no more, fewer will do."""
        with self._lock, suppress(RuntimeError):
            while self._count < min(count, _MOST_HELPERS) and start("cpu helper", self._notices):
                self._count += 1

    def invite(self, help_out: Callable[[], None], count: int) -> None:
        """Let up to `count` threads call `help_out`, if and when they have nothing else to do."""
        for _ in range(min(count, self._count)):
            self._notices.put(help_out)

    def __del__(self) -> None:
        try:  # with built-in names alone: those of the module may be gone when the interpreter exits
            for _ in range(self._count):
                self._notices.put(None)
        except AttributeError:  # an interrupt left it half made
            pass


class Branch:
    """Calls that follow one another, with nothing between that joins or forks."""

    __slots__ = ("after", "before", "calls")

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.after = 0
        """How many branches it depends on."""
        self.before: list[int] = []
        """The branches that depend on it."""


def split(calls: Sequence[Call], after: Sequence[Sequence[int]]) -> list[Branch]:
    """Split a graph into branches; an empty list if it is one straight line.

    Parameters
    ----------
    calls : sequence
        One for each node, in an order in which they could run.
    after : sequence
        The nodes that each node depends on.
    """
    if all(index - 1 in nodes for index, nodes in enumerate(after) if index):
        return []
    followers = [0] * len(calls)
    for nodes in after:
        for node in nodes:
            followers[node] += 1
    branches: list[Branch] = []
    branch_of: list[int] = []
    for call, nodes in zip(calls, after, strict=True):
        if len(nodes) == 1 and followers[nodes[0]] == 1:
            branch_of.append(branch_of[nodes[0]])
        else:
            branch_of.append(len(branches))
            branches.append(Branch())
            for earlier in {branch_of[node] for node in nodes}:
                branches[earlier].before.append(len(branches) - 1)
                branches[-1].after += 1
        branches[branch_of[-1]].calls.append(call)
    return branches


def run_branches(branches: Sequence[Branch], helpers: Helpers) -> None:
    """Run each branch after those that it depends on, on this thread and on idle helpers.

    Raises what a call raised first; the calls that had not begun by then are skipped.
    """
    _Run(branches, helpers).run()


class _Run:
    """One run. It never needs a helper to make progress, since these may all be busy for long."""

    __slots__ = ("_branches", "_failure", "_helpers", "_left", "_lock", "_missing", "_ready", "_worker")

    def __init__(self, branches: Sequence[Branch], helpers: Helpers) -> None:
        self._branches = branches
        self._helpers = helpers
        self._worker = here.worker
        self._lock = threading.RLock()  # guards all that changes
        self._missing = [branch.after for branch in branches]
        self._left = len(branches)
        self._ready: SimpleQueue[int | None] = SimpleQueue()  # None: there will be no more
        self._failure: Failure | None = None

    def run(self) -> None:
        self._offer([index for index, missing in enumerate(self._missing) if not missing])
        while (index := self._ready.get()) is not None:
            self._take(index)
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # its traceback leads to this frame, which would be a cycle

    def _help(self) -> None:
        here.worker = self._worker
        try:
            while (index := self._ready.get_nowait()) is not None:
                self._take(index)
            self._ready.put(None)  # it was meant for the thread that waits
        except Empty:
            pass
        finally:
            del here.worker

    def _offer(self, indices: list[int]) -> None:
        for index in indices:
            self._ready.put(index)
        self._helpers.invite(self._help, len(indices) - 1)

    def _take(self, index: int) -> None:
        branch = self._branches[index]
        try:
            for call in branch.calls:
                if self._failure is not None:
                    break
                function, args, how, _ = call
                function(*args, **how)
        except BaseException as error:
            self._failed(failure_of(error, call))
        ready = []
        with self._lock:
            for later in branch.before:
                self._missing[later] -= 1
                if not self._missing[later]:
                    ready.append(later)
            self._left -= 1
            finished = not self._left
        self._offer(ready)
        if finished:
            self._ready.put(None)

    def _failed(self, failure: Failure) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = failure
            else:
                self._failure.add(failure)
