"""What `describe` says of a graph, on the cpu backend."""

import ctypes

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.base import GraphEdge, GraphNode
from accelerator_graph.inspection.page import to_html
from inspection.shapes import chain, labelled


@pytest.fixture
def stream():
    with ag.Stream(backend="cpu") as stream:
        yield stream


FILL, COPY = ("target", "value", "enabled"), ("source", "target", "enabled")


def first(): ...


def second(): ...


def last(): ...


def fork_and_join(stream):
    """Capture a fill, a copy, and two branches that meet."""
    target, source = (ctypes.c_char * 16)(), (ctypes.c_char * 16)()
    with ag.Graph(keep_graph=True) as graph:
        stream.fill(target, 7)
        stream.copy(target, source)
        side = ag.Stream(like=stream)
        side.wait(stream)
        side.launch(first)
        stream.launch(second)
        stream.wait(side)
        stream.launch(last)
    return graph, ctypes.addressof(target), ctypes.addressof(source)


def test_nodes_and_dependencies(stream):
    graph, target, source = fork_and_join(stream)
    found = graph.describe()
    assert (found.backend, found.device) == ("cpu", 0)
    assert found.nodes == (
        GraphNode(0, "memset", target=target, nbytes=16, value=7, settable=FILL),
        GraphNode(1, "memcpy", target=target, source=source, nbytes=16, settable=COPY),
        *(
            GraphNode(number, "host", each.__name__, file=__file__, line=each.__code__.co_firstlineno)
            for number, each in enumerate((first, second, last), 2)
        ),
    )
    assert found.edges == (
        GraphEdge(0, 1),
        GraphEdge(1, 2),
        GraphEdge(1, 3),
        GraphEdge(2, 4),
        GraphEdge(3, 4),
    )
    assert found.kinds() == {"host": 3, "memset": 1, "memcpy": 1}


def test_a_graph_inside_a_graph(stream):
    inner, *_ = fork_and_join(stream)
    with ag.Graph(keep_graph=True) as outer:
        inner.replay()
    (node,) = outer.describe().nodes
    assert node.kind == "graph"
    nodes, edges = node.bodies[0]
    assert (tuple(nodes), tuple(edges)) == (inner.describe().nodes, inner.describe().edges)


def test_a_description_holds_nothing_of_the_graph(stream):
    graph, *_ = fork_and_join(stream)
    found = graph.describe()
    graph.reset()
    assert found.nodes[2].name == "first"
    assert hash(found) == hash(ag.GraphDescription.from_json(found.to_json()))


def test_a_graph_that_was_not_kept_says_how_to_keep_it(stream):
    with ag.Graph() as graph:
        stream.launch(first)
    with pytest.raises(ag.GraphStateError, match="keep_graph=True"):
        graph.describe()


def test_an_empty_graph_object(stream):
    with pytest.raises(ag.GraphStateError, match=r"describe\(\)"):
        ag.Graph(backend="cpu").describe()


def test_the_table(stream):
    graph, target, source = fork_and_join(stream)
    assert str(graph.describe()).splitlines() == [
        "graph of cpu, device 0: 5 nodes (3 host, 1 memset, 1 memcpy), 5 dependencies",
        f"     kind    what{' ' * (len(f'16 B {source:#x} -> {target:#x}') - 4)}  after",
        f"0    memset  16 B = 7 {target:#x}{' ' * (len(f'{source:#x} -> ') - 4)}  -",
        f"1    memcpy  16 B {source:#x} -> {target:#x}",
        "2    host    first",
        f"3    host    second{' ' * (len(f'16 B {source:#x} -> {target:#x}') - 6)}  1",
        f"4    host    last{' ' * (len(f'16 B {source:#x} -> {target:#x}') - 4)}  2 3",
    ]


def test_the_mode_and_the_pool(stream):
    pool = ag.graph_pool_handle()
    with ag.Graph(keep_graph=True) as plain:
        stream.launch(first)
    with ag.Graph(keep_graph=True, pool=pool, capture_error_mode="global") as special:
        stream.launch(first)
    assert (plain.describe().mode, plain.describe().pool) == ("thread_local", plain.pool())
    description = special.describe()
    assert (description.mode, description.pool) == ("global", pool)
    assert str(plain.describe()).splitlines()[0] == "graph of cpu, device 0: 1 node (1 host), 0 dependencies"
    assert str(description).splitlines()[0] == (
        f"graph of cpu, device 0: 1 node (1 host), 0 dependencies, mode global, pool {pool}"
    )
    assert f"<h1>Graph of cpu, device 0, mode global, pool {pool}</h1>" in to_html(description)
    assert ag.diff(plain.describe(), description) == [
        "capture mode: global instead of thread_local",
        f"pool: {pool} instead of its own",
    ]
    with ag.Graph(keep_graph=True) as another:
        stream.launch(first)
    assert ag.diff(plain.describe(), another.describe()) == []


def test_the_table_with_conditional_nodes():
    def body(value):
        return [GraphNode(0, "memset", nbytes=4, value=value)], []

    nodes = [
        GraphNode(0, "conditional", "while", bodies=(body(1),)),
        GraphNode(1, "conditional", "if", bodies=(body(2), body(3))),
        GraphNode(2, "conditional"),
    ]
    found = ag.GraphDescription.of("cuda", 0, (nodes, [GraphEdge(0, 1), GraphEdge(1, 2)]))
    assert str(found).splitlines() == [
        "graph of cuda, device 0: 3 nodes and 3 inside them (3 conditional, 3 memset), 2 dependencies",
        "     kind         what                                         after",
        "0    conditional  while                                        -",
        "  inside node 0:",
        "  0  memset       4 B = 1                                      -",
        "1    conditional  if",
        "  inside node 1, then:",
        "  0  memset       4 B = 2                                      -",
        "  inside node 1, else:",
        "  0  memset       4 B = 3                                      -",
        "2    conditional  (the driver does not report what is inside)",
    ]


def test_what_a_node_is():
    nodes = [
        GraphNode(0, "kernel", "scale", grid=(4, 1, 1), block=(32, 1, 2), shared_bytes=1 << 10),
        GraphNode(1, "memset", target=0x1000, nbytes=307_405, value=0),
        GraphNode(2, "memset", target=0x1000, nbytes=30_740, value=0),
        GraphNode(3, "host", "log", target=0x2000),
    ]
    found = ag.GraphDescription.of("cuda", 0, (nodes, []))
    assert str(found).splitlines()[1:] == [
        "     kind    what                             after",
        "0    kernel  scale <4 x 32,1,2> 1 KiB shared  -",
        "1    memset  300 KiB = 0 0x1000               -",
        "2    memset  30.0 KiB = 0 0x1000              -",
        "3    host    log                              -",
    ]


def test_the_table_with_labels(stream):
    with ag.Graph(keep_graph=True) as graph:
        stream.launch(first)
        with ag.label("block"):
            stream.launch(first)
            with ag.label("block.linear"):
                stream.launch(second)
            stream.launch(first)
        stream.launch(last)
    outer, inner = (f"test_description.py:{label.line}" for label in graph.describe().labels)
    assert str(graph.describe()).splitlines() == [
        "graph of cpu, device 0: 5 nodes (5 host), 4 dependencies",
        "     kind  what    after",
        "0    host  first   -",
        f"[block] {outer}",
        "1    host  first",
        f"[block / linear] {inner}",
        "2    host  second",
        f"[block] {outer}",
        "3    host  first",
        "[no label]",
        "4    host  last",
    ]


def test_a_long_table_ends_with_a_count(stream):
    with ag.Graph(keep_graph=True) as graph:
        for _ in range(100):
            stream.launch(first)
    lines = str(graph.describe()).splitlines()
    assert lines[-1] == "... and 60 more nodes"
    assert len(lines) == 43
    assert repr(graph.describe()) == "<GraphDescription of a graph of 'cpu', device 0: 100 host>"


def test_a_long_name_loses_its_middle_in_the_table():
    name = f"sm80_xmma_{'gemm_' * 40}cublas"
    node = GraphNode(0, "kernel", name)
    (row,) = str(ag.GraphDescription.of("cuda", 0, ([node], []))).splitlines()[2:]
    shown = row.split()[2]
    assert (len(shown), shown[:15], shown[-12:]) == (80, "sm80_xmma_gemm_", "_gemm_cublas")
    description = labelled(chain("a", "b"), ("x" * 3000, 0, 2, "s.py", 1), ("y" * 3000, 1, 2, "s.py", 2))
    assert max(map(len, str(description).splitlines())) < 200
    [gone, *_] = ag.diff(description, description._replace(labels=()))
    assert len(gone) < 200
