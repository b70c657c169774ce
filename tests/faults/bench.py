"""What operations work with, and what has to be true after each of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import addressof, c_uint32, c_uint64
from typing import Any

import accelerator_graph as ag
from accelerator_graph._core import capture_table, current_stream, ownership, pools, stream_stack
from simulators.cuda.faults import Faults

from .vendor import BACKEND, vendor

MODE = vendor.MODES["thread_local"]
"""The capture mode of the thread that tests: not the driver's first, and not the library's."""

faults = Faults(vendor.LIBRARY)
accounts = vendor.Accounts(vendor.LIBRARY)

A, B, C, CELL = map(vendor.memory, (8, 8, 8, 4))

NOTHING = tuple(map(bytes, (A, B, C, CELL)))


class Bench:
    """Two streams, a graph that captures the first, a pool, and work on the memory above."""

    def __init__(self, **options: Any) -> None:
        current_stream._thread.streams.clear()  # or what is called would depend on what was done before
        self.stream = ag.Stream(0, backend=BACKEND)
        self.fork = ag.Stream(0, backend=BACKEND)
        self.pool = ag.graph_pool_handle()
        self.graph: Any = ag.Graph(stream=self.stream, pool=self.pool, **options)
        self.kept: Any = None
        self.left_undone = ""

    def work(self, stream: ag.Stream, value: int) -> None:
        """Enqueue a fill, a copy, a forked fill and a kernel."""
        arguments = (c_uint64(addressof(CELL)), c_uint32(0), c_uint32(value), c_uint64(0))
        stream.fill(A, value)
        self.fork.wait(stream)
        self.fork.fill(C, value + 1)
        stream.copy(B, A)
        stream.wait(self.fork)
        stream.launch(vendor.kernel(), *arguments, grid=1, block=1)

    def capture(self, value: int) -> None:
        """Capture work that will leave `value` behind."""
        with self.stream, self.graph:
            self.work(self.stream, value)

    def run(self, launch: Any = None) -> tuple[bytes, ...]:
        """Replay once and return what that left behind."""
        (launch or self.graph.replay)()
        self.stream.synchronize()
        return found()

    def usable(self) -> None:
        """Find the stream, the graph and the pool as good as new."""
        if self.graph is None:
            self.graph = ag.Graph(stream=self.stream, pool=self.pool)
        self.graph.reset()
        assert self.graph.state == "empty"
        vendor.quiesce()
        found()
        self.capture(9)
        assert self.run() == left(9)
        other = ag.Graph(stream=self.stream, pool=self.pool)
        with other:
            self.stream.fill(A, 1)
        self.graph.reset()


def found() -> tuple[bytes, ...]:
    """Return what the memory holds, and clear it."""
    found = tuple(map(bytes, (A, B, C, CELL)))
    for memory in (A, B, C, CELL):
        memory[:] = bytes(len(memory))
    return found


def left(value: int) -> tuple[bytes, ...]:
    """Return what `Bench.work` leaves behind."""
    return bytes([value]) * 8, bytes([value]) * 8, bytes([value + 1]) * 8, bytes([value, 0, 0, 0])


def capture_mode() -> int:
    """Return this thread's capture mode."""
    mode = vendor.exchange(MODE)
    vendor.exchange(mode)
    return int(mode)


# ---- what lives ------------------------------------------------------------------------------------


def released() -> dict[str, int]:
    """Return what lives once all that is due was destroyed, a thread's side streams too."""
    current_stream._thread.streams.clear()
    ownership.drain()
    return accounts.live()


def pools_in_use() -> set[tuple[int, int]]:
    """Return the ids of the pools that some graph has a part in."""
    return {pool for pool, known in list(pools._pools.items()) if known() is not None}


def difference(before: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    """Return what lives now and did not before, or the other way round."""
    return {name: now[name] - before[name] for name in before if now[name] != before[name]}


def leaked(before: dict[str, int], allowed: dict[str, int] | None = None) -> dict[str, int]:
    """Return what lives although nobody holds it."""
    found = difference(before, released())
    if found != (allowed or {}):  # an exception and its frames may hold each other
        gc.collect()
        found = difference(before, released())
    return found


@contextmanager
def nothing_left() -> Iterator[None]:
    """Find all accounts at the end as they are now, and no handle misused meanwhile."""
    vendor.kernel()
    faults.reset()
    before, misused = released(), (accounts.stale_handles, accounts.unknown_calls)
    ids = pools_in_use()
    yield
    assert leaked(before) == {}, "leaked"
    assert (accounts.stale_handles, accounts.unknown_calls) == misused, "a stale handle, or an unknown call"
    assert pools_in_use() == ids, "a pool was not given back"


def no_capture() -> None:
    """Find no trace of a capture on this thread nor in the driver."""
    assert not capture_table.live, "a capture is still noted"
    assert not capture_table.thread.graphs, "the thread still holds a graph"
    assert not stream_stack.thread.entries, "a stream is still the current one"
    assert accounts.live()["captures"] == 0, "a capture was left open"
