"""Members of the contract: their signatures, their results and their promises."""

from __future__ import annotations

import ctypes
import gc
import inspect
from collections.abc import Callable, Set
from functools import partial
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import (
    BACKEND_API_VERSIONS,
    Backend,
    Capability,
    CaptureInfo,
    CaptureStatus,
    LaunchFunction,
    Lends,
    SameContext,
    SameStream,
    StatusFunction,
)

from .._case import CONTRACT, METHODS, Case, applied, expect, needs, only_if, raises

NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class SignatureRules(Case):
    """Parameters of methods, and types of answers."""

    def test_methods_take_the_arguments_of_the_contract(self) -> None:
        """Every method takes the arguments of the contract, with and without those that have a default."""
        found = [wrong for name in METHODS if (wrong := self._wrong_signature(name))]
        if found:
            raise AssertionError("; ".join(found))

    def test_answers_have_the_types_of_the_contract(self) -> None:
        """`device_count`, `capabilities`, `device_of` and `capture_status` answer as the contract says."""
        backend = self.backend
        self._has_type("device_count", backend.device_count, int)
        self._has_type("capabilities", backend.capabilities(0), Set)
        stream = backend.create_stream(0)
        try:
            self._has_type("device_of", backend.device_of(stream), int)
            self._has_type("capture_status", backend.capture_status(stream), CaptureStatus)
        finally:
            backend.destroy_stream(stream)

    def _has_type(self, method: str, answer: object, wanted: type) -> None:
        if not isinstance(answer, wanted):
            raise AssertionError(
                f"{type(self.backend).__qualname__}.{method} must return a {wanted.__name__}, not {answer!r}"
            )

    def _wrong_signature(self, name: str) -> str | None:
        """Return a sentence if a method can't be called as the contract says."""
        kind = type(self.backend)
        if not hasattr(kind, name):
            return None  # it does not inherit the class that has it
        if not callable(getattr(kind, name)):
            return f"{kind.__qualname__}.{name} must be a method, not {inspect.getattr_static(kind, name)!r}"
        wanted = inspect.signature(CONTRACT[name].__get__(self.backend))
        try:
            given = inspect.signature(getattr(self.backend, name))
        except ValueError:  # written in C, without a signature
            return None
        if _takes(given, wanted, optional=True) and _takes(given, wanted, optional=False):
            return None
        return f"{kind.__qualname__}.{name} must take {_bare(wanted)}, not {_bare(given)}"


def _takes(given: inspect.Signature, wanted: inspect.Signature, *, optional: bool) -> bool:
    """Return True if a method can be called with all wanted arguments, or with those that have no default."""
    asked = [each for each in wanted.parameters.values() if optional or each.default is each.empty]
    by_place = [None for each in asked if each.kind in NAMED]
    by_name: dict[str, Any] = {each.name: None for each in asked if each.kind is each.KEYWORD_ONLY}
    if any(each.kind is each.VAR_KEYWORD for each in wanted.parameters.values()):
        by_name |= {each.name: None for each in given.parameters.values() if each.kind is each.KEYWORD_ONLY}
    bind: Callable[..., object] = given.bind
    try:
        bind(*by_place, **by_name)
    except TypeError:
        return False
    return True


def _bare(signature: inspect.Signature) -> str:
    """Return a signature without annotations."""
    parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


class MemberRules(Case):
    """Methods and attributes of a backend that programs use only indirectly."""

    @needs(Capability.HANDLES)
    def test_handle_int_tells_objects_apart(self) -> None:
        """`handle_int` returns an int for a stream, a graph or an executable, different for two live ones."""
        backend, first, second, cell = self.backend, self.stream(), self.stream(), self.cell()
        graph = self.recorded(first, cell)
        executable = backend.instantiate(graph)
        handles = [backend.handle_int(each) for each in (first.native, second.native, graph, executable)]
        assert all(type(handle) is int and 0 < handle < 1 << 64 for handle in handles)
        assert handles[0] != handles[1]
        again = [backend.handle_int(each) for each in (first.native, second.native, graph, executable)]
        assert handles == again, "`handle_int` has to return the same number each time"
        backend.destroy_graph(graph)
        backend.destroy_executable(executable)

    def test_capture_info_tells_captures_apart(self) -> None:
        """`capture_info` returns an id that the streams of one capture share, or None without events."""
        backend = self.backend
        first, fork, second, cell = self.stream(), self.stream(), self.stream(), self.cell()
        assert backend.capture_info(first.native) is None
        with self.graph(first):
            info = backend.capture_info(first.native)
            assert isinstance(info, CaptureInfo) or (info is None and not self.has(Capability.EVENTS))
            assert info is None or type(info.id) is int
            if self.has(Capability.EVENTS):
                fork.wait(first)
                joined = backend.capture_info(fork.native)
                assert joined is not None and info is not None and joined.id == info.id  # noqa: PT018
                first.wait(fork)
            self.enqueue(first, cell)
            with self.graph(second):
                self.enqueue(second, cell)
                other = backend.capture_info(second.native)
                assert (info is None) == (other is None)
                if info is not None and other is not None:
                    assert info.id != other.id
        assert backend.capture_info(first.native) is backend.capture_info(fork.native) is None

    def test_front_moves_with_each_node(self) -> None:
        """`front` is another one after each piece of work on the stream, and equal without any."""
        stream, cell = self.stream(), self.cell()
        calls = self.backend.native_calls(stream.native)
        self.skip_unless(calls and calls.front() is not None, "does not say where a capture is")
        assert calls is not None
        with self.graph(stream):
            found = []
            for _ in range(3):
                found += [calls.front() for _ in range(2)]
                self.enqueue(stream, cell)
            found.append(calls.front())
        assert found[::2][:3] == found[1::2], "it has moved without work"
        assert len(set(found)) == 4

    def test_capture_status_is_the_same_on_every_thread(self) -> None:
        """During a capture, and after a call that breaks it, `capture_status` is the same on all threads."""
        stream, fork = self.stream(), self.stream()
        graph = self.graph(stream)
        graph.capture_begin()
        if self.has(Capability.EVENTS):
            fork.wait(stream)
            assert self.status(fork) is self.in_thread(lambda: self.status(fork)) is CaptureStatus.ACTIVE
        assert self.status(stream) is self.in_thread(lambda: self.status(stream)) is CaptureStatus.ACTIVE
        self.refusal(stream.synchronize)
        broken = self.status(stream)
        assert broken is self.in_thread(lambda: self.status(stream)) is not CaptureStatus.NONE
        assert not self.has(Capability.EVENTS) or self.status(fork) is not CaptureStatus.NONE
        graph.reset()
        assert self.status(stream) is self.status(fork) is CaptureStatus.NONE

    def test_status_function_says_what_capture_status_does(self) -> None:
        """`NativeCalls.status_function` distinguishes a capture in progress, none, and a broken one."""
        backend, stream = self.backend, self.stream()
        calls = backend.native_calls(stream.native)
        found = None if calls is None else calls.status_function()
        self.skip_unless(found, "does not report in C whether a stream captures")
        assert isinstance(found, StatusFunction)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
        functions = [prototype(address) for address in (found.alive, found.address) if address]
        handle = ctypes.c_void_p(backend.handle_int(stream.native))

        def reads(wanted: int) -> bool:
            status = ctypes.c_int(-1)
            answers = [function(handle, status) for function in functions]
            return not any(answers) and status.value == wanted

        goes_on = partial(reads, found.active)
        assert reads(0)
        assert not goes_on()
        graph = self.graph(stream)
        graph.capture_begin()
        assert goes_on()
        assert self.in_thread(goes_on)
        self.refusal(stream.synchronize)
        assert goes_on() is (self.status(stream) is CaptureStatus.ACTIVE)
        graph.reset()
        assert reads(0)
        assert not goes_on()

    @only_if(lambda backend: backend.cuda_like, "has no default stream")
    def test_default_stream_can_not_be_captured(self) -> None:
        """If `cuda_like`, `capture_begin` on the stream 0 is a `CaptureError`, reason "default_stream"."""
        native = self.backend.as_stream(0)
        with raises(ag.CaptureError) as refused:
            self.backend.capture_begin(native, self.backend.capture_modes[0])
        assert refused.error.reason == "default_stream"

    def test_methods_without_their_capability_are_unsupported(self) -> None:
        """A method of a capability that the backend does not have raises the `UnsupportedError` of that."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        calls: dict[Capability, Callable[[Any], object]] = {
            Capability.EVENTS: lambda executable: backend.record_event(stream.native),
            Capability.ENQUEUE: lambda executable: backend.launch(stream.native, print),
            Capability.HANDLES: lambda executable: backend.handle_int(executable),
            Capability.PROGRESS: lambda executable: backend.host_memory(stream.native, 1),
            Capability.NODES: lambda executable: backend.nodes(executable),
            Capability.SET_NODE: lambda executable: backend.node_setter(None, executable, 0),
            Capability.UPDATE: lambda executable: backend.update(executable, None, None),
            Capability.TIMING: lambda executable: backend.elapsed_time(None, None),
            Capability.GRAPH_EVENTS: lambda executable: backend.instantiate_timed(None, (), ()),
            Capability.NODE_TIMES: lambda executable: backend.time_nodes(None, stream.native, 1),
            Capability.CONDITIONS: lambda executable: backend.condition(stream.native, "if", 1, 8, 1, None),
        }
        with self.executable(stream, cell) as executable:
            for capability, call in calls.items():
                if not self.has(capability):
                    with raises(ag.UnsupportedError) as refused:
                        call(executable)
                    wanted = f"raise `base.unsupported(self, {str(capability)!r})`"
                    assert refused.error.capability == capability, wanted

    def test_context_id_is_shared_by_streams_that_are_alike(self) -> None:
        """`context_id` returns None, or an int that a stream shares with streams made `like` it."""
        stream = self.stream()
        found = self.backend.context_id(stream.native)
        assert found is None or type(found) is int
        assert self.backend.context_id(self.stream(like=stream).native) == found
        assert self.in_thread(lambda: self.backend.context_id(stream.native)) == found

    def test_upload_runs_nothing(self) -> None:
        """`upload` runs no work of the graph; later replays run it as usual."""
        stream, other, cell = self.stream(), self.stream(), self.cell()
        with self.executable(stream, cell) as executable:
            for each in (stream, stream, other):
                calls = self.backend.native_calls(each.native)
                self.skip_unless(calls, "has no native calls")
                assert calls is not None
                calls.upload(executable)
            assert self.read(cell) == 0
            self.backend.replay(executable, stream.native)
            assert self.read(cell) == applied(1)

    def test_executables_of_one_graph_live_side_by_side(self) -> None:
        """Two executables of a graph live at once, unless `single_executable` is True."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        graph = self.recorded(stream, cell)
        executable = backend.instantiate(graph)
        backend.replay(executable, stream.native)
        stream.synchronize()
        second = backend.instantiate(graph)
        for each in (second, executable):
            backend.replay(each, stream.native)
            stream.synchronize()
        backend.destroy_executable(second)
        backend.destroy_graph(graph)
        before = self.read(cell)
        backend.replay(executable, stream.native)
        assert self.read(cell) == applied(1, start=before)
        assert before == applied(3)
        backend.destroy_executable(executable)

    def test_launch_function_does_what_replay_does(self) -> None:
        """The function of `launch_function` runs the executable, and its `failed` raises."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        with self.executable(stream, cell) as executable:
            backend.replay(executable, stream.native)
            calls = backend.native_calls(stream.native)
            found = None if calls is None else calls.launch_function(executable)
            self.skip_unless(found, "does not launch executables in C")
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
            expect(ag.DriverError, found.failed, 1)

    @only_if(lambda backend: backend.serialises_replays, "lets the library serialise replays")
    def test_serialised_replays_are_all_done(self) -> None:
        """With `serialises_replays`, several threads launch one executable at once, and no run is lost."""
        backend, streams, cell = self.backend, [self.stream() for _ in range(2)], self.cell()
        for slow in (False, True):
            graph, before = self.recorded(streams[0], cell, slow=slow), self.read(cell)
            executable = backend.instantiate(graph)

            def replay(stream: ag.Stream, executable: Any) -> None:
                launch = self.bound(executable, stream.native)
                for _ in range(10):
                    launch()
                    backend.replay(executable, stream.native)

            self.in_threads([partial(replay, stream, executable) for stream in streams * 2])
            assert self.read(cell) == applied(80, start=before)
            backend.destroy_executable(executable)
            backend.destroy_graph(graph)

    @only_if(lambda backend: backend.serialises_replays, "lets the library serialise replays")
    def test_run_outlives_its_stream_if_replays_are_serialised(self) -> None:
        """With `serialises_replays`, the stream of a run can be destroyed while the run is in progress."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        graph, doomed = self.recorded(stream, cell, slow=True), backend.create_stream(0)
        executable = backend.instantiate(graph)
        for _ in range(5):
            backend.replay(executable, doomed)
        backend.destroy_stream(doomed)
        self.eventually(cell, applied(5))
        backend.destroy_executable(executable)
        backend.destroy_graph(graph)

    def test_replay_ignores_captures_only_where_it_says_so(self) -> None:
        """`replay` onto a capturing stream records, raises, or (`replay_ignores_captures`) runs at once."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        with self.executable(stream, cell) as executable:
            token = self.begin(stream)
            refused = self.refusal(lambda: backend.replay(executable, stream.native))
            backend.capture_abandon(token)
            ran = self.read(cell) == applied(1)
            if ran and not backend.replay_ignores_captures:
                raise AssertionError(
                    "a replay onto a capturing stream ran at once; refuse it, or set replay_ignores_captures"
                )
            assert refused is not None or ran or self.has(Capability.CHILD_GRAPHS)

    @only_if(lambda backend: isinstance(backend, Lends), "does not lend graphs to frameworks")
    def test_borrowed_objects_stay_their_owners(self) -> None:
        """Objects that a backend that `Lends` makes from handles work, and their end destroys nothing."""
        backend = self.backend
        assert isinstance(backend, Lends)
        stream, captured, cell = self.stream(), self.stream(), self.cell()
        graph = self.recorded(captured, cell)
        borrowed = backend.borrow(backend.handle_int(graph), captured.native)
        captured.close()
        self.collect()
        with backend.relaxed(borrowed):
            executable = backend.instantiate(graph)
        theirs = backend.borrow(backend.handle_int(executable), borrowed)
        backend.replay(theirs, stream.native)
        del borrowed, theirs
        gc.collect()
        stream.synchronize()
        backend.replay(executable, stream.native)
        assert self.read(cell) == applied(2)
        backend.destroy_executable(executable)
        backend.destroy_graph(graph)

    @only_if(lambda backend: isinstance(backend, Lends), "does not lend graphs to frameworks")
    def test_borrowed_captures_can_be_abandoned(self) -> None:
        """A capture that somebody else has begun ends as one of the backend's own, and not twice."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        assert isinstance(backend, Lends)
        token = self.begin(stream)
        self.enqueue(stream, cell)
        borrowed = backend.borrow_capture(stream.native)
        backend.capture_abandon(borrowed)
        assert self.status(stream) is CaptureStatus.NONE
        for each in (borrowed, token):
            backend.capture_abandon(each)
        stream.synchronize()
        assert self.read(cell) == applied(0)

    def test_relaxed_contexts_end_as_they_began(self) -> None:
        """`relaxed` can be nested and left by an exception, which it lets pass, on any thread."""
        native = self.stream().native

        def nest() -> None:
            passes = raises(ZeroDivisionError, doing="leaving `relaxed`, which has to let exceptions pass")
            with passes, self.backend.relaxed(native):
                with self.backend.relaxed(native):
                    self.backend.synchronize(native)
                raise ZeroDivisionError

        nest()
        self.in_thread(nest)

    def test_every_class_says_what_it_is(self) -> None:
        """The class attributes have known values, of the right types."""
        kind = type(self.backend)
        for name in ("cuda_like", "replay_ignores_captures", "survives_fork", "serialises_replays"):
            assert type(getattr(kind, name)) is bool, name
        assert kind.priority is None or type(kind.priority) is int
        assert all(type(each) is str for each in kind.stream_modules)
        assert issubclass(kind, Backend)
        assert kind.api_version in BACKEND_API_VERSIONS
        assert self.backend.recording in ("stream", "explicit")
        modes = self.backend.capture_modes
        assert isinstance(modes, tuple)
        assert modes == ("default",) or set(modes) <= {"global", "thread_local", "relaxed"}
        assert len(modes) == len(set(modes)) > 0
