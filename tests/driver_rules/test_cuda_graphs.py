"""What the CUDA driver answers about graphs: updates, clones, what is built by hand, and their memory.

Runs against a GPU where there is one, and against the software driver elsewhere; both must agree, and where
they don't the software driver is wrong. Every answer is that of an H200 with driver 580 (CUDA 13.0).
"""

import re

import pytest

import lanes

pytestmark = lanes.require("cuda")

from cuda.bindings import driver

from accelerator_graph.testing.works.cuda import call
from backends.cuda.bench import add_conditional
from driver_rules.graph_memory import GraphMemory
from driver_rules.graphs import BYTES, Graphs

# An executable of the first graph, updated with the second: `ok`, or the code, the result and the numbers, in
# the second graph, of the node and of the other end of the edge in question. graphs.py reads the lines.
UPDATES = """
fill 1                              fill 2                                  ok
fill 1 8                            fill 1 16                               ok
fill 1                              fill32 1                                ok
fill32 1                            fill 1 8                                ok
fill2d 1 8 2                        fill2d 2 8 2                            ok
fill2d 1 8 2                        fill2d 1 4 2                            910 parameters 0
fill2d 1 8 2                        fill2d 1 8 3                            910 parameters 0
fill2d 1 8 2                        fill 1                                  910 parameters 0
fill 1 16                           fill2d 1 8 2                            910 parameters 0
fill 7; copy 16 0                   fill 7; copy 32 0                       ok
fill 7; copy 16 0                   fill 7; copy 32 8                       ok
fill 7; copy 16 0 8                 fill 7; copy 16 0 16                    ok
kernel 3 4                          kernel 5 6                              ok
kernel 3 4                          kernel 3 4 2                            ok
kernel 3 4                          nothing                                 ok
nothing                             kernel 3 4                              ok
host                                yield                                   ok
child fill 1                        child fill 2                            ok
child fill 1                        child copy 0 16                         910 type inner
node                                node                                    ok
fill 1; copy 16 0; kernel 3 4       fill 2; copy 32 0; kernel 5 6           ok

fill 1                              copy 0 16                               910 type 0
kernel 3 4                          host                                    910 type 0
fill 1                              kernel 3 4                              910 type 0
node                                fill 1                                  910 type 0
fill 1; copy 16 0                   copy 16 0; fill 1                       910 type 1
fill 1; fill 2                      copy 16 0; fill 1                       910 type 0
fill 1                              fill 1; fill 2                          910 topology
fill 1; fill 2                      fill 1                                  910 topology
fill 1                              child fill 1; node                      910 topology

fork; a: fill 1; fill 2; join       fork; a: fill 3; fill 4; join           ok
fork; a: fill 1; fill 2; join       fill 1; fill 2                          910 topology
fork; a: fill 1; fill 2; join       fill 1; host                            910 topology
fill 1; fill 2                      fork; a: fill 1; fill 2; join           910 topology 1
fork; a: fill 1; fill 2; join; host  fill 1; fill 2; host                   910 topology 2
fill 1; fill 2; host                fork; a: fill 1; fill 2; join; host     910 topology 2
node; node; node 0                  node; node 0; node 1                    910 topology
node; node; node 0 1                node; node; node 1 0                    ok
node; node; node 0 1; node 0 1; node 2 3  node; node; node 0 1; node 1 0; node 2 3  910 topology 3 1

fill 1                              elsewhere; fill 1                       910 parameters 0
fill 7; copy 16 0                   elsewhere; fill 7; copy 16 0            910 parameters 1
kernel 3 4                          elsewhere; kernel 3 4                   910 function 0
host                                elsewhere; host                         ok
alloc; free                         alloc; free                             ok
alloc; free                         alloc 2; free                           ok
alloc; free                         alloc; host; free                       910 topology
alloc; into 1; free                 alloc; into 2; free                     910 error 1
"""

# What graphs allow: to be a child, to be cloned, a second executable, and one once the first is gone.
ALLOWED = """
graph                   child  clone  second  again
fill 1                  ok     ok     ok      ok
host                    ok     ok     ok      ok
child fill 1            ok     ok     ok      ok
record; wait            ok     ok     ok      ok
alloc; free             801    801    801     ok
alloc                   801    801    801     ok
conditional             801    801    801     ok
node; conditional       801    801    801     ok
"""

# What may be in the body of a conditional node: the code of the instantiation.
BODIES = """
fill 1                                          0
fill 1; copy 16 0                               0
kernel 3 4; fill 1                              0
fork; a: fill 1; fill 2; join                   0
pinned                                          0
pageable                                        1
host                                            1
record                                          1
wait                                            1
alloc                                           1
alloc; free                                     1
"""

# A graph with a child in it, and what the last node inside becomes.
INSIDE = """
child fill 1                                    fill 2
child fill 7 + copy 16 0                        fill 7; copy 32 0
child kernel 3 4                                kernel 5 6
child fill 7 + host + kernel 3 4                fill 7; host; kernel 5 6
child child fill 1                              fill 2
child child child fill 7 + copy 16 0            fill 7; copy 32 0
"""

# Memory of graphs, step by step: how many MiB there are beside those of the start. graph_memory.py.
GRAPH_MEMORY = """
memory that a run frees
    make alloc; free | used 0 | reserved 0 | instantiate | used 0 | reserved 0
    run | used 32 | reserved 32 | used_most 32 | trim | reserved 0 | run | used 32 | reserved 32
    exec_destroy | used 32 | reserved 32 | trim | reserved 0 | graph_destroy | used 0
memory that a run leaves
    make alloc | instantiate | used 0 | run | used 32 | reserved 32 | free | used 32 | reserved 32
    exec_destroy | used 32 | graph_destroy | used 32 | trim | used 0 | reserved 0
memory that is freed between runs
    make alloc | instantiate | run | trim | used 32 | reserved 32 | free | trim | used 0 | reserved 0
    run | used 32 | reserved 32 | free | run | used 32 | free | exec_destroy | trim | used 0
memory that outlives its graph
    make alloc | instantiate | run | exec_destroy | graph_destroy
    used 32 | trim | reserved 32 | free | used 32 | sync | used 32 | trim | used 0 | reserved 0
memory that a stream frees
    make alloc | instantiate | run | exec_destroy | graph_destroy
    free_on | sync | used 32 | reserved 32 | trim | used 0 | reserved 0
memory that an upload maps
    make alloc; free | instantiate | upload | sync | used 32 | reserved 32 | trim | reserved 0
    run | used 32 | reserved 32 | exec_destroy | graph_destroy | trim | reserved 0
the marks
    make alloc; free | instantiate | run | exec_destroy | graph_destroy | trim
    used_most 32 | reserved_most 32 | set used_most | set reserved_most | used_most 0 | reserved_most 0
"""


def rows(table):
    for line in filter(None, table.splitlines()):
        cells = re.split(r"\s{2,}", line.strip())
        yield pytest.param(*cells, id=" -> ".join(cells[:2]))


@pytest.mark.parametrize(("old", "new", "answer"), [*rows(UPDATES)])
def test_an_update(old, new, answer):
    """It is answered so, and the executable does what the one graph, or still the other, does."""
    with Graphs() as graphs:
        first, second = graphs.make(old), graphs.make(new)
        executable = graphs.instantiate(first)
        assert graphs.update(executable, second) == answer
        found = graphs.run(executable)
        graphs.destroy(executable)  # a graph that allocates has one at a time
        assert found == graphs.run(graphs.instantiate(second if answer.startswith("ok") else first))


def test_an_update_of_an_update():
    with Graphs() as graphs:
        executable = graphs.instantiate(graphs.make("fill 1; copy 16 0"))
        for line in ("fill 2; copy 16 0", "fill 3; copy 32 0", "fill 1; copy 16 0"):
            graph = graphs.make(line)
            assert graphs.update(executable, graph) == "ok"
            assert graphs.run(executable) == graphs.run(graphs.instantiate(graph))


@pytest.mark.parametrize("missing", ["executable", "graph"])
def test_an_update_without(missing):
    """It says what a success says, but for the code."""
    with Graphs() as graphs:
        graph = graphs.make("fill 1")
        executable = graphs.instantiate(graph)
        assert graphs.update(*((0, graph) if missing == "executable" else (executable, 0))) == "1 success"


def test_a_clone():
    """It has the same nodes and edges, and a life of its own."""
    with Graphs() as graphs:
        graph = graphs.make("fork; a: fill 1; fill 2; join; host")
        clone = graphs.keep(call(driver.cuGraphClone, graph))
        assert (graphs.kinds(clone), graphs.edges(clone)) == (graphs.kinds(graph), graphs.edges(graph))
        twins = [call(driver.cuGraphNodeFindInClone, node, clone) for node in graphs.nodes(graph)]
        assert [*map(int, twins)] == [*map(int, graphs.nodes(clone))]
        graphs.add(clone, twins[2])
        assert (len(graphs.nodes(clone)), len(graphs.nodes(graph))) == (4, 3)
        before = graphs.run(graphs.instantiate(graph))
        graphs.destroy(graph)
        assert graphs.run(graphs.instantiate(clone)) == before


@pytest.mark.parametrize(("line", "child", "clone", "second", "again"), [*rows(ALLOWED)][1:])
def test_what_a_graph_allows(line, child, clone, second, again):
    with Graphs() as graphs:
        graph, parent = graphs.make(line), graphs.make("node")
        found = driver.cuGraphAddChildGraphNode(parent, [], 0, graph), driver.cuGraphClone(graph)
        executable = graphs.instantiate(graph)
        found += (driver.cuGraphInstantiate(graph, 0),)
        graphs.destroy(executable)
        found += (driver.cuGraphInstantiate(graph, 0),)
        assert ["ok" if code == 0 else str(int(code)) for code, _ in found] == [child, clone, second, again]
        destroys = driver.cuGraphDestroy, driver.cuGraphExecDestroy, driver.cuGraphExecDestroy
        for (code, made), destroy in zip(found[1:], destroys, strict=True):
            assert code or destroy(made)[0] == 0


@pytest.mark.parametrize(("line", "code"), [*rows(BODIES)])
def test_what_may_be_in_a_body(line, code):
    """A capture takes it; that it can't be there is found when the whole is instantiated."""
    with Graphs() as graphs:
        graph = graphs.make("conditional")
        graphs.record_into(graphs.bodies[-1], line)
        found, executable = driver.cuGraphInstantiate(graph, 0)
        assert str(int(found)) == code
        if not found:
            assert graphs.run(executable) != bytes(BYTES)
            call(driver.cuGraphExecDestroy, executable)


def test_the_handle_of_a_condition():
    """It belongs to its graph, to one node there, and has to be used."""
    with Graphs() as graphs:
        graph, other = graphs.make("node"), graphs.make("node")
        context = graphs.here.context
        assert driver.cuGraphConditionalHandleCreate(graph, context, 0, 2)[0] == 1
        handle = call(driver.cuGraphConditionalHandleCreate, graph, context, 0, 0)
        assert driver.cuGraphInstantiate(graph, 0)[0] == 1
        with pytest.raises(AssertionError, match="cuGraphAddNode"):
            add_conditional(other, handle=handle)
        add_conditional(graph, handle=handle)
        with pytest.raises(AssertionError, match="cuGraphAddNode"):
            add_conditional(graph, handle=handle)
        executable = graphs.instantiate(graph)
        graphs.destroy(executable)


@pytest.mark.parametrize("how", ["by_node", "by_child"])
@pytest.mark.parametrize(("line", "wanted"), [*rows(INSIDE)])
def test_a_node_inside_a_child_is_changed(line, wanted, how):
    """By the handle in the child's own graph, or as the whole child: in the executable alone."""
    with Graphs() as graphs:
        graph = graphs.make(line)
        other = graphs.make(f"{line.rpartition('child ')[0]}child {wanted.replace(';', ' +')}")
        executable, second = graphs.instantiate(graph), graphs.instantiate(graph)
        before, after = graphs.run(executable), graphs.run(graphs.instantiate(other))
        assert before != after
        assert graphs.change(executable, graph, other, how) == 0
        assert graphs.run(executable) == after
        assert graphs.run(second) == graphs.run(graphs.instantiate(graph)) == before
        for again, to, expected in (
            ("by_node", graph, before),
            (how, other, after),
            ("by_child", graph, before),
        ):
            assert graphs.change(executable, graph, to, again) == 0
            assert graphs.run(executable) == expected


def test_a_run_that_is_under_way_keeps_the_nodes_inside_a_child():
    with Graphs() as graphs:
        graph, other = (graphs.make(f"child kernel 3 4 + kernel 1 {number}") for number in (0, 1))
        executable = graphs.instantiate(graph)
        graphs.clear()
        for number in range(50):
            graphs.launch(executable)
            assert graphs.change(executable, graph, (other, graph)[number % 2], "by_node") == 0
        word = 0
        for number in range(50):
            word = (word * 3 + 4 + number % 2) % 2**32
        assert int.from_bytes(graphs.read()[:4], "little") == word


def test_a_node_inside_a_child_is_left_out_and_put_back():
    with Graphs() as graphs:
        graph = graphs.make("child kernel 3 4 + kernel 5 6 + kernel 7 8")
        executable, before = graphs.instantiate(graph), graphs.run(graphs.instantiate(graph))
        without = graphs.run(graphs.instantiate(graphs.make("kernel 3 4; kernel 7 8")))
        node = graphs.inside(graph)[1]
        for enabled, expected in ((0, without), (0, without), (1, before)):
            assert driver.cuGraphNodeSetEnabled(executable, node, enabled)[0] == 0
            for _ in range(20):
                assert graphs.run(executable) == expected


def test_what_is_not_a_node_inside_the_child_is_refused():
    """As nodes of the graph that the child was made of, and children of another shape."""
    with Graphs() as graphs:
        single, graph = graphs.make("fill 1"), graphs.make("node")
        call(driver.cuGraphAddChildGraphNode, graph, [], 0, single)
        executable = graphs.instantiate(graph)
        (fill,), (node, child) = graphs.nodes(single), graphs.nodes(graph)
        params, context = call(driver.cuGraphMemsetNodeGetParams, fill), graphs.here.context
        assert int(driver.cuGraphExecMemsetNodeSetParams(executable, fill, params, context)[0]) == 1
        change = driver.cuGraphExecChildGraphNodeSetParams
        assert int(change(executable, node, single)[0]) == 1
        for line in ("copy 16 0", "fill 2; fill 3", "alloc; free"):
            assert int(change(executable, child, graphs.make(line))[0]) == 910
        assert graphs.run(executable) == graphs.run(graphs.instantiate(single))


def test_what_a_memset_node_says():
    with Graphs() as graphs:
        for line, wanted in (
            ("fill 7 32", (7, 1, 32, 1)),
            ("fill32 7", (7, 4, 4, 1)),
            ("fill2d 7 8 2", (7, 1, 8, 2)),
        ):
            found = call(driver.cuGraphMemsetNodeGetParams, graphs.nodes(graphs.make(line))[0])
            assert (found.value, found.elementSize, found.width, found.height) == wanted
            assert int(found.dst) == graphs.here.memory


def test_a_graph_that_is_built():
    """Edges that are there already, to itself, or to another graph's nodes are refused; a cycle is, later."""

    def connect(graph, before, after):
        try:
            answer = driver.cuGraphAddDependencies(graph, [before], [after], None, 1)  # since CUDA 13
        except TypeError:
            answer = driver.cuGraphAddDependencies(graph, [before], [after], 1)
        return int(answer[0])

    with Graphs() as graphs:
        graph, other = graphs.make("node; node; node 0 1"), graphs.make("node")
        a, b, c = graphs.nodes(graph)
        assert connect(graph, a, b) == 0
        assert graphs.edges(graph) == [(0, 1), (0, 2), (1, 2)]
        assert [int(node) for node in driver.cuGraphNodeGetDependencies(c, 2)[1]] == [int(a), int(b)]
        assert {int(node) for node in driver.cuGraphNodeGetDependentNodes(a, 2)[1]} == {int(b), int(c)}
        assert connect(graph, a, b) == 1
        assert connect(graph, a, a) == 1
        assert connect(graph, a, graphs.nodes(other)[0]) == 1
        assert connect(graph, c, a) == 0
        assert int(driver.cuGraphInstantiate(graph, 0)[0]) == 1

        parent = graphs.make("child fill 1")
        inner = call(driver.cuGraphChildGraphNodeGetGraph, graphs.nodes(parent)[0])
        assert graphs.kinds(inner) == [2]
        assert graphs.run(graphs.instantiate(parent))[:17] == b"\1" * 16 + b"\0"


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(" | ".join(text.split("\n")[:-1]), id=title)
        for title, text in re.findall(r"^(\w.*)\n((?: +.*\n)+)", GRAPH_MEMORY, re.M)
    ],
)
def test_the_memory_of_graphs(script):
    steps = [step.strip() for step in script.split("|")]
    with GraphMemory() as memory:
        assert "\n".join(map(memory, steps)) == "\n".join(steps)
