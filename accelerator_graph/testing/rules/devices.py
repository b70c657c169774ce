"""Backends with several devices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import PIECES, Case, needs, only_if
from .._work import Work


class DeviceRules(Case):
    """A stream belongs to one device. Whether those of two can wait for each other is up to the runtime."""

    @only_if(lambda backend: backend.device_count() > 1, "has one device here")
    def test_work_runs_on_the_device_of_its_stream(self) -> None:
        """Work on a stream reaches the memory of the device that the stream was made for."""
        for device, there in self._others():
            stream, cell = self.stream(device), there.new()
            there.enqueue(stream, cell, 1, 5)
            with self.graph(stream) as graph:
                there.enqueue(stream, cell, 3, 0)
            graph.replay()
            stream.synchronize()
            assert there.read(cell) == 15, f"device {device}"

    @needs(Capability.EVENTS)
    @only_if(lambda backend: backend.device_count() > 1, "has one device here")
    def test_streams_of_two_devices_keep_the_order_or_refuse(self) -> None:
        """If a stream can wait for one of another device, its later work does wait; else `wait` raises."""
        for device, there in self._others():
            stream, cell, other, elsewhere = self.stream(), self.cell(), self.stream(device), there.new()
            for runs in (1, 3, 7):  # on a busy machine, a few pieces may be done before anybody waits
                self.enqueue_slow(stream, cell, 1, 1, times=PIECES * (runs + 1) // 2)
                if self._is_refused(partial(other.wait, stream)):
                    break
                there.enqueue(other, elsewhere, 1, 1)
                other.synchronize()
                assert self.used.read(cell) == PIECES * runs, f"the stream of device {device} did not wait"
            else:
                assert there.read(elsewhere) == 3, f"device {device}"

    @needs(Capability.EVENTS)
    @only_if(lambda backend: backend.device_count() > 1, "has one device here")
    def test_capture_over_two_devices_keeps_the_order_or_is_refused(self) -> None:
        """A capture over streams of two devices keeps their order in each replay, or raises and is undone."""
        for device, there in self._others():
            stream, cell, other, elsewhere = self.stream(), self.cell(), self.stream(device), there.new()
            graph = self.graph(stream)
            pieces = partial(self.enqueue_slow, stream, cell, 1, 1, times=PIECES)
            beside = partial(there.enqueue_slow, other, elsewhere, 1, 1)
            refused = self._is_refused(partial(self._fork_and_join, graph, pieces, other, beside))
            assert (self.read(cell), there.read(elsewhere)) == (0, 0), f"device {device}: the work ran"
            if not refused:
                for runs in (1, 2, 3):
                    graph.replay()
                    self._wait_until(partial(there.read, elsewhere), runs)
                    assert self.used.read(cell) == PIECES * runs, f"the fork to device {device} did not wait"
                graph.replay()
                stream.synchronize()
                assert there.read(elsewhere) == 4, f"the stream did not wait for device {device}"
                graph.reset()
            self.works(stream, graph)
            there.enqueue(other, elsewhere, 0, 7)
            other.synchronize()
            assert there.read(elsewhere) == 7, f"the stream of device {device} is unusable"

    def _others(self) -> Iterator[tuple[int, Work]]:
        """Yield the other devices, and the work for each."""
        for device in range(1, self.backend.device_count()):
            there = self.used.on(device)
            if there is None:
                raise SkipTest("the kit has no memory of other devices; override Work.on")
            yield device, there

    def _fork_and_join(
        self, graph: ag.Graph, pieces: Callable[[], None], other: ag.Stream, beside: Callable[[], None]
    ) -> None:
        with graph:
            assert graph.stream is not None
            pieces()
            other.wait(graph.stream)
            beside()
            graph.stream.wait(other)

    def _is_refused(self, call: Callable[[], object]) -> bool:
        try:
            return self.refusal(call) is not None
        except ag.UnsupportedError:
            return True

    def _wait_until(self, read: Callable[[], int], value: int) -> None:
        end = time.monotonic() + self.time_limit / 4
        while read() != value:
            assert time.monotonic() < end, "the forked work never ran"
