"""Lifetimes: what graphs and streams keep alive, when it can be released, and what is never released."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, CaptureStatus

from .._case import PIECES, Case, applied, needs, only_if


class LifetimeRules(Case):
    """Destruction never blocks, never raises, and disturbs no capture."""

    def test_graphs_collected_during_a_capture_leave_it_valid(self) -> None:
        """In every mode, collecting graphs during a capture (ready, kept, in a cycle) does not break it."""
        for mode in self.modes():
            other, unseen = self.stream(), self.cell()
            ready = self.captured(other, unseen)
            kept = self.captured(other, unseen, keep_graph=True)
            both = self.captured(other, unseen, keep_graph=True)
            both.instantiate()
            cyclic = self.captured(other, unseen)
            cyclic.retain(cyclic)
            with self.undisturbed_capture(capture_error_mode=mode):
                del ready, kept, both, cyclic
                self.collect()
            assert self.read(unseen) == 0

    def test_streams_made_and_dropped_during_a_capture_leave_it_valid(self) -> None:
        """In every mode, streams and graphs can be made and released during a capture."""
        for mode in self.modes():
            with self.undisturbed_capture(capture_error_mode=mode):
                self.graph(self.stream())
                gc.collect()
                self.stream().close()
                self.graph().reset()

    def test_resetting_another_graph_during_a_capture_leaves_it_valid(self) -> None:
        """In every mode, another graph can be reset during a capture."""
        for mode in self.modes():
            old = self.captured(self.stream(), self.cell())
            with self.undisturbed_capture(capture_error_mode=mode):
                old.reset()

    def test_capture_of_a_thread_that_ended_is_abandoned(self) -> None:
        """If a thread ends during its capture and the graph is collected, the stream is free again."""
        for mode in self.modes() - {"global"}:
            self._thread_ends(mode)

    @only_if(lambda backend: "global" in backend.capture_modes, "has no global captures")
    def test_global_capture_of_a_thread_that_ended_is_abandoned(self) -> None:
        """If a thread ends during its global capture and the graph is collected, the stream is free again."""
        self._thread_ends("global")

    def _thread_ends(self, mode: str) -> None:
        stream, cell, pool = self.stream(), self.cell(), ag.graph_pool_handle()

        def begin() -> None:
            self.graph(stream, pool=pool, capture_error_mode=mode).capture_begin()
            self.enqueue(stream, cell)

        try:
            self.in_thread(begin)
            self.collect()
            assert self.status(stream) is CaptureStatus.NONE, mode
            self.works(stream, self.graph(stream, pool=pool))
            assert self.read(cell) == 0
        finally:
            with suppress(ag.GraphStateError):  # which would hide another error
                stream.close()

    def test_capturing_graph_is_not_collected(self) -> None:
        """A graph that is being captured stays alive without a reference, and so does its capture."""
        stream, cell, graph = self.setup()
        reference = weakref.ref(graph)
        graph.capture_begin()
        del graph
        gc.collect()
        self.enqueue(stream, cell)
        assert self.status(stream) is CaptureStatus.ACTIVE
        found = reference()
        assert found is not None
        found.capture_end()
        assert self.replayed(found, cell) == applied(1)

    def test_graph_is_freed_without_the_collector(self) -> None:
        """A captured and replayed graph is in no reference cycle: it ends with its last reference."""
        stream, cell = self.stream(), self.cell()
        gc.disable()
        try:
            graph = self.captured(stream, cell)
            graph.replay()
            graph.bind(stream)()
            reference = weakref.ref(graph)
            del graph
            assert reference() is None
        finally:
            gc.enable()
        assert self.read(cell) == applied(2)

    def test_runs_complete_after_their_graph_has_gone(self) -> None:
        """Runs in progress complete when their graph is released or reset."""
        stream, cell = self.stream(), self.cell()
        for reset in (False, True):
            before = self.read(cell)
            graph = self.captured(stream, cell, slow=True)
            for _ in range(5):
                graph.replay()
            if reset:
                graph.reset()
            del graph
            self.collect()
            assert self.read(cell) == applied(5, start=before)

    def test_graph_keeps_its_stream_alive(self) -> None:
        """A graph can be replayed after the last reference to the captured stream is gone."""
        stream, cell, graph = self.setup_captured()
        del stream
        self.collect()
        graph.replay()
        graph.replay()
        assert graph.stream is not None
        graph.stream.synchronize()
        assert self.read(cell) == applied(2)

    @needs(Capability.EVENTS)
    def test_graph_outlives_the_streams_that_took_part(self) -> None:
        """A graph can be replayed after streams that were forked into its capture were closed."""
        stream, fork, cell = self.stream(), self.stream(), self.cell()
        with self.graph(stream) as graph:
            self.enqueue(stream, cell, 1, 5)
            fork.wait(stream)
            self.enqueue(fork, cell, 3, 0)
            stream.wait(fork)
        fork.close()
        stream.close()
        gc.collect()
        other = self.stream()
        graph.replay(other)
        graph.bind(other)()
        assert self.read(cell) == (5 * 3 + 5) * 3

    def test_retained_objects_live_until_reset(self) -> None:
        """`retain` returns its argument and keeps it until `reset`, over captures and replays."""
        stream, cell, graph = self.setup()
        thing = set[int]()
        assert graph.retain(thing) is thing
        with graph:
            during = weakref.ref(graph.retain(set[int]()))
            self.enqueue(stream, cell)
        before = weakref.ref(thing)
        del thing
        graph.replay()
        gc.collect()
        assert before() is not None
        assert during() is not None
        graph.reset()
        gc.collect()
        assert before() is None
        assert during() is None
        assert self.read(cell) == applied(1)

    def test_cycles_through_a_graph_are_collected(self) -> None:
        """A reference cycle through a graph, its bound callable or its stream's owner is collected."""
        stream, cell = self.stream(), self.cell()
        holder = _Owner(stream)
        theirs = holder if self.backend.cuda_like else stream
        holder.graph = graph = self.graph(theirs, backend=self.backend.name, keep_graph=True)
        with graph:
            self.enqueue(stream, cell)
        graph.replay()
        holder.launch = graph.bind()
        graph.retain(holder)
        gone = weakref.ref(holder)
        stream.synchronize()
        del graph, holder, theirs
        self.collect()
        gc.collect()
        assert gone() is None
        assert not [each for each in gc.get_objects() if type(each) is _Owner]
        assert self.read(cell) == applied(1)


class _Owner:
    """Somebody else's stream, with the graph and the callable that were made from it."""

    graph: ag.Graph
    launch: Callable[[], None]

    def __init__(self, stream: ag.Stream) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.stream.handle)


FIRST, ROUNDS, MOST_OBJECTS = 3, 20, 30
"""How often something is done before the objects are counted, and between that and the second count."""


class Abandoned(Exception):
    """Ends a capture."""


class LeakRules(Case):
    """What is done again and again leaves no object of the runtime; `Work.live_objects` counts them."""

    def test_captures_and_replays_leave_nothing_alive(self) -> None:
        """Graphs that are captured, bound, replayed and reset leave no object of the runtime."""
        stream, other, cell = self.stream(), self.stream(), self.cell()

        def once() -> None:
            with self.graph(stream, keep_graph=True) as graph:
                self.enqueue(stream, cell)
            graph.instantiate()
            for _ in range(3):
                graph.replay()
                graph.bind(other)()
            graph.reset()
            self.captured(stream, cell).replay()
            self.captured(stream, cell)

        self._leaves_nothing(once)

    def test_replays_leave_nothing_alive(self) -> None:
        """Replays of one graph, on its stream and on another, leave no object of the runtime."""
        _, _, graph = self.setup_captured()
        other = self.stream()

        def once() -> None:
            graph.replay()
            graph.replay(other)

        self._leaves_nothing(once)

    def test_captures_that_fail_leave_nothing_alive(self) -> None:
        """Captures that raise, are reset, or end with an error leave no object of the runtime."""
        stream, cell = self.stream(), self.cell()

        def once() -> None:
            with suppress(Abandoned), self.graph(stream):
                self.enqueue(stream, cell)
                raise Abandoned
            graph = self.graph(stream)
            graph.capture_begin()
            self.enqueue(stream, cell)
            graph.reset()
            if self.has(Capability.EVENTS):
                with suppress(ag.CaptureError), self.graph(stream):
                    fork = self.stream()
                    fork.wait(stream)
                    self.enqueue(fork, cell)
                fork.close()

        self._leaves_nothing(once)

    @needs(Capability.EVENTS)
    def test_streams_and_events_leave_nothing_alive(self) -> None:
        """Streams and events that are dropped, in a capture or not, leave no object of the runtime."""
        stream, cell = self.stream(), self.cell()

        def once() -> None:
            other = self.stream()
            other.wait(stream.record())
            self.enqueue(other, cell)
            with self.graph(stream):
                other.wait(stream.record())
                self.enqueue(other, cell)
                stream.wait(other)
            other.close()
            self.stream()

        self._leaves_nothing(once)

    @needs(Capability.TIMING)
    def test_timed_events_leave_nothing_alive(self) -> None:
        """Timed events that are read and dropped leave no object of the runtime."""
        stream, cell = self.stream(), self.cell()

        def once() -> None:
            start = stream.record(timing=True)
            self.enqueue(stream, cell)
            end = stream.record(timing=True)
            end.synchronize()
            start.elapsed_time(end)

        self._leaves_nothing(once)

    @needs(Capability.GRAPH_EVENTS)
    def test_timed_executables_leave_nothing_alive(self) -> None:
        """Executables with timed events leave no object of the runtime once both are destroyed."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        graph = self.recorded(stream, cell)

        def once() -> None:
            self._timed(graph, stream)

        self._leaves_nothing(once)
        backend.destroy_graph(graph)

    def test_updates_leave_nothing_alive(self) -> None:
        """A graph that is updated again and again leaves no object of the runtime."""
        stream, cell = self.stream(), self.cell()
        graph, *others = (self.captured(stream, cell, keep_graph=True) for _ in range(3))

        def once() -> None:
            for other in others:
                graph.update(other)
                graph.replay()

        self._leaves_nothing(once)

    def test_what_a_destroyed_executable_used_is_released_after_its_run(self) -> None:
        """A destroyed executable is released once its last run was waited for and its stream used again."""
        self.skip_unless(self.used.live_objects() is not None, "has a Work without live_objects")
        backend, stream, cell = self.backend, self.stream(), self.cell()
        with self.executable(stream, cell) as living, self.used.counting():

            def alive() -> dict[str, int]:
                for _ in range(FIRST):
                    backend.replay(living, stream.native)
                    stream.synchronize()
                self.collect()
                gc.collect()
                return dict(self.used.live_objects() or {})

            def made() -> Any:
                with self.graph(stream, keep_graph=True) as graph:
                    self.enqueue_slow(stream, cell)
                return backend.instantiate(graph._kept("replay()").native)

            for _ in range(FIRST):
                executable = made()
                backend.replay(executable, stream.native)
                stream.synchronize()
                backend.destroy_executable(executable)
            del executable
            before = alive()
            executables = [made() for _ in range(FIRST)]
            self.enqueue_slow(stream, cell, times=PIECES)
            for each in executables:
                backend.replay(each, stream.native)
            for each in executables:
                backend.destroy_executable(each)
            executables.clear()
            del each
            end = time.monotonic() + self.patience
            while left := {
                kind: n - before.get(kind, 0) for kind, n in alive().items() if n > before.get(kind, 0)
            }:
                assert time.monotonic() < end, f"after {FIRST} executables, so many more are alive: {left}"

    def test_refused_calls_leave_nothing_alive(self) -> None:
        """Whichever object the runtime refuses, a call leaves no object behind when it raises."""
        self.skip_unless(self.used.exhausted(0), "has a Work without `exhausted`")
        recorded = self.recorded(self.stream(), self.cell())
        for name, call in self._calls(recorded).items():
            for after in range(MOST_OBJECTS):
                if not self._leaves_nothing_when_refused(name, call, after):
                    break
            else:
                raise AssertionError(f"{name}: refused after {MOST_OBJECTS} objects; does `exhausted` count?")
        self.backend.destroy_graph(recorded)

    def _calls(self, recorded: Any) -> dict[str, Callable[[], object]]:
        """Return calls that make objects, and destroy all that they have made; `recorded` is a graph."""
        backend, stream, fork, cell = self.backend, self.stream(), self.stream(), self.cell()
        with self.graph(stream, keep_graph=True) as whole:
            self.enqueue(stream, cell)
            if self.has(Capability.EVENTS):
                fork.wait(stream)
                self.enqueue(fork, cell)
                stream.wait(fork)
        whole.instantiate()
        other = self.captured(stream, cell, keep_graph=True)

        def instantiate() -> None:
            clone = whole.clone()
            try:
                clone.instantiate()
            finally:
                clone.reset()

        def replay() -> None:
            whole.replay(stream)
            stream.synchronize()

        def update() -> None:
            for each in (other, whole):
                graph.update(each)

        graph = whole.clone()
        graph.instantiate()
        calls: dict[str, Callable[[], object]] = {
            "create_stream": lambda: backend.destroy_stream(backend.create_stream(0)),
            "a capture": lambda: self.captured(stream, cell).reset(),
            "instantiate": instantiate,
            "replay": replay,
            "update": update,
        }
        if self.has(Capability.EVENTS):
            calls["record_event"] = lambda: backend.destroy_event(backend.record_event(stream.native))
        if self.has(Capability.TIMING):
            calls["a timed event"] = lambda: backend.destroy_event(
                backend.record_event(stream.native, timed=True)
            )
        if self.has(Capability.GRAPH_EVENTS):
            calls["instantiate_timed"] = lambda: self._timed(recorded)
        return calls

    def _timed(self, graph: Any, stream: ag.Stream | None = None) -> None:
        """Make an executable with events, run it if there is a stream, and destroy it."""
        executable, events = self.backend.instantiate_timed(graph, [0], [0])
        if stream is not None:
            self.backend.replay(executable, stream.native)
            stream.synchronize()
        self.backend.destroy_executable(executable)
        for event in events:
            self.backend.destroy_event(event)

    def _leaves_nothing_when_refused(self, name: str, call: Callable[[], object], after: int) -> bool:
        """Check that a call leaves nothing if the runtime makes only so many objects; return if it raises."""
        refused = list[ag.errors.Reason]()

        def once() -> None:
            with self.used.exhausted(after) or nullcontext():
                error = self.refusal(call)
            if error is not None:  # itself, it would keep what its cause refers to
                refused.append(error.reason)

        if self.used.live_objects() is None:
            once()
        else:
            self._leaves_nothing(once, f"{name} with {after} objects")
        if self.used.exhausts_memory:
            assert set(refused) <= {"out_of_memory"}, f"{name}: without memory, the reason is {refused[0]!r}"
        return bool(refused)

    def _leaves_nothing(self, once: Callable[[], None], what: str = "") -> None:
        """Do something several times; check that each kind of object grows by less than one each time."""
        self.skip_unless(self.used.live_objects() is not None, "has a Work without live_objects")
        with self.used.counting():
            before = self._alive(once, FIRST)
            after = self._alive(once, ROUNDS)
        leaked = {kind: count - before.get(kind, 0) for kind, count in after.items()}
        leaked = {kind: count for kind, count in leaked.items() if count >= ROUNDS}
        assert not leaked, f"{what and f'{what}: '}after {ROUNDS} rounds, so many more are alive: {leaked}"

    def _alive(self, once: Callable[[], None], times: int) -> dict[str, int]:
        """Do something several times; return what is alive then."""
        for _ in range(times):
            once()
            self.synchronize()  # a runtime may release what a run needed in a call after its end
        self.collect()
        gc.collect()  # what the library has just destroyed
        return dict(self.used.live_objects() or {})
