"""Calls of other threads, and those of a signal handler: a KeyboardInterrupt can arrive at any moment."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from abc import ABC
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from types import FrameType
from typing import Any, TypeVar

import accelerator_graph as ag
from accelerator_graph.backends.base import Backend, Capability, CaptureMode, CaptureStatus

from .._case import Case, applied, expect, folder, only_if


class ThreadRules(Case):
    """A graph can be replayed from several threads; a capture belongs to the thread that began it."""

    def test_capture_end_from_another_thread_is_refused(self) -> None:
        """`capture_end` and `reset` from another thread raise and name both threads; the capture goes on."""
        stream, cell, graph = self.setup()

        def interfere(call: Callable[[], None]) -> None:
            caught = expect(ag.GraphStateError, call)
            assert threading.current_thread().name in str(caught)
            assert capturer in str(caught)

        capturer = threading.current_thread().name
        graph.capture_begin()
        self.enqueue(stream, cell)
        for call in (graph.capture_end, graph.reset):
            self.in_thread(partial(interfere, call), name="interferer")
            assert graph.state == "capturing"
            assert self.status(stream) is CaptureStatus.ACTIVE
        self.enqueue(stream, cell)
        graph.capture_end()
        assert self.replayed(graph, cell) == applied(2)

    def test_reset_abandons_the_capture_of_a_thread_that_has_ended(self) -> None:
        """After the capturing thread has ended, `reset` from any thread abandons its capture."""
        for mode in self.modes() - {"global"}:
            self._reset_after_the_thread(mode)

    @only_if(lambda backend: "global" in backend.capture_modes, "has no global captures")
    def test_reset_abandons_the_global_capture_of_a_thread_that_has_ended(self) -> None:
        """After the thread of a global capture has ended, `reset` from any thread abandons the capture."""
        self._reset_after_the_thread("global")

    def _reset_after_the_thread(self, mode: str) -> None:
        stream, cell, graph = self.setup(capture_error_mode=mode)

        def begin() -> None:
            graph.capture_begin()
            self.enqueue(stream, cell)

        try:
            self.in_thread(begin, name="gone")
            assert graph.state == "capturing"
            expect(ag.GraphStateError, graph.capture_end, match="gone")
            graph.reset()
            graph.capture_error_mode = "default"
            self.works(stream, graph)
            assert self.read(cell) == 0
        finally:
            with suppress(ag.GraphStateError):  # which would hide another error
                graph.reset()
                stream.close()

    def test_current_stream_is_per_thread(self) -> None:
        """Neither ``with stream`` nor a capture changes the current stream of another thread."""
        stream, graph = self.stream(), self.graph()
        with stream, graph:
            assert self.in_thread(partial(ag.current_stream, required=False)) is None
            assert self.in_thread(ag.is_current_stream_capturing) is False
            self.enqueue(stream, self.cell())

    def test_captures_in_two_threads_at_once(self) -> None:
        """Captures on different streams overlap in two threads; each graph has its own work."""
        rounds, barrier = 5, threading.Barrier(2, timeout=self.patience)
        streams, cells = [self.stream(), self.stream()], [self.cell(), self.cell()]

        def capture(which: int) -> list[ag.Graph]:
            graphs = []
            for _ in range(rounds):
                graph = self.graph(streams[which])
                barrier.wait()
                with graph:
                    self.enqueue(streams[which], cells[which], times=1 + which)
                    barrier.wait()
                graphs.append(graph)
            return graphs

        for graphs in self.in_threads([partial(capture, 0), partial(capture, 1)]):
            for graph in graphs:
                graph.replay()
        assert [self.read(cell) for cell in cells] == [applied(rounds), applied(2 * rounds)]

    def test_captures_beside_a_thread_that_makes_and_drops_executables(self) -> None:
        """Captures succeed while another thread instantiates, replays and drops graphs all the time."""
        stream, other, cell, elsewhere = self.stream(), self.stream(), self.cell(), self.cell()
        captures, done = 300, threading.Event()
        kept = [self.captured(other, elsewhere) for _ in range(200)]

        def capture() -> int:
            try:
                for _ in range(captures):
                    self.captured(stream, cell).replay()
            finally:
                done.set()
            return captures

        def instantiate() -> int:
            runs = 0
            while not done.is_set():
                kept[runs % len(kept)] = graph = self.captured(other, elsewhere)
                graph.replay()
                runs += 1
            return runs

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            counts = self.in_threads([capture, instantiate])
        finally:
            sys.setswitchinterval(interval)
        assert [self.read(cell), self.read(elsewhere)] == [applied(count) for count in counts]

    def test_work_of_another_thread_is_not_captured_on_another_stream(self) -> None:
        """During a capture, work that another thread enqueues on a stream of its own runs at once."""
        stream, other, cell, outside = self.stream(), self.stream(), self.cell(), self.cell()
        with self.graph(stream) as graph:
            self.enqueue(stream, cell)
            self.in_thread(lambda: self.enqueue(other, outside))
        assert (self.read(cell), self.read(outside)) == (0, applied(1))
        graph.replay()
        assert (self.read(cell), self.read(outside)) == (applied(1), applied(1))

    def test_every_call_works_on_a_thread_that_never_saw_the_device(self) -> None:
        """Each call can be the first one of its thread: events, captures, inspection, release."""
        stream, other, cell = self.in_thread(self.stream), self.in_thread(self.stream), self.cell()
        graph, expected = self.graph(stream, keep_graph=True), applied(1)

        def capture() -> None:
            with graph:
                self.enqueue(stream, cell)

        self.enqueue(stream, cell)
        if self.has(Capability.EVENTS):
            event = self.in_thread(stream.record)
            self.in_thread(lambda: other.wait(event))
            self.in_thread(stream.query)
            del event
        self.in_thread(capture)
        if self.has(Capability.NODES):
            assert self.in_thread(lambda: graph.num_nodes) > 0
            with folder() as path:
                self.in_thread(lambda: graph.debug_dump(path / "graph.dot"))
        if self.has(Capability.ENQUEUE):
            buffers = self.used.buffer(8), self.used.buffer(8)
            self.in_thread(lambda: stream.fill(buffers[0], 1))
            self.in_thread(lambda: stream.copy(buffers[1], buffers[0]))
        self.in_thread(graph.instantiate)
        launch = self.in_thread(graph.bind)
        for run in (graph.replay, launch, partial(graph.replay, other)):
            self.in_thread(run)
            expected = applied(1, start=expected)
        assert self.read(cell) == expected
        self.in_thread(graph.reset)
        self.works(stream, graph)
        for each in (stream, other):
            self.in_thread(each.synchronize)
            self.in_thread(each.close)

    def test_work_of_another_thread_on_the_captured_stream_is_recorded(self) -> None:
        """A capture belongs to the stream: other threads see it, and the work they enqueue is recorded."""
        stream, cell, graph = self.setup()
        with graph:
            self.enqueue(stream, cell, 1, 5)
            assert self.in_thread(lambda: self.status(stream)) is CaptureStatus.ACTIVE
            self.in_thread(lambda: self.enqueue(stream, cell, 3, 0))
            self.enqueue(stream, cell, 1, 1)
        assert self.in_thread(lambda: self.status(stream)) is CaptureStatus.NONE
        assert self.read(cell) == 0
        assert self.replayed(graph, cell) == 16


T = TypeVar("T")


class InterruptRules(Case):
    """Calls that begin or end a capture either complete or have no effect."""

    def test_interrupted_capture_begin_leaves_no_capture(self) -> None:
        """A KeyboardInterrupt at any moment of `capture_begin` leaves no capture on the stream."""
        stream, cell, graph = self.setup()
        for interrupter in interrupters(self.backend):
            try:
                token = interrupter.run(partial(self.begin, stream))
            except KeyboardInterrupt:
                assert self.status(stream) is CaptureStatus.NONE, interrupter.where
                token = self.begin(stream)
            self.enqueue(stream, cell)
            self.backend.capture_abandon(token)
        self.works(stream, graph)
        assert self.read(cell) == 0

    def test_interrupted_capture_end_leaves_no_capture(self) -> None:
        """After a KeyboardInterrupt at any moment of `capture_end`, `capture_abandon` leaves no capture."""
        backend, stream, fork, cell = self.backend, self.stream(), self.stream(), self.cell()
        for interrupter in interrupters(backend):
            token = self.begin(stream)
            self.enqueue(stream, cell)
            if self.has(Capability.EVENTS):
                fork.wait(stream)
                self.enqueue(fork, cell)
                stream.wait(fork)
            try:
                backend.destroy_graph(interrupter.run(partial(backend.capture_end, token)))
            except KeyboardInterrupt:
                backend.capture_abandon(token)
                for each in (stream, fork):
                    assert self.status(each) is CaptureStatus.NONE, interrupter.where
        for each in (stream, fork):
            self.works(each, self.graph(each))
        assert self.read(cell) == 0

    def test_interrupted_replay_is_done_or_not(self) -> None:
        """After a KeyboardInterrupt at any moment of `replay` that run is done or not, and others work."""
        backend, stream, other, cell = self.backend, self.stream(), self.stream(), self.cell()
        with self.executable(stream, cell) as executable:
            for replay in (
                partial(backend.replay, executable, stream.native),
                self.bound(executable, stream.native),
            ):
                for interrupter in interrupters(backend):
                    before = self.read(cell)
                    with suppress(KeyboardInterrupt):
                        interrupter.run(replay)
                    found = self.read(cell)
                    assert found in (before, applied(1, start=before)), interrupter.where
                    for each in (other, stream):
                        backend.replay(executable, each.native)
                    assert self.read(cell) == applied(2, start=found), interrupter.where

    def test_run_behind_an_interrupted_replay_waits_for_it(self) -> None:
        """If an interrupted `replay` has begun a run, the next one, on another stream, waits for it."""
        backend, stream, other = self.backend, self.stream(), self.stream()
        begun, cell = self.cell(), self.cell()
        token = self.begin(stream)
        self.enqueue(stream, begun)
        self.enqueue_slow(stream, cell, times=3)  # two runs at once would lose some of it
        graph = backend.capture_end(token)
        executable = backend.instantiate(graph)
        backend.destroy_graph(graph)
        runs = 0
        for replay in (
            partial(backend.replay, executable, stream.native),
            self.bound(executable, stream.native),
        ):
            for interrupter in interrupters(backend):
                with suppress(KeyboardInterrupt):
                    interrupter.run(replay)
                backend.replay(executable, other.native)
                found = self.read(begun)
                assert found in (applied(runs + 1), applied(runs + 2)), interrupter.where
                runs += 1 if found == applied(runs + 1) else 2
                assert self.read(cell) == applied(3 * runs), f"two runs at once: {interrupter.where}"
        backend.destroy_executable(executable)

    def test_interrupted_destroy_can_be_called_again(self) -> None:
        """If a ``destroy_`` method is interrupted, it can be called again; runs in progress complete."""
        backend, stream, cell, beside = self.backend, self.stream(), self.cell(), self.cell()
        graphs: list[Any] = []

        def executable() -> Any:
            graphs.append(self.recorded(stream, cell))
            made = backend.instantiate(graphs[-1])
            self.enqueue_slow(stream, beside, times=3)
            backend.replay(made, stream.native)
            return made

        made: list[tuple[Callable[[], Any], Callable[[Any], None]]] = [
            (partial(self.recorded, stream, cell), backend.destroy_graph),
            (executable, backend.destroy_executable),
            (partial(backend.create_stream, 0), backend.destroy_stream),
        ]
        if self.has(Capability.EVENTS):
            made.append((partial(backend.record_event, stream.native), backend.destroy_event))
        for make, destroy in made:
            for interrupter in interrupters(backend):
                value = make()
                try:
                    interrupter.run(partial(destroy, value))
                except KeyboardInterrupt:
                    destroy(value)
        assert self.read(cell) == applied(len(graphs))
        for graph in graphs:
            backend.destroy_graph(graph)
        self.works(stream, self.graph(stream))


class NestedCallRules(Case):
    """A signal handler may call the backend in the middle of another call of the same thread."""

    def test_replay_inside_a_replay_is_a_run_before_or_behind_it(self) -> None:
        """A replay in the middle of one of the same executable is a whole run, before or behind the other."""
        backend, stream, other, cell, beside = (
            *(self.backend, self.stream(), self.stream()),
            *(self.cell(), self.cell()),
        )
        with self.executable(stream, cell, slow=True) as executable:
            for where in (other, stream):
                inner = partial(backend.replay, executable, where.native)
                for outer in (
                    partial(backend.replay, executable, stream.native),
                    self.bound(executable, stream.native),
                ):
                    for interrupter in interrupters(backend, inner):
                        before = self.read(cell)
                        for each in {stream, where}:  # so no run begins before both calls have returned
                            self.enqueue_slow(each, beside, times=2)
                        interrupter.run(outer)
                        runs = 2 if interrupter.where else 1
                        assert self.read(cell) == applied(runs, start=before), interrupter.where

    def test_calls_inside_calls_are_both_done(self) -> None:
        """In the middle of a call, each other call does what it does elsewhere: locks are re-entrant."""
        backend, stream, other, cells = self.backend, self.stream(), self.stream(), [self.cell(), self.cell()]
        counts = dict.fromkeys(("enqueue", "replay"), 0)

        def enqueue() -> None:
            counts["enqueue"] += 1
            self.enqueue(stream, cells[0], 1, 1)

        def replay() -> None:
            counts["replay"] += 1
            backend.replay(executable, other.native)

        def capture() -> None:  # its mode may forbid waits of this thread
            stream = backend.create_stream(0)
            mode: CaptureMode = "relaxed" if "relaxed" in backend.capture_modes else backend.capture_modes[0]
            graph = backend.capture_end(backend.capture_begin(stream, mode))
            made = backend.instantiate(graph)
            backend.destroy_graph(graph)
            backend.destroy_executable(made)
            backend.destroy_stream(stream)

        def fork() -> None:
            event = backend.record_event(stream.native)
            backend.wait_event(other.native, event)
            backend.destroy_event(event)
            backend.query(stream.native)

        calls: dict[str, Callable[[], object]] = {"enqueue": enqueue, "replay": replay, "a capture": capture}
        waits: dict[str, Callable[[], object]] = {"synchronize": partial(backend.synchronize, stream.native)}
        if self.has(Capability.EVENTS):
            waits["events"] = fork
        with self.executable(other, cells[1]) as executable:
            for name, outer in (calls | waits).items():
                for inside, inner in (calls if outer is capture else calls | waits).items():
                    for interrupter in interrupters(backend, inner):
                        interrupter.run(outer)
                        what = f"{inside} inside {name}, {interrupter.where}"
                        assert self.read(cells[0]) == counts["enqueue"], what
                        assert self.read(cells[1]) == applied(counts["replay"]), what


def interrupt() -> None:
    """Do what a signal handler does after control-C."""
    raise KeyboardInterrupt


class Interrupter:
    """Calls a function in another call, at the n-th moment at which a signal could come in the backend.

    These are the beginnings of functions, and the returns from C and from the runtime's functions. `where`
    says at which it was.
    """

    def __init__(self, backend: Backend, at: int, handler: Callable[[], object]) -> None:
        self._handler = handler
        kinds = set(type(backend).__mro__) - {Backend, ABC, object}
        functions = (each for kind in kinds for each in vars(kind).values() if inspect.isfunction(each))
        codes = (inspect.unwrap(function).__code__ for function in functions)  # else those of the kit's watch
        folders = {os.path.dirname(code.co_filename) + os.sep for code in codes}
        self._folders = tuple(folders)
        self._left = at
        self.where: str = ""

    def run(self, call: Callable[[], T]) -> T:
        """Return the result of a call, if it is not interrupted."""
        before = sys.getprofile()
        sys.setprofile(self._look)
        try:
            return call()
        finally:
            sys.setprofile(before)

    def _look(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        inside = code.co_filename.startswith(self._folders)
        begins = inside and event == "call" and not code.co_flags & inspect.CO_GENERATOR
        if not (begins or (inside and event == "c_return") or self._has_returned(frame, event)):
            return
        if _in_a_finalizer(frame):  # an exception from a finalizer reaches nobody
            return
        self._left -= 1
        if self._left == 0:
            what = f"after {getattr(arg, '__name__', arg)}" if event == "c_return" else "at the beginning"
            if not inside:
                what, frame = f"after {code.co_name}", frame.f_back or frame
            self.where = f"interrupted in {frame.f_code.co_qualname}, line {frame.f_lineno}, {what}"
            self._handler()

    def _has_returned(self, frame: FrameType, event: str) -> bool:
        """Return True if the backend has called this function, and it is one of a runtime in Python.

        After Python's own, too, a signal can come, but what it breaks then nobody could mend.
        """
        code, caller = frame.f_code, frame.f_back
        if event != "return" or caller is None or code.co_flags & inspect.CO_GENERATOR:
            return False
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        known = (*sys.stdlib_module_names, __name__.partition(".")[0])
        return (
            caller.f_code.co_filename.startswith(self._folders)
            and not code.co_filename.startswith(self._folders)
            and module not in known
        )


def interrupters(backend: Backend, handler: Callable[[], object] = interrupt) -> Iterator[Interrupter]:
    """Yield an interrupter for each moment in turn, up to the first one that a call does not reach."""
    for at in count(1):
        interrupter = Interrupter(backend, at, handler)
        yield interrupter
        if not interrupter.where:
            return


def _in_a_finalizer(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None
