"""What `diff` says of two graphs."""

from __future__ import annotations

import time

from accelerator_graph import GraphDescription, Label, diff
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


def labelled(*labels):
    nodes = described(*[kernel("f")] * 6)
    return nodes._replace(labels=tuple(Label(name, start, stop, "", 0) for name, start, stop in labels))


def test_labels():
    old = labelled(("model", 0, 6), ("model.a", 0, 2), ("model.b", 2, 4), ("d", 5, 6))
    new = labelled(("model", 0, 5), ("model.a", 0, 2), ("c", 2, 4), ("d", 5, 6))
    assert diff(old, new) == [
        "label 'model / b' is gone",
        "label 'model / d' is gone",
        "label 'model' has 5 nodes instead of 6",
        "label 'model / c' is new",
        "label 'd' is new",
    ]


def test_labels_of_one_name_are_counted():
    old, new = labelled(("a", 0, 2), ("a", 2, 4)), labelled(("a", 0, 2), ("a", 2, 3), ("a", 3, 4))
    assert diff(old, new) == [
        "label 'a', number 2, has 1 node instead of 2",
        "label 'a', number 3, is new",
    ]


def test_a_line_that_moved_is_no_difference():
    old, new = (labelled(("a", 0, 2))._replace(labels=(Label("a", 0, 2, "x.py", line),)) for line in (3, 4))
    assert diff(old, new) == []


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
