"""Streams, captures and threads that go in an unlucky order: nothing that is gone is used."""

import gc
import threading
from contextlib import contextmanager

import pytest

import accelerator_graph as ag
from accelerator_graph import backends
from accelerator_graph._core import capture_table, ownership
from accelerator_graph.backends.cpu import CpuBackend
from threads import in_thread


class Strict(CpuBackend):
    """The cpu backend, which notes every use of a stream that has been destroyed, as a driver would crash."""

    def open(self):
        super().open()
        self.destroyed = []
        self.misused = []
        self.abandoned = []

    def _use(self, call, stream):
        if any(stream is each for each in self.destroyed):
            self.misused.append(call)

    @contextmanager
    def relaxed(self, stream):
        self._use("relaxed", stream)
        yield

    def capture_status(self, stream):
        self._use("capture_status", stream)
        return super().capture_status(stream)

    def capture_begin(self, stream, mode):
        return super().capture_begin(stream, mode), stream

    def capture_end(self, token):
        self._use("capture_end", token[1])
        return super().capture_end(token[0])

    def capture_abandon(self, token):
        self._use("capture_abandon", token[1])
        self.abandoned.append(token[1])
        super().capture_abandon(token[0])

    def destroy_stream(self, stream):
        self.destroyed.append(stream)
        super().destroy_stream(stream)


@pytest.fixture
def backend():
    backends.register("strict", Strict)
    try:
        yield backends.get("strict")
    finally:
        backends.unregister("strict")


@pytest.mark.parametrize("graph_first", [True, False])
def test_a_capture_whose_thread_has_ended_is_abandoned_before_its_stream_goes(backend, graph_first):
    made = []

    def begin():
        stream = ag.Stream(backend="strict")
        graph = ag.Graph(stream=stream)
        graph.capture_begin()
        made.extend((graph, stream) if graph_first else (stream, graph))

    in_thread(begin)
    while made:
        made.pop(0)
    gc.collect()
    ownership.drain()
    ownership.drain()
    assert len(backend.abandoned) == 1
    assert backend.destroyed == backend.abandoned
    assert backend.misused == []
    assert not capture_table.live
    assert gc.isenabled()


def test_graph_and_stream_of_an_ended_thread_are_collected_together(backend):
    def begin():
        stream = ag.Stream(backend="strict")
        graph = ag.Graph(stream=stream)
        graph.retain([graph, stream])
        graph.capture_begin()

    in_thread(begin)
    gc.collect()
    ownership.drain()
    ownership.drain()
    assert backend.destroyed == backend.abandoned != []
    assert backend.misused == []


def test_a_stream_is_closed_while_its_broken_capture_is_still_to_be_ended(backend):
    stream = ag.Stream(backend="strict")
    graph = ag.Graph(stream=stream)
    graph.capture_begin()
    with pytest.raises(ag.DriverError):
        stream.synchronize()
    stream.close()
    ownership.drain()
    graph.reset()
    assert backend.misused == []
    del graph, stream
    ownership.drain()
    assert len(backend.destroyed) == 1


def test_a_collection_in_another_thread_holds_the_streams_that_it_relaxes(backend):
    """Between its look at the captures and its use of a stream, the capture ends and the stream goes."""
    stream = ag.Stream(backend="strict")
    graph = ag.Graph(stream=stream)
    graph.capture_begin()
    seen = list(capture_table.live.values())
    assert seen
    graph.reset()
    del graph, stream
    ownership.drain()
    for capture in seen:
        with capture.relaxed():
            pass
    assert backend.misused == []
    del seen, capture
    ownership.drain()
    assert len(backend.destroyed) == 1


def test_the_collector_goes_on_when_the_thread_that_captured_has_ended(backend):
    kept = []

    def begin():
        stream = ag.Stream(backend="strict")
        graph = ag.Graph(stream=stream)
        graph.capture_begin()
        kept.append(graph)

    in_thread(begin)
    ownership.drain()
    assert gc.isenabled()
    assert not capture_table.live
    assert len(backend.abandoned) == 1
    kept[0].reset()
    with kept[0]:
        ag.current_stream().launch(print)
    assert kept[0].state == "ready"


def test_reset_tells_an_ended_thread_from_another_one_with_its_ident(backend):
    """The system gives the ident of an ended thread to a new one."""
    kept = []

    def begin():
        graph = ag.Graph(stream=ag.Stream(backend="strict"))
        graph.capture_begin()
        kept.append((graph, threading.get_ident()))

    for _ in range(100):
        in_thread(begin)
        leave = threading.Event()
        others = [threading.Thread(target=leave.wait) for _ in range(8)]
        for other in others:
            other.start()
        graph, ident = kept.pop()
        try:
            graph.reset()
            assert graph.state == "empty"
        finally:
            leave.set()
            for other in others:
                other.join()
        if ident in [other.ident for other in others]:
            return
    raise AssertionError("no ident was used again")


def test_reset_of_a_capture_of_a_living_thread_is_refused(backend):
    leave, ready, kept = threading.Event(), threading.Event(), []

    def begin():
        graph = ag.Graph(stream=ag.Stream(backend="strict"))
        graph.capture_begin()
        kept.append(graph)
        ready.set()
        leave.wait()
        graph.reset()

    thread = threading.Thread(target=begin, name="recording")
    thread.start()
    ready.wait()
    try:
        with pytest.raises(ag.GraphStateError, match="recording"):
            kept[0].reset()
    finally:
        leave.set()
        thread.join()
    assert kept[0].state == "empty"
