"""Queues as streams."""

from __future__ import annotations

import gc

import pyopencl as cl
import pytest

import accelerator_graph as ag
from conftest import TURNS, Place


def test_a_queue_is_a_stream(place: Place) -> None:
    queue, cell = cl.CommandQueue(place.context), place.buffer()
    with ag.Graph(stream=queue) as graph:
        assert graph.stream is not None
        assert graph.stream.native.queue is queue
        place.launch("add", cell, 2, stream=graph.stream)
    assert place.read(cell) == [0]
    graph.replay()
    queue.finish()
    graph.replay(queue)
    queue.finish()
    assert place.read(cell) == [4]


def test_two_objects_for_one_queue_are_one_stream(place: Place) -> None:
    again = cl.CommandQueue.from_int_ptr(place.queue.int_ptr)
    backend = ag.backends.get("opencl")
    assert backend.as_stream(again) is place.stream.native
    with ag.Graph(stream=place.stream):
        place.stream.fill(place.buffer(), 1)
        with pytest.raises(ag.CaptureError, match="captur"):
            ag.Graph(stream=again).capture_begin()


@pytest.mark.filterwarnings("ignore::accelerator_graph.errors.EmptyGraphWarning")
def test_work_that_is_enqueued_directly_is_not_recorded(place: Place) -> None:
    cell = place.buffer()
    kernel = place.kernels["add"].clone()
    with ag.Graph(stream=place.stream) as graph:
        kernel(place.queue, (1,), None, cell, TURNS)
    assert place.read(cell) == [int(TURNS)]
    graph.replay()
    assert place.read(cell) == [int(TURNS)]


def test_a_queue_out_of_order_is_refused(place: Place) -> None:
    unordered = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    queue = cl.CommandQueue(place.context, properties=unordered)
    with pytest.raises(ValueError, match="out of order"):
        ag.Graph(stream=queue)


def test_a_queue_that_measures_time_is_a_stream(place: Place) -> None:
    """Before version 0.9.7 its replays enqueue the commands, since a command buffer has to fit the queue."""
    profiling = cl.command_queue_properties.PROFILING_ENABLE
    queue, cell = cl.CommandQueue(place.context, properties=profiling), place.buffer()
    with ag.Graph(stream=queue) as graph:
        place.launch("add", cell, 2, stream=graph.stream)
    for stream in (queue, place.stream, queue):
        graph.replay(stream)
    queue.finish()
    assert place.read(cell) == [6]


def test_streams_of_two_contexts_are_refused_together(place: Place) -> None:
    context, cell = cl.Context([place.queue.device]), place.buffer()
    queue = cl.CommandQueue(context)
    graph = ag.Graph(stream=queue)
    with graph:
        assert graph.stream is not None
        with pytest.raises(ag.DriverError, match="CAPTURE_ISOLATION"):
            graph.stream.wait(place.stream)
        with pytest.raises(ValueError, match="another context"):
            place.launch("add", cell, 2, stream=graph.stream)
        with pytest.raises(ValueError, match="another context"):
            graph.stream.fill(cell, 1)
        other = place.another_stream()
        with pytest.raises(ag.DriverError, match="like="):
            other.wait(graph.stream)
        memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
        graph.stream.fill(memory, 3)
    with pytest.raises(ag.DriverError, match="CL_INVALID_CONTEXT"):
        graph.replay(place.stream)
    with pytest.raises(ag.DriverError, match="like="):
        place.stream.wait(graph.stream)
    graph.replay()
    queue.finish()
    assert place.read(cell) == [0]


def test_query_sees_work_that_was_enqueued_directly(place: Place) -> None:
    cell = place.buffer()
    place.stream.synchronize()
    assert place.stream.query() is True
    kernel = place.kernels["slow"].clone()
    for _ in range(20):
        kernel(place.queue, (1,), None, cell, TURNS)
    assert place.stream.query() is False
    place.queue.finish()
    assert place.stream.query() is True


def test_queues_and_contexts_are_released(place: Place) -> None:
    def references(times: int) -> int:
        for _ in range(times):
            stream = place.another_stream()
            stream.wait(place.stream.record())
            with ag.Graph(stream=stream) as graph:
                place.launch("add", place.buffer(), 1, stream=stream)
            graph.replay()
            stream.synchronize()
            graph.reset()
            stream.close()
            del stream, graph
        gc.collect()
        ag.Graph().reset()
        return int(place.context.reference_count)

    assert references(50) <= references(5) + 5
