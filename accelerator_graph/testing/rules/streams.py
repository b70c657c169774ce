"""Streams, devices, and the objects that stand for a stream: handles, and the runtime's own."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, CaptureStatus

from .._case import PIECES, Case, Number, applied, expect, is_same, needs, only_if, raises
from .._tools import Thread
from .._work import Work


class StreamRules(Case):
    """Making streams, using them, closing them."""

    def test_stream_runs_work_and_synchronize_waits(self) -> None:
        """Work on an idle stream runs in order, and `synchronize` returns when all of it is done."""
        stream, cell = self.stream(), self.cell()
        self.enqueue_slow(stream, cell, times=10)
        assert self.read_after(stream, cell) == applied(10)

    def test_stream_can_be_used_from_another_thread(self) -> None:
        """A stream can be made in one thread and used in another."""
        cell = self.cell()
        stream = self.in_thread(self.stream)
        self.enqueue(stream, cell)
        self.in_thread(lambda: self.enqueue_slow(stream, cell, times=5))
        self.in_thread(stream.synchronize)
        assert self.used.read(cell) == applied(6)

    def test_synchronize_lets_other_threads_run(self) -> None:
        """While `synchronize` waits, other threads of the process run: it releases the GIL."""
        stream, cell, done = self.stream(), self.cell(), threading.Event()
        times: list[float] = []

        def note() -> None:
            while not done.wait(1e-3):
                times.append(time.perf_counter())

        ticker = Thread(note, "ticker")
        give_up = time.perf_counter() + 2
        try:
            while time.perf_counter() < give_up:  # on a busy machine, any thread may have to wait as long
                self.enqueue_slow(stream, cell, times=20)
                begin = time.perf_counter()
                stream.synchronize()
                elapsed = time.perf_counter() - begin
                if elapsed < 0.01 or any(1 / 4 < (each - begin) / elapsed < 3 / 4 for each in times):
                    return
        finally:
            done.set()
            ticker.result(self.time_limit / 2)
        raise AssertionError(f"no other thread ran in the middle of a call that took {elapsed:.3f} s")

    def test_like_shares_the_device(self) -> None:
        """A device, `like` or else the current stream decides the device; two that differ are an error."""
        for device in range(self.backend.device_count):
            model = self.stream(device)
            model.synchronize()
            assert (model.backend, model.device) == (self.backend.name, device)
            with model:
                streams = ag.Stream(like=model), ag.Stream()
            for stream in streams:
                assert (stream.backend, stream.device) == (self.backend.name, device)
                assert stream is not model
            assert ag.Stream(device, like=model, backend=self.backend.name).device == device
            if device:
                expect(ValueError, ag.Stream, 0, like=model, match="device")

    def test_entering_nests_and_restores(self) -> None:
        """``with stream`` makes it the current one, nested and repeated, then restores the former one."""
        first, second = self.stream(), self.stream()
        before = ag.current_stream(required=False)
        with first as entered:
            assert entered is first
            assert ag.current_stream() is first
            with second, first, first:
                assert ag.current_stream() is first
            with second:
                assert ag.current_stream() is second
            with raises(KeyError), second:
                raise KeyError
            assert ag.current_stream() is first
        assert is_same(ag.current_stream(required=False), before)

    def test_entering_waits_for_the_current_stream(self) -> None:
        """Work on a stream that is entered runs after the work on the former current stream."""
        first, second, cell = self.stream(), self.stream(), self.cell()
        with first:
            self.enqueue_slow(first, cell, 1, 5, times=20)
            with second:
                self.enqueue(second, cell, 3, 0)
        assert self.read_after(second, cell) == 300

    def test_entering_inside_a_capture_records_or_refuses(self) -> None:
        """A stream that is entered inside a capture joins it; without events, entering it is refused."""
        stream, other, cell = self.stream(), self.stream(), self.cell()
        with self.graph(stream) as graph:
            self.enqueue(stream, cell)
            if not self.has(Capability.EVENTS):
                expect(ag.UnsupportedError, other.__enter__, match="events")
                assert ag.current_stream() is stream
            else:
                with other:
                    self.enqueue(other, cell)
                stream.wait(other)
            self.enqueue(stream, cell)
        assert self.read(cell) == 0
        assert self.replayed(graph, cell) == applied(3 if self.has(Capability.EVENTS) else 2)

    @needs(Capability.EVENTS)
    def test_entering_again_inside_a_capture_keeps_the_order(self) -> None:
        """A stream that is entered again in a capture waits for the work recorded since the first time."""
        stream, other, cell = self.stream(), self.stream(), self.cell()
        with self.graph(stream) as graph:
            for _ in range(2):
                self.enqueue_slow(stream, cell, 1, 5)
                with other:
                    self.enqueue_slow(other, cell, 3, 0)
                stream.wait(other)
        self.replays(graph, cell, lambda value: ((value + 5) * 3 + 5) * 3)

    def test_closed_stream_is_refused_everywhere(self) -> None:
        """A closed stream is a `GraphStateError` wherever it is used; closing it twice does nothing."""
        (other, cell, graph), stream = self.setup_captured(), self.stream()
        own, made_before = self.graph(), self.graph(stream)
        stream.close()
        stream.close()
        uses: list[tuple[Callable[..., object], *tuple[object, ...]]] = [
            *((use,) for use in (stream.synchronize, stream.query, stream.record, stream.__enter__)),
            *((getattr, stream, name) for name in ("native", "handle")),
            (stream.wait, other),
            (stream.fill, bytearray(1), 0),
            (stream.copy, bytearray(1), bytearray(1)),
            (stream.launch, print),
            (made_before.capture_begin,),
            (graph.replay, stream),
            (graph.bind, stream),
        ]
        if self.has(Capability.EVENTS):
            uses.append((other.wait, stream))
        for use, *args in uses:
            expect(ag.GraphStateError, use, *args, match="closed")
        expect(ag.GraphStateError, ag.Graph, stream=stream, match="closed")
        expect(ag.GraphStateError, ag.graph, own, stream=stream, match="closed")
        expect(ag.GraphStateError, ag.Stream, like=stream, match="closed")
        assert "closed" in repr(stream)
        assert (made_before.state, own.state, graph.state) == ("empty", "empty", "ready")
        assert self.replayed(graph, cell) == applied(1)

    def test_graph_whose_stream_was_closed_can_be_replayed_and_waited_for(self) -> None:
        """After `close` a graph replays as before; `Graph.stream` is another object for the stream."""
        (stream, cell, graph), other = self.setup_captured(), self.stream()
        launch = graph.bind()
        assert graph.stream is stream
        stream.close()
        for times, replay in enumerate((graph.replay, graph.replay, launch), 1):
            replay()
            assert graph.stream is not None
            assert graph.stream is not stream
            assert self.read_after(graph.stream, cell) == applied(times)
            graph.stream.close()
        graph.replay(other)
        assert self.read_after(other, cell) == applied(4)
        graph.reset()

    def test_closing_lets_work_complete(self) -> None:
        """Closing a stream lets the work on it complete."""
        stream, cell = self.stream(), self.cell()
        self.enqueue_slow(stream, cell, times=5)
        stream.close()
        self.eventually(cell, applied(5))

    def test_capturing_stream_can_not_be_closed(self) -> None:
        """`close` on a stream that is being captured is a `GraphStateError`, and the capture goes on."""
        stream = self.stream()
        with self.undisturbed_capture(stream):
            expect(ag.GraphStateError, stream.close)

    def test_wrong_arguments_of_a_stream_are_refused(self) -> None:
        """A device out of range is a ValueError; a device or priority of a wrong type is a TypeError."""
        name = self.backend.name
        for device in (self.backend.device_count, -1, 10**6):
            expect(ValueError, ag.Stream, device, backend=name, match="device")
        bad: object
        for bad in ("0", 0.0, True):
            expect(TypeError, ag.Stream, bad, backend=name, match="device")
        for bad in ("0", 0.0, None, True):
            expect(TypeError, ag.Stream, backend=name, priority=bad, match="priority")
        for bad in ("stream", 1.5, object()):
            expect(TypeError, ag.Stream, backend=name, like=bad)
        expect(ag.UnknownBackendError, ag.Stream, backend="no_such_backend")

    @needs(Capability.ENQUEUE)
    def test_arguments_may_be_any_integers(self) -> None:
        """Devices, priorities, bytes and sizes can be of any type with ``__index__``, but not a bool."""
        name = self.backend.name
        stream = ag.Stream(Number(0), backend=name, priority=Number(0))  # type: ignore[arg-type]
        assert type(stream.device) is int
        self._streams.add(stream)
        source, target = self.used.buffer(4), self.used.buffer(4)
        stream.fill(source, Number(7), Number(2))  # type: ignore[arg-type]
        stream.copy(target, source, Number(3))  # type: ignore[arg-type]
        stream.synchronize()
        for bad in (True, 1.0, "1"):
            expect(TypeError, stream.fill, source, bad, match=f"value must be an int, not {bad!r}")
            expect(TypeError, stream.copy, target, source, bad, match=f"nbytes must be an int, not {bad!r}")

    def test_streams_are_told_apart(self) -> None:
        """No two streams have the same `repr`, and it says if a stream was closed."""
        streams = [self.stream() for _ in range(3)]
        assert len({repr(stream) for stream in streams}) == 3
        assert repr(streams[0].held()) == repr(streams[0])
        for stream in streams:
            stream.close()
        assert len({repr(stream) for stream in streams if "closed" in repr(stream)}) == 3

    def test_streams_and_events_are_not_copied(self) -> None:
        """A stream or an event can't be copied or pickled, since it must have one owner."""
        stream, cell = self.stream(), self.cell()
        marks: list[object] = [stream.record()] if self.has(Capability.EVENTS) else []
        for each in (stream, *marks):
            for copying in (copy.copy, copy.deepcopy, pickle.dumps):
                expect(TypeError, copying, each, match="can't be pickled or copied")
        self.enqueue(stream, cell)
        assert self.read(cell) == applied(1)

    def test_priorities_are_clamped(self) -> None:
        """Any int is a priority; it is clamped to the range of the device, which stays the same."""
        cell, last = self.cell(), self.backend.device_count - 1
        for priority in (-1000, -1, 0, 1, 1000):
            stream = self.stream(priority=priority)
            self.enqueue(stream, cell)
            stream.synchronize()
            there = ag.Stream(last, backend=self.backend.name, priority=priority)
            assert self.backend.device_of(there.native) == last
            there.close()
        assert self.read(cell) == applied(5)


class DeviceRules(Case):
    """A stream belongs to one device. Whether those of two can wait for each other is up to the runtime."""

    @only_if(lambda backend: backend.device_count > 1, "has one device here")
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
    @only_if(lambda backend: backend.device_count > 1, "has one device here")
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
    @only_if(lambda backend: backend.device_count > 1, "has one device here")
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

    @needs(Capability.ENQUEUE)
    @only_if(lambda backend: backend.device_count > 1, "has one device here")
    def test_memory_of_another_device_is_used_or_refused_in_the_call(self) -> None:
        """A fill or a copy of another device's memory raises ValueError at once, or is done when it runs."""
        for device, there in self._others():
            stream, near, far = self.stream(), self.used.buffer(64), there.buffer(64)
            calls: list[tuple[Callable[[], None], Callable[[], bytes]]] = [
                (partial(stream.fill, far, 1), partial(there.read_bytes, far)),
                (partial(stream.copy, near, far), partial(self.used.read_bytes, near)),
                (partial(stream.copy, far, near), partial(there.read_bytes, far)),
            ]
            for number, (call, read) in enumerate(calls):
                stream.fill(near, 9)
                expected = (1, there.read_bytes(far)[0], 9)[number]
                try:
                    with self.undisturbed_capture(stream) as graph:
                        call()
                except ValueError:
                    continue
                graph.replay()
                self.synchronize()
                assert set(read()) == {expected}, f"memory of device {device} was accepted and not used"

    def _others(self) -> Iterator[tuple[int, Work]]:
        """Yield the other devices, and the work for each."""
        for device in range(1, self.backend.device_count):
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
        end = time.monotonic() + self.patience
        while read() != value:
            assert time.monotonic() < end, "the forked work never ran"


class HandleRules(Case):
    """The library recognises the streams of others, and never destroys them."""

    @needs(Capability.HANDLES)
    def test_handle_is_the_same_stream_each_time(self) -> None:
        """`as_stream` of a stream's handle has the stream's handle, device and capture status each time."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        handle = backend.handle_int(stream.native)
        early, device = backend.as_stream(handle), backend.device_of(stream.native)

        def check(status: CaptureStatus) -> None:
            assert self.status(stream) is status
            for same in (early, backend.as_stream(handle)):
                assert backend.handle_int(same) == handle, "as_stream returned another stream"
                assert backend.capture_status(same) is status, "as_stream returned another stream"
                assert backend.device_of(same) == device, "as_stream returned a stream of another device"

        check(CaptureStatus.NONE)
        with self.graph(stream):
            self.enqueue(stream, cell)
            check(CaptureStatus.ACTIVE)
        check(CaptureStatus.NONE)

    def test_stream_modules_have_the_runtimes_own_streams(self) -> None:
        """If `as_stream` recognises stream objects, `stream_modules` names their package."""
        with self.used.own_stream() or nullcontext() as theirs:
            objects = [each for each in (self.stream().native, theirs) if each is not None]
            packages = {
                type(each).__module__.partition(".")[0]
                for each in objects
                if not isinstance(each, int) and self.backend.as_stream(each) is not None
            }
        self.skip_unless(packages, "recognises no stream object that its Work has")
        for package in packages:
            self._is_known(package)

    def _is_known(self, package: str) -> None:
        known = package in self.backend.stream_modules
        assert known, f"objects of {package!r} are streams; add {package!r} to `stream_modules`"

    @needs(Capability.HANDLES)
    def test_handle_stands_for_the_stream(self) -> None:
        """A handle, with the backend's name, stands for its stream, which stays its owner's."""
        stream, other, cell = self.stream(), self.stream(), self.cell()
        assert type(stream.handle) is int
        assert stream.handle != other.handle
        with self.graph(stream.handle, backend=self.backend.name) as graph:
            self.enqueue(stream, cell)
        assert graph.stream is not None
        assert graph.stream.handle == stream.handle
        assert graph.device == stream.device
        assert self.replayed(graph, cell) == applied(1)
        graph.stream.close()
        del graph
        self.works(stream, self.graph(stream))

    def test_runtimes_own_object_stands_for_the_stream(self) -> None:
        """The runtime's own stream object, if the backend knows it, captures that stream."""
        stream, cell = self.stream(), self.cell()
        self.skip_unless(
            self.backend.as_stream(stream.native) is not None, "does not recognise what `Stream.native` is"
        )
        named = self.graph(stream.native, backend=self.backend.name)
        with ag.use_backend(self.backend.name):
            claimed = self.graph(stream.native)
        for graph in (named, claimed):
            with graph:
                assert self.status(stream) is CaptureStatus.ACTIVE, "as_stream returned another stream"
                self.enqueue(stream, cell)
            assert graph.backend == self.backend.name
            graph.replay()
        assert self.read(cell) == applied(2)

    def test_stream_that_the_runtime_made_is_a_stream_like_others(self) -> None:
        """A stream that the runtime made has its device, is captured, replays, and stays its owner's."""
        backend = self.backend
        for device, used in ((0, self.used), *self._others_if_any()):
            made = used.own_stream()
            self.skip_unless(made, "has a Work without `own_stream`")
            with made or nullcontext() as theirs:
                found = [backend.as_stream(theirs) for _ in range(2)]
                assert None not in found, f"as_stream does not recognise {theirs!r}"
                assert [backend.device_of(each) for each in found] == [device] * 2
                stream, cell = self.stream(device), used.new()
                for expected in (1, 2):
                    with self.graph(theirs, backend=backend.name) as graph:
                        assert graph.stream is not None
                        for each in (*found, backend.as_stream(theirs)):
                            assert backend.capture_status(each) is CaptureStatus.ACTIVE
                        used.enqueue(graph.stream, cell, 1, 1)
                    for each in found:
                        assert backend.capture_status(each) is CaptureStatus.NONE
                    graph.replay()
                    backend.synchronize(found[0])
                    assert used.read(cell) == 2 * expected - 1
                    graph.replay(stream)
                    stream.synchronize()
                    assert used.read(cell) == 2 * expected
                    del graph
                    self.collect()
                again = self.graph(theirs, backend=backend.name)
                assert again.stream is not None
                used.enqueue(again.stream, cell, 1, 1)
                backend.synchronize(found[1])
                assert used.read(cell) == 5

    def _others_if_any(self) -> list[tuple[int, Work]]:
        there = ((device, self.used.on(device)) for device in range(1, self.backend.device_count))
        return [(device, used) for device, used in there if used is not None]

    def test_cuda_stream_protocol_exists_where_it_is_true(self) -> None:
        """``__cuda_stream__()`` returns ``(0, handle)`` with `cuda_like`; without, there is none."""

        class Named(ag.Stream):
            label = ""

        named = Named(backend=self.backend.name)
        named.label = "mine"
        self._streams.add(named)
        assert type(named) is Named
        for stream in (self.stream(), named):
            assert hasattr(stream, "__cuda_stream__") == self.backend.cuda_like
            if self.backend.cuda_like:
                assert stream.__cuda_stream__() == (0, stream.handle)
            self.works(stream, self.graph(stream))

    @needs(Capability.HANDLES)
    def test_work_on_a_handle_is_work_of_the_stream(self) -> None:
        """Work by way of a handle comes after the stream's work so far, and before its later work."""
        stream, cell = self.stream(), self.cell()
        graph = self.captured(stream, cell, 3, 1, slow=True)
        expected = 0
        for _ in range(3):
            self.enqueue_slow(stream, cell, times=PIECES // 2)
            graph.replay(stream.handle)
            self.enqueue(stream, cell, 5, 2)
            expected = (applied(PIECES // 2, start=expected) * 3 + 1) * 5 + 2
            assert self.read_after(stream, cell) == expected % 2**32, "as_stream returned another stream"
            expected %= 2**32

    @needs(Capability.HANDLES)
    def test_handle_may_be_any_integer(self) -> None:
        """A handle can be of any integer type, alone or in ``__cuda_stream__``, but not a bool."""
        stream, cell, name = self.stream(), self.cell(), self.backend.name

        class Theirs:
            def __init__(self, handle: object) -> None:
                self.handle = handle

            def __cuda_stream__(self) -> tuple[int, object]:
                return (0, self.handle)

        graph = self.captured(stream, cell)
        for given in (Number(stream.handle), Theirs(stream.handle), Theirs(Number(stream.handle))):
            graph.replay(given)
            assert ag.Graph(stream=given, backend=name).stream is not None
        assert self.read(cell) == applied(3)
        for bad in (True, Theirs(True)):
            expect(TypeError, ag.Graph, stream=bad, backend=name)

    def test_what_is_no_stream_is_refused(self) -> None:
        """A negative handle is a ValueError and any other object a TypeError, raised where it is passed."""
        name = self.backend.name
        expect(ValueError, ag.Graph, stream=-1, backend=name, match="negative")
        for bad in ("stream", 1.5, True, object(), int, []):
            expect(TypeError, ag.Graph, stream=bad, backend=name)
            expect(TypeError, ag.Graph, stream=bad)
        expect(TypeError, ag.Graph, "keep")
        expect(ag.UnknownBackendError, ag.Graph, backend="no_such_backend")
