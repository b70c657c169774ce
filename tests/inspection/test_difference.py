"""What `diff` says of two graphs."""

import time
from fractions import Fraction
from functools import partial

import pytest

import accelerator_graph as ag
from accelerator_graph import GraphDescription, Label, diff
from accelerator_graph.backends.base import GraphEdge, GraphNode
from accelerator_graph.inspection.difference import Labels, matched
from accelerator_graph.inspection.text import numbers
from inspection import shapes


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
        "node 1 (memset) is of 2 KiB instead of 8 B, fills with 1 instead of 0 and writes at 0x20 instead of "
        "0x10",
    ]


def test_a_node_in_the_middle_is_one_difference():
    f, g, h = kernel("f"), kernel("g"), kernel("h")
    line = [GraphEdge(0, 1), GraphEdge(1, 2), GraphEdge(2, 3)]
    old, new = described(f, g, f, edges=line[:2]), described(f, h, g, f, edges=line)
    assert diff(old, new) == ["node 1 (kernel h) is new"]
    assert diff(new, old) == ["node 1 (kernel h) is gone"]


def test_a_node_at_the_side_is_one_difference():
    f, g, h = kernel("f"), kernel("g"), kernel("h")
    old = described(f, g, edges=[GraphEdge(0, 1)])
    new = described(f, h, g, edges=[GraphEdge(0, 1), GraphEdge(0, 2)])
    assert diff(old, new) == ["node 1 (kernel h) is new"]
    cut = described(f, h, g, edges=[GraphEdge(0, 1)])
    assert diff(old, cut) == [
        "node 1 (kernel h) is new",
        "node 2 (kernel g) does not wait for node 0 any more",
    ]


def test_dependencies():
    nodes = kernel("f"), kernel("g"), kernel("h")
    old = described(*nodes, edges=[GraphEdge(0, 1), GraphEdge(0, 2)])
    new = described(*nodes, edges=[GraphEdge(0, 1, "programmatic"), GraphEdge(1, 2)])
    assert diff(old, new) == [
        "node 1 (kernel g) waits for node 0 by a programmatic dependency instead of ordinary",
        "node 2 (kernel h) does not wait for node 0 any more",
        "node 2 (kernel h) waits for node 1",
    ]


def captured(*calls):
    with ag.Stream(backend="cpu") as stream, ag.Graph(keep_graph=True) as graph:
        for function, *arguments in calls:
            stream.launch(function, *arguments)
    return graph.describe()


def test_what_a_node_calls_in_python():
    def work(*arguments, **options): ...

    first, memory = lambda: 1, bytearray(4)
    second = lambda: 2  # noqa: E731
    old = captured((work, 1, memory), (first,), (partial(work, 2.5, key="a"), memory), (work, 1 << 40))
    same = captured((work, 1, memory), (first,), (partial(work, 2.5, key="a"), memory), (work, 1 << 41))
    new = captured((work, 2, memory), (second,), (partial(work, 2.5, key="b"), memory), (print, 1 << 40))
    assert [node.call for node in old.nodes] == ["(1, ...)", "", "(2.5, ..., key='a')", ""]
    assert old.pool != same.pool
    assert old == same == GraphDescription.from_json(old.to_json())
    assert not old != same  # noqa: SIM202
    assert hash(old) == hash(same)
    assert (diff(old, same), old == new) == ([], False)
    lines = [f"<lambda> in test_difference.py:{f.__code__.co_firstlineno}" for f in (second, first)]
    assert diff(old, new) == [
        "node 0 (host work) is called with (2, ...) instead of (1, ...)",
        f"node 1 (host <lambda>) calls {lines[0]} instead of {lines[1]}",
        "node 2 (host work) is called with (2.5, ..., key='b') instead of (2.5, ..., key='a')",
        "node 3 (host print) calls print instead of work",
    ]


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ((1, [2, None]), "(1, [2, None])"),
        ([1, object()], ""),
        ([0] * 39, ""),
        ("a" * 39, ""),
        (True, "True"),
        (1 << 32, ""),
        (Fraction(1, 2), ""),
    ],
)
def test_arguments_that_are_small(argument, shown):
    assert captured((print, argument)).nodes[0].call == (f"({shown})" if shown else "")


def test_what_a_node_calls():
    assert diff(described(kernel("f")), described(kernel("g"))) == ["node 0 (kernel g) calls g instead of f"]
    tiles = [described(kernel(f"_ZN2ns4gemmILi{size}EEEvPf")) for size in (64, 128)]
    assert diff(*tiles) == [
        "node 0 (kernel gemm) calls void ns::gemm<128>(float*) instead of void ns::gemm<64>(float*)"
    ]
    assert diff(described(GraphNode(0, "host", target=16)), described(GraphNode(0, "host", target=32))) == [
        "node 0 (host) calls 0x20 instead of 0x10"
    ]


def test_what_is_alike_is_said_once():
    old = described(*[kernel("f", grid=(1, 1, 1), block=(32, 1, 1))] * 20, kernel("g"))
    new = described(*[kernel("f", grid=(2, 1, 1), block=(32, 1, 1))] * 20, kernel("g"))
    assert diff(old, new) == ["nodes 0 to 19 (kernel f) have the grid (2, 1, 1) instead of (1, 1, 1)"]
    old = described(*[GraphNode(0, "memcpy", source=index, target=16) for index in range(3)])
    new = described(*[GraphNode(0, "memcpy", source=index, target=32 + index) for index in range(3)])
    assert diff(old, new) == ["nodes 0 to 2 (memcpy) write at other addresses"]


def test_inside_a_child_graph():
    def child(value):
        return GraphNode(0, "graph", bodies=(([GraphNode(0, "memset", value=value)], []),))

    assert diff(described(child(1)), described(child(2))) == [
        "inside node 0 (graph): node 0 (memset) fills with 2 instead of 1"
    ]


def test_inside_a_conditional_node():
    def conditional(name, *values):
        bodies = tuple(([GraphNode(0, "memset", value=value)], []) for value in values)
        return described(GraphNode(0, "conditional", name, bodies=bodies))

    both = conditional("if", 1, 2)
    assert diff(both, both) == []
    assert diff(both, conditional("if", 1, 3)) == [
        "inside node 0 (conditional if), else: node 0 (memset) fills with 3 instead of 2"
    ]
    assert diff(both, conditional("if", 1)) == ["node 0 (conditional if) has 1 body instead of 2"]
    assert diff(conditional("if", 1), conditional("while", 1)) == [
        "node 0 (conditional while) is 'while' instead of 'if'"
    ]
    unknown = conditional("")
    assert diff(unknown, unknown) == []
    assert diff(both, unknown) == ["node 0 (conditional) has contents that are not known of the second graph"]


def labelled(*labels):
    nodes = described(*[kernel("f")] * 6)
    return nodes._replace(labels=tuple(Label(name, start, stop, "", 0) for name, start, stop in labels))


def test_labels():
    old = labelled(("model", 0, 6), ("model.a", 0, 2), ("model.b", 2, 4), ("d", 5, 6))
    new = labelled(("model", 0, 5), ("model.a", 0, 2), ("c", 2, 4), ("d", 5, 6))
    assert diff(old, new) == [
        "node 5 (kernel f) is not in label 'model' any more",
        "label 'model / c' was called 'model / b'",
    ]


def test_labels_of_one_name_are_counted():
    old, new = labelled(("a", 0, 2), ("a", 2, 4)), labelled(("a", 0, 2), ("a", 2, 3), ("a", 3, 4))
    assert diff(old, new) == [
        "node 3 (kernel f) is not in label 'a', number 2 any more",
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


def test_what_is_no_description_is_refused():
    for pair in ((described(), "x"), ("x", described())):
        with pytest.raises(TypeError, match=r"^diff: the arguments must be descriptions, .* not 'x'"):
            diff(*pair)


def test_ten_thousand_equal_kernels_take_no_time():
    many = [kernel("f")] * 10_000
    begun = time.process_time()
    assert diff(described(*many), described(*many[:5000], kernel("g"), *many[5000:])) == [
        "node 5000 (kernel g) is new"
    ]
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([3], "3"),
        ([3, 4], "3 and 4"),
        ([3, 4, 5], "3 to 5"),
        ([3, 4, 6], "3, 4 and 6"),
        ([1, 3, 4, 5, 9], "1, 3 to 5 and 9"),
        ([*range(0, 20, 2)], "0, 2, 4, 6, 8 and 5 more"),
    ],
)
def test_numbers_in_words(ids, expected):
    assert numbers(ids) == expected


def test_a_label_is_the_one_with_most_nodes_in_common():
    """Two labels of one name: the first has one node of the former label, the second three."""
    nodes = shapes.chain(*"abcd")
    old = shapes.labelled(nodes, ("step", 0, 4, "", 0))
    new = shapes.labelled(nodes, ("step", 0, 1, "", 0), ("step", 1, 4, "", 0))
    assert matched(Labels(old), Labels(new), {n: n for n in range(4)}) == {0: 1}
