"""dpctl's queues as streams."""

from __future__ import annotations

from ctypes import c_uint32, c_uint64
from typing import Any

import dpctl
import pytest
from accelerator_graph_sycl.conformance import SOURCE, SyclWork
from dpctl.memory import MemoryUSMShared
from dpctl.program import create_program_from_source

import accelerator_graph as ag


def in_order(*where: Any) -> Any:
    return dpctl.SyclQueue(*where, property="in_order")


def test_a_queue_is_captured_without_naming_the_backend(work: SyclWork, cell: Any) -> None:
    queue = in_order()
    with ag.Graph(stream=queue) as graph:
        work.enqueue(graph.stream, cell, 1, 5)  # type: ignore[arg-type]
    assert graph.backend == "sycl"
    graph.replay()
    graph.replay(queue)
    queue.wait()
    assert work.read(cell) == 10


def test_another_object_for_the_same_queue_is_the_same_stream(work: SyclWork, cell: Any) -> None:
    queue = in_order()
    same = dpctl.SyclQueue(queue._get_capsule())
    with ag.Graph(stream=queue) as graph:
        work.enqueue(ag.Graph(stream=same).stream, cell, 1, 5)  # type: ignore[arg-type]
        other = ag.Stream(backend="sycl")
        other.wait(graph.stream)  # type: ignore[arg-type]
        work.enqueue(other, cell, 3, 0)
        ag.Graph(stream=same).stream.wait(other)  # type: ignore[union-attr]
    graph.replay(same)
    same.wait()
    assert work.read(cell) == 15


def test_a_queue_that_is_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match=r"out of order .*in_order"):
        ag.Graph(stream=dpctl.SyclQueue())


def test_a_queue_on_part_of_a_device_is_refused() -> None:
    parts = dpctl.SyclDevice().create_sub_devices(partition=1)
    with pytest.raises(ValueError, match="part of one"):
        ag.Graph(stream=in_order(parts[0]))


def test_a_queue_in_another_context_has_streams_like_itself() -> None:
    device = dpctl.SyclDevice()
    queue = in_order(dpctl.SyclContext([device]), device)
    kernel = create_program_from_source(queue, SOURCE).get_sycl_kernel("work")
    cell = MemoryUSMShared(4, queue=queue)
    memoryview(cell)[:] = bytes(4)
    graph = ag.Graph(stream=queue)
    like = ag.Stream(like=queue)
    assert like.native.sycl_context == queue.sycl_context != ag.Stream(backend="sycl").native.sycl_context
    with graph, like:
        like.launch(kernel, cell, c_uint32(1), c_uint32(5), c_uint64(0))
        graph.stream.wait(like)  # type: ignore[union-attr]
    graph.replay()
    queue.wait()
    assert bytes(memoryview(cell)) == b"\5\0\0\0"


def test_a_replay_in_another_context_is_an_error(work: SyclWork, cell: Any) -> None:
    device = dpctl.SyclDevice()
    queue = in_order(dpctl.SyclContext([device]), device)
    stream = ag.Stream(backend="sycl")
    with ag.Graph(stream=stream) as graph:
        work.enqueue(stream, cell, 1, 5)
    with pytest.raises(ag.DriverError):
        graph.replay(queue)
    graph.replay()
    stream.synchronize()
    assert work.read(cell) == 5


def test_what_dpctl_enqueues_is_recorded(stream: ag.Stream, work: SyclWork, cell: Any) -> None:
    queue = stream.native
    with ag.Graph(stream=stream, keep_graph=True) as graph:
        queue.memcpy_async(cell, b"\7\0\0\0", 4)
        work.enqueue(stream, cell, 2, 0)
    assert work.read(cell) == 0
    assert graph.num_nodes == 2
    graph.replay()
    stream.synchronize()
    assert work.read(cell) == 14


def test_a_queue_that_dpctl_forks_takes_part(stream: ag.Stream, work: SyclWork, cell: Any) -> None:
    """dpctl joins a queue to a capture by an event; the library's waits work with that queue, too."""
    other, third = ag.Stream(backend="sycl"), ag.Stream(backend="sycl")
    with ag.Graph(stream=stream) as graph:
        work.enqueue(stream, cell, 1, 5)
        inside = stream.native.submit_barrier()
        other.native.submit_barrier([inside])
        third.wait(other)
        work.enqueue_slow(third, cell, 3, 0)
        stream.wait(third)
        work.enqueue(stream, cell, 1, 1)
    graph.replay()
    graph.replay()
    stream.synchronize()
    assert work.read(cell) == (5 * 3 + 1 + 5) * 3 + 1


def test_unjoined_work_of_a_queue_that_dpctl_forks_is_found(
    stream: ag.Stream, work: SyclWork, cell: Any
) -> None:
    other, graph = ag.Stream(backend="sycl"), ag.Graph(stream=stream)
    graph.capture_begin()
    other.native.submit_barrier([stream.native.submit_barrier()])
    work.enqueue(other, cell, 1, 5)
    other.record()
    with pytest.raises(ag.CaptureError) as caught:
        graph.capture_end()
    assert caught.value.reason == "unjoined"


def test_side_streams_of_two_contexts_are_told_apart() -> None:
    device = dpctl.SyclDevice()
    backend = ag.backends.get("sycl")
    found = [backend.context_id(in_order(dpctl.SyclContext([device]), device)) for _ in range(2)]
    default = [backend.context_id(in_order()) for _ in range(2)]
    assert len({*found, *default}) == 3
