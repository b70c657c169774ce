"""Replays: on any stream, from any thread, and bound beforehand."""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import PIECES, Case, applied, expect, needs, raises


class ReplayRules(Case):
    """Runs of one graph, asked for in any way, take effect one after another in the order of the calls."""

    def test_replay_is_behind_the_streams_work(self) -> None:
        """A replay runs in stream order: after the work enqueued before it, and before later work."""
        stream, cell = self.stream(), self.cell()
        self.enqueue(stream, cell, 1, 5)
        graph = self.captured(stream, cell, 3, 0)
        self.enqueue_slow(stream, cell, 1, 1)
        graph.replay()
        self.enqueue(stream, cell, 1, 2)
        assert self.replayed(graph, cell) == ((5 + 1) * 3 + 2) * 3

    def test_replay_returns_without_waiting(self) -> None:
        """`replay`, and what `bind` returned, return while the run is in progress."""
        stream, cell = self.stream(), self.cell()
        with self.graph(stream) as graph:
            self.enqueue_slow(stream, cell, times=PIECES)
        graph.replay()  # the first one may have to wait
        stream.synchronize()
        ways: list[Callable[[], object]] = [
            partial(self.enqueue_slow, stream, cell, times=PIECES),
            graph.replay,
            graph.bind(),
        ]
        eager, *replays = [self.seen_in_progress(enqueue, stream, cell) for enqueue in ways]
        self.skip_unless(eager, "does work while it is enqueued")
        assert replays == [True, True], "the run was always done when the call returned"

    def test_replay_on_another_stream(self) -> None:
        """`replay(stream)` runs on that stream, in its order."""
        (stream, cell, graph), other = self.setup_captured(3, 0), self.stream()
        self.enqueue_slow(other, cell, 1, 5, times=5)
        graph.replay(other)
        self.enqueue(other, cell, 1, 1)
        assert self.read_after(other, cell) == 76
        assert graph.stream is stream
        with self.executable(stream, cell) as executable:
            self.enqueue_slow(other, cell, 1, 1, times=5)
            self.backend.replay(executable, other.native)
            assert self.read_after(other, cell) == applied(1, start=81)

    @needs(Capability.HANDLES)
    def test_replay_takes_anything_that_stands_for_a_stream(self) -> None:
        """`replay` and `bind` take a handle if the backend has handles, and refuse any other object."""
        stream, cell, graph = self.setup_captured()
        for bad in ("stream", 1.5, object()):
            expect(TypeError, graph.replay, bad)
            expect(TypeError, graph.bind, bad)
        assert self.read(cell) == 0
        graph.replay(stream.handle)
        graph.bind(stream.handle)()
        assert self.read(cell) == applied(2)

    def test_runs_on_two_streams_take_turns(self) -> None:
        """Runs of one graph on two streams, without a synchronisation, never overlap: none is lost."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        with self.graph(first) as graph:
            self.enqueue_slow(first, cell)
            self.enqueue(first, cell)
        for _ in range(10):
            graph.replay(first)
            graph.replay(second)
        assert self.read(cell) == applied(40)

    def test_runs_of_a_graph_are_in_call_order(self) -> None:
        """Runs of one graph on two streams take effect in call order."""
        first, second, cell, last = self.stream(), self.stream(), self.cell(), self.cell()
        graph = self.captured(first, cell, slow=True)
        for number in range(1, 6):
            self.enqueue_slow(first, last, 1, 1)
            graph.replay(first)
            graph.replay(second)
            assert self.read_after(second, last) == number
            assert self.used.read(cell) == applied(2 * number)

    def test_asking_for_a_run_while_one_runs_is_no_error(self) -> None:
        """Many replays can be enqueued before the first is done."""
        _, cell, graph = self.setup_captured(slow=True)
        assert self.replayed(graph, cell, times=30) == applied(30)

    def test_stream_of_another_device_is_refused(self) -> None:
        """A graph can be replayed only on its own device; a stream of another one is a ValueError."""
        _, cell, graph = self.setup_captured()
        for device in range(1, self.backend.device_count):
            expect(ValueError, graph.replay, self.stream(device), match="device")
            expect(ValueError, graph.bind, self.stream(device), match="device")
        assert self.replayed(graph, cell) == applied(1)

    def test_replays_from_several_threads_are_all_counted(self) -> None:
        """Four threads replay one graph at once: no run is lost, on one stream and on one each."""
        _, cell, graph = self.setup_captured()
        others = [self.stream() for _ in range(4)]
        self._all_counted(cell, 25, [graph.replay] * 4)
        self._all_counted(cell, 25, [graph.bind()] * 4)
        self._all_counted(cell, 25, [partial(graph.replay, other) for other in others])
        self._all_counted(cell, 25, [graph.bind(other) for other in others])

    def test_replays_of_two_threads_on_two_streams_are_not_lost(self) -> None:
        """If two threads replay slow work at once, each on a stream of its own, runs don't overlap."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        graph = self.captured(first, cell, slow=True)
        replays = [partial(graph.replay, first), partial(graph.replay, second)]
        self._all_counted(cell, 15, replays, switching=True)
        self._all_counted(cell, 15, [graph.bind(first), graph.bind(second)], switching=True)

    def test_runs_of_two_graphs_on_one_stream_do_not_mix(self) -> None:
        """If two threads replay two graphs on one stream at once, the work of each run stays together."""
        stream, cell = self.stream(), self.cell()
        tripled, added = self.graph(stream), self.graph(stream)
        with tripled:  # three times as much, then a third of it: no change, unless something comes between
            self.enqueue(stream, cell, 3, 0)
            self.enqueue(stream, cell, pow(3, -1, 2**32), 0)
        with added:
            self.enqueue(stream, cell, 1, 1)
        self._all_at_once(50, [tripled.replay, added.replay], switching=True)
        assert self.read(cell) == 50

    def test_reset_while_another_thread_replays(self) -> None:
        """A `reset` during replays of another thread lets started runs complete, and refuses later ones."""
        for _ in range(10):
            self._reset_during_replays()

    def _reset_during_replays(self) -> None:
        _, cell, graph = self.setup_captured()
        launch, going, completed = graph.bind(), threading.Event(), 0

        def repeat_until_refused() -> None:
            nonlocal completed
            with raises(ag.GraphStateError):
                while True:
                    launch()
                    completed += 1
                    going.set()

        def reset() -> None:
            self.wait(going)
            graph.reset()

        self.in_threads([repeat_until_refused, reset])
        assert completed >= 1
        assert self.read(cell) == applied(completed)

    def test_bound_callable_replays(self) -> None:
        """The callable from `bind` runs the graph once per call, on the captured stream or on another."""
        (stream, cell, graph), other = self.setup_captured(3, 0), self.stream()
        here, there = graph.bind(), graph.bind(other)
        assert self.read(cell) == 0
        self.enqueue_slow(stream, cell, 1, 5)
        here()
        here()
        assert self.read(cell) == 45
        self.enqueue_slow(other, cell, 1, 1)
        there()
        assert self.read(cell) == 46 * 3

    def test_bound_callables_take_turns(self) -> None:
        """If callables bound to two streams are called in turn, without a synchronisation, no run is lost."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        graph = self.captured(first, cell, slow=True)
        calls = graph.bind(first), graph.bind(second), graph.replay
        for _ in range(5):
            for call in calls:
                call()
        assert self.read(cell) == applied(15)

    def test_bound_callable_keeps_graph_and_stream_alive(self) -> None:
        """The callable holds graph and stream: it works when nobody else does, and after `Stream.close`."""
        (stream, cell, graph), other, closed = self.setup_captured(), self.stream(), self.stream()
        calls = graph.bind(), graph.bind(other), graph.bind(closed)
        closed.close()
        del graph, stream, other, closed
        self.collect()
        for call in calls:
            call()
        self.eventually(cell, applied(3))

    def test_bound_callable_raises_after_reset(self) -> None:
        """After `reset` the callable raises `GraphStateError` and runs nothing."""
        _, cell, graph = self.setup_captured()
        launch, replay = graph.bind(), graph.replay
        graph.reset()
        for call in (launch, replay):
            expect(ag.GraphStateError, call)
        assert self.read(cell) == 0

    def test_bound_callable_raises_after_a_recapture(self) -> None:
        """A callable from an earlier capture never runs a later one; `bind` makes a new one that does."""
        stream, cell, graph = self.setup_captured()
        old = graph.bind()
        graph.reset()
        with graph:
            self.enqueue(stream, cell, 1, 1)
        expect(ag.GraphStateError, old)
        assert self.read(cell) == 0
        graph.bind()()
        assert self.read(cell) == 1

    def test_bound_callable_goes_on_with_a_new_executable(self) -> None:
        """After `instantiate`, existing callables launch the new executable."""
        (_, cell, graph), other = self.setup_captured(keep_graph=True), self.stream()
        here, there = graph.bind(), graph.bind(other)
        for _ in range(3):
            here()
            there()
            graph.instantiate()
            gc.collect()
        here()
        there()
        assert self.read(cell) == applied(8)

    def _all_counted(
        self, cell: Any, runs: int, calls: Sequence[Callable[[], None]], *, switching: bool = False
    ) -> None:
        """Check that no run is lost if threads repeat the calls all at once."""
        before = self.read(cell)
        self._all_at_once(runs, calls, switching=switching)
        assert self.read(cell) == applied(len(calls) * runs, start=before)

    def _all_at_once(self, runs: int, calls: Sequence[Callable[[], None]], *, switching: bool) -> None:
        """Repeat each call in a thread of its own."""

        def repeat(call: Callable[[], None], seed: int) -> None:
            with switching_threads(random.Random(seed)) if switching else nullcontext():
                for _ in range(runs):
                    call()

        self.in_threads([partial(repeat, call, seed) for seed, call in enumerate(calls)])


@contextmanager
def switching_threads(chance: random.Random) -> Iterator[None]:
    """Let other threads run for a moment in the middle of the calls of this thread."""

    def switch(*event: object) -> None:
        time.sleep(chance.choice((0, 0, 0, 1e-4)))

    before = sys.getprofile()
    sys.setprofile(switch)
    try:
        yield
    finally:
        sys.setprofile(before)
