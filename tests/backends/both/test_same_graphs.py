"""The same graphs through both backends, on one GPU: where HIP goes through the shim to CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.base import GraphEdge, GraphNode
from accelerator_graph.testing import Work


def works() -> list[Work]:
    """The work of both backends."""
    from accelerator_graph.testing.works.cuda import CudaWork
    from accelerator_graph.testing.works.hip import HipWork

    return [CudaWork(), HipWork()]


def chain(work: Work, streams: list[ag.Stream], memory: list[Any], cells: list[Any]) -> None:
    stream = streams[0]
    stream.fill(memory[0], 7)
    work.enqueue(stream, cells[0], 3, 1)
    stream.copy(memory[1], memory[0])
    work.enqueue(stream, cells[0], 5, 2)
    stream.fill(memory[0], 9, nbytes=5)


def branches(work: Work, streams: list[ag.Stream], memory: list[Any], cells: list[Any]) -> None:
    first = streams[0]
    work.enqueue(first, cells[0], 2, 1)
    for stream in streams[1:]:
        stream.wait(first)
    for stream, cell in zip(streams, cells, strict=True):
        work.enqueue(stream, cell, 3, 1)
        work.enqueue(stream, cell, 3, 1)
    streams[1].copy(memory[1], memory[0])
    for stream in streams[1:]:
        first.wait(stream)
    first.copy(memory[2], memory[1])


def several_ends(work: Work, streams: list[ag.Stream], memory: list[Any], cells: list[Any]) -> None:
    for stream in streams[1:]:
        stream.wait(streams[0])
    for times, (stream, cell) in enumerate(zip(streams, cells, strict=True), 1):
        for _ in range(times):
            work.enqueue(stream, cell, 3, 1)
    for stream in streams[1:]:
        streams[0].wait(stream)


def captured(
    work: Work, body: Callable[..., None]
) -> tuple[list[GraphNode], list[GraphEdge], list[bytes], list[int]]:
    """What the graph holds, and what there is in memory after it has run three times."""
    backend = ag.backends.get(work.backend)
    streams = [ag.Stream(backend=work.backend) for _ in range(3)]
    memory, cells = [work.buffer(64) for _ in range(3)], [work.new() for _ in range(3)]
    for number, buffer in enumerate(memory):
        streams[0].fill(buffer, number + 1)
    graph = ag.Graph(keep_graph=True, stream=streams[0])
    with graph:
        body(work, streams, memory, cells)
    assert graph._runner.captured is not None
    listed, edges = backend.nodes(graph._runner.captured.value)
    # Each has memory of its own; the shim tells nothing of fills and copies, HIP nothing of arguments.
    untold = {
        "source": None,
        "target": None,
        "nbytes": None,
        "value": None,
        "arguments": None,
        "settable": (),
    }
    nodes = [node._replace(**untold) for node in listed]
    for _ in range(3):
        graph.replay()
    streams[0].synchronize()
    return nodes, edges, [work.read_bytes(buffer) for buffer in memory], [work.read(cell) for cell in cells]


@pytest.mark.needs("shim")
@pytest.mark.parametrize("body", [chain, branches, several_ends])
def test_the_same_graph(body: Callable[..., None]) -> None:
    by_cuda, by_hip = (captured(work, body) for work in works())
    assert by_hip == by_cuda
    nodes, edges, _, cells = by_cuda
    assert len(nodes) > 4
    assert len(edges) >= 3
    assert any(cells)
