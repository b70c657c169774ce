"""Members of the contract, called directly: their results and their promises."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from typing import Any
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import (
    Backend,
    Capability,
    CaptureInfo,
    CaptureStatus,
    LaunchFunction,
    Lends,
    SameContext,
    SameStream,
)

from .._case import Case, applied, needs, raises


class MemberRules(Case):
    """Methods and attributes of a backend that programs use only indirectly."""

    def _recorded(self, stream: ag.Stream, cell: Any) -> Any:
        """Return the backend's graph of one piece of work."""
        token = self.backend.capture_begin(stream.native, self.backend.capture_modes[0])
        try:
            self.enqueue(stream, cell)
        except BaseException:
            self.backend.capture_abandon(token)
            raise
        return self.backend.capture_end(token)

    def _executable(self, stream: ag.Stream, cell: Any) -> Any:
        """Return an executable of one piece of work. Its graph is destroyed."""
        graph = self._recorded(stream, cell)
        executable = self.backend.instantiate(graph)
        self.backend.destroy_graph(graph)
        return executable

    @needs(Capability.HANDLES)
    def test_handle_int_tells_objects_apart(self) -> None:
        """`handle_int` returns an int for a stream, a graph or an executable, different for two live ones."""
        backend, first, second, cell = self.backend, self.stream(), self.stream(), self.cell()
        graph = self._recorded(first, cell)
        executable = backend.instantiate(graph)
        handles = [backend.handle_int(each) for each in (first.native, second.native, graph, executable)]
        assert all(type(handle) is int and 0 < handle < 1 << 64 for handle in handles)
        assert handles[0] != handles[1]
        backend.destroy_graph(graph)
        backend.destroy_executable(executable)

    def test_capture_info_tells_captures_apart(self) -> None:
        """`capture_info` returns None, or an id that the streams of one capture share with no others."""
        backend = self.backend
        first, fork, second, cell = self.stream(), self.stream(), self.stream(), self.cell()
        assert backend.capture_info(first.native) is None
        with self.graph(first):
            info = backend.capture_info(first.native)
            assert info is None or isinstance(info, CaptureInfo)
            if self.has(Capability.EVENTS):
                fork.wait(first)
                assert backend.capture_info(fork.native) == info
                first.wait(fork)
            self.enqueue(first, cell)
            with self.graph(second):
                self.enqueue(second, cell)
                other = backend.capture_info(second.native)
                assert (info is None) == (other is None)
                assert info is None or other is None or info.id != other.id
        assert backend.capture_info(first.native) is backend.capture_info(fork.native) is None

    def test_context_id_is_shared_by_streams_that_are_alike(self) -> None:
        """`context_id` returns None, or an int that a stream shares with streams made `like` it."""
        stream = self.stream()
        found = self.backend.context_id(stream.native)
        assert found is None or type(found) is int
        assert self.backend.context_id(self.stream(like=stream).native) == found
        assert self.in_thread(lambda: self.backend.context_id(stream.native)) == found

    @needs(Capability.UPLOAD)
    def test_upload_runs_nothing(self) -> None:
        """`upload` runs no work of the graph; later replays run it as usual."""
        stream, other, cell = self.stream(), self.stream(), self.cell()
        executable = self._executable(stream, cell)
        for each in (stream, stream, other):
            self.backend.upload(executable, each.native)
        assert self.read(cell) == 0
        self.backend.replay(executable, stream.native)
        assert self.read(cell) == applied(1)
        self.backend.destroy_executable(executable)

    def test_executables_of_one_graph_live_side_by_side_or_one_after_another(self) -> None:
        """Two executables of a graph can live at once; one after another if `single_executable` is True."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        graph = self._recorded(stream, cell)
        executable = backend.instantiate(graph)
        backend.replay(executable, stream.native)
        stream.synchronize()
        if backend.single_executable(graph):
            backend.destroy_executable(executable)
            executable = backend.instantiate(graph)
        else:
            second = backend.instantiate(graph)
            for each in (second, executable):
                backend.replay(each, stream.native)
                stream.synchronize()
            backend.destroy_executable(second)
        backend.destroy_graph(graph)
        before = self.read(cell)
        backend.replay(executable, stream.native)
        assert self.read(cell) == applied(1, start=before)
        assert before in (applied(1), applied(3))
        backend.destroy_executable(executable)

    def test_launch_function_does_what_replay_does(self) -> None:
        """The function of `launch_function` runs the executable, and its `failed` raises."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        executable = self._executable(stream, cell)
        backend.replay(executable, stream.native)
        found = backend.launch_function(executable, stream.native)
        if found is None:
            backend.destroy_executable(executable)
            raise SkipTest(f"backend {backend.name!r} does not launch executables in C")
        assert isinstance(found, LaunchFunction)
        assert isinstance(found.guard, SameStream | SameContext | None)
        assert not (isinstance(found.guard, SameStream) and backend.serialises_replays)
        assert found.capturing or not backend.replay_ignores_captures
        handles = [ctypes.c_void_p(backend.handle_int(each)) for each in (executable, stream.native)]
        runs = 1
        if not isinstance(found.guard, SameContext):
            if isinstance(found.guard, SameStream):
                latest = ctypes.c_void_p.from_address(found.guard.address)
                assert latest.value == handles[1].value
            launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(found.address)
            assert launch(*handles) == 0
            runs += 1
        assert self.read(cell) == applied(runs)
        with raises(ag.DriverError):
            found.failed(1)
        backend.destroy_executable(executable)

    def test_serialised_replays_are_all_done(self) -> None:
        """With `serialises_replays`, several threads launch one executable at once, and no run is lost."""
        backend, streams, cell = self.backend, [self.stream() for _ in range(2)], self.cell()
        if not backend.serialises_replays:
            raise SkipTest(f"backend {backend.name!r} lets the library serialise replays")
        executable = self._executable(streams[0], cell)

        def replay(stream: ag.Stream) -> None:
            launch = backend.bind(executable, stream.native)
            for _ in range(10):
                launch()
                backend.replay(executable, stream.native)

        self.in_threads([lambda stream=stream: replay(stream) for stream in streams * 2])  # type: ignore[misc]
        assert self.read(cell) == applied(80)
        backend.destroy_executable(executable)

    def test_destroying_disturbs_no_capture(self) -> None:
        """The ``destroy_`` methods leave captures alone, unless `destroy_disturbs_captures` is True."""
        backend = self.backend
        if backend.destroy_disturbs_captures:
            raise SkipTest(f"backend {backend.name!r} lets the library wait for captures")
        stream, other, cell = self.stream(), self.stream(), self.cell()
        graph, kept = self.graph(stream), self._recorded(other, self.cell())
        executable, doomed = backend.instantiate(kept), backend.create_stream(0)
        event = backend.record_event(other.native) if self.has(Capability.EVENTS) else None
        with graph:
            self.enqueue(stream, cell)
            backend.destroy_executable(executable)
            backend.destroy_graph(kept)
            backend.destroy_stream(doomed)
            if event is not None:
                backend.destroy_event(event)
            assert self.status(stream) is CaptureStatus.ACTIVE
            self.enqueue(stream, cell)
        graph.replay()
        assert self.read(cell) == applied(2)

    def test_replay_ignores_captures_only_where_it_says_so(self) -> None:
        """`replay` onto a capturing stream records, raises, or (`replay_ignores_captures`) runs at once."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        executable = self._executable(stream, cell)
        token = backend.capture_begin(stream.native, backend.capture_modes[0])
        refused = self.refusal(lambda: backend.replay(executable, stream.native))
        backend.capture_abandon(token)
        ran = self.read(cell) == applied(1)
        assert ran <= backend.replay_ignores_captures
        assert refused is not None or ran or self.has(Capability.CHILD_GRAPHS)
        backend.destroy_executable(executable)

    def test_stream_modules_have_the_runtimes_own_streams(self) -> None:
        """If `as_stream` recognises the backend's stream objects, `stream_modules` names their package."""
        native = self.stream().native
        if self.backend.as_stream(native) is None:
            raise SkipTest(f"backend {self.backend.name!r} does not recognise stream objects")
        assert type(native).__module__.partition(".")[0] in self.backend.stream_modules

    def test_borrowed_objects_stay_their_owners(self) -> None:
        """Objects that a backend that `Lends` makes from handles work, and their end destroys nothing."""
        backend = self.backend
        if not isinstance(backend, Lends):
            raise SkipTest(f"backend {backend.name!r} does not lend graphs to frameworks")
        stream, cell = self.stream(), self.cell()
        graph = self._recorded(stream, cell)
        executable = backend.instantiate(graph)
        borrowed = backend.borrow_graph(backend.handle_int(graph), stream.native)
        assert backend.node_count(borrowed) == backend.node_count(graph)
        theirs = backend.borrow_executable(backend.handle_int(executable), stream.native)
        backend.replay(theirs, stream.native)
        del borrowed, theirs
        gc.collect()
        stream.synchronize()
        backend.replay(executable, stream.native)
        assert self.read(cell) == applied(2)
        backend.destroy_executable(executable)
        backend.destroy_graph(graph)

    def test_relaxed_contexts_end_as_they_began(self) -> None:
        """`relaxed` can be nested and left by an exception, on any thread."""
        native = self.stream().native

        def nest() -> None:
            with suppress(ZeroDivisionError), self.backend.relaxed(native):
                with self.backend.relaxed(native):
                    self.backend.synchronize(native)
                raise ZeroDivisionError

        nest()
        self.in_thread(nest)

    def test_every_class_says_what_it_is(self) -> None:
        """The class attributes have values of the right types."""
        kind = type(self.backend)
        for name in ("cuda_like", "replay_ignores_captures", "survives_fork", "serialises_replays"):
            assert type(getattr(kind, name)) is bool, name
        assert kind.priority is None or type(kind.priority) is int
        assert all(type(each) is str for each in kind.stream_modules)
        assert issubclass(kind, Backend)
