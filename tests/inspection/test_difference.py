"""What `diff` says of two graphs."""

from __future__ import annotations

import time

from accelerator_graph import GraphDescription, diff
from accelerator_graph.backends.base import GraphEdge, GraphNode


def described(*nodes, edges=(), backend="cuda", device=0):
    return GraphDescription.of(
        backend, device, ([node._replace(id=index) for index, node in enumerate(nodes)], list(edges))
    )


def kernel(name, **fields):
    return GraphNode(0, "kernel", name, **fields)


def test_equal_graphs_have_no_difference():
    graph = described(kernel("f"), kernel("g"), edges=[GraphEdge(0, 1)])
    assert diff(graph, graph) == []


def test_parameters():
    old = described(kernel("f", grid=(1, 1, 1)), GraphNode(0, "memset", target=16, nbytes=8, value=0))
    new = described(kernel("f", grid=(2, 1, 1)), GraphNode(0, "memset", target=32, nbytes=2048, value=1))
    assert diff(old, new) == [
        "node 0 (kernel f) has the grid (2, 1, 1) instead of (1, 1, 1)",
        "node 1 (memset) is of 2 KiB instead of 8 B",
        "node 1 (memset) fills with 1 instead of 0",
        "node 1 (memset) writes at 0x20 instead of 0x10",
    ]


def test_a_node_in_the_middle_is_one_difference():
    f, g, h = kernel("f"), kernel("g"), kernel("h")
    line = [GraphEdge(0, 1), GraphEdge(1, 2), GraphEdge(2, 3)]
    old, new = described(f, g, f, edges=line[:2]), described(f, h, g, f, edges=line)
    assert diff(old, new) == ["node 1 (kernel h) is new", "node 2 does not wait for node 0 any more"]
    assert diff(new, old) == ["node 1 (kernel h) is gone", "node 1 waits for node 0"]


def test_dependencies():
    nodes = kernel("f"), kernel("g"), kernel("h")
    old = described(*nodes, edges=[GraphEdge(0, 1), GraphEdge(0, 2)])
    new = described(*nodes, edges=[GraphEdge(0, 1, "programmatic"), GraphEdge(1, 2)])
    assert diff(old, new) == [
        "node 1 waits for node 0 by a programmatic dependency instead of ordinary",
        "node 2 does not wait for node 0 any more",
        "node 2 waits for node 1",
    ]


def test_inside_a_child_graph():
    def child(value):
        return GraphNode(0, "graph", bodies=(([GraphNode(0, "memset", value=value)], []),))

    assert diff(described(child(1)), described(child(2))) == [
        "inside node 0 (graph): node 0 (memset) fills with 2 instead of 1"
    ]


def test_where_they_come_from():
    assert diff(described(), described(backend="hip", device=1)) == [
        "backend: hip instead of cuda",
        "device: 1 instead of 0",
    ]


def test_ten_thousand_equal_kernels_take_no_time():
    many = [kernel("f")] * 10_000
    begun = time.process_time()
    assert diff(described(*many), described(*many[:5000], kernel("g"), *many[5000:])) == [
        "node 5000 (kernel g) is new"
    ]
    assert time.process_time() - begun < 5
