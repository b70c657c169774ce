"""Objects that stand for a stream: handles, the runtime's own objects, ``__cuda_stream__``."""

from __future__ import annotations

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, CaptureStatus

from .._case import PIECES, Case, Number, applied, expect, needs


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
        """If `as_stream` recognises the backend's stream objects, `stream_modules` names their package."""
        native = self.stream().native
        self.skip_unless(self.backend.as_stream(native) is not None, "does not recognise stream objects")
        package = type(native).__module__.partition(".")[0]
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
            self.backend.as_stream(stream.native) is not None, "does not recognise objects of its runtime"
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

    def test_cuda_stream_protocol_exists_where_it_is_true(self) -> None:
        """``__cuda_stream__()`` returns ``(0, handle)`` if the backend is `cuda_like`, else there is none."""

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
