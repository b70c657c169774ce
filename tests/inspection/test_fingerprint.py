"""Fingerprints of graphs."""

import subprocess
import sys

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.base import GraphEdge, GraphNode

PROGRAM = """
import accelerator_graph as ag
memory, padding = bytearray(8), [bytearray(8) for _ in range(1000)]
with ag.Stream(backend="cpu") as stream, ag.Graph(keep_graph=True) as graph:
    stream.fill(memory, 1)
    stream.launch(print)
print(graph.fingerprint())
"""


def described(*nodes, edges=None):
    """Describe a chain of nodes."""
    listed = [node._replace(id=number) for number, node in enumerate(nodes)]
    chain = [GraphEdge(number, number + 1) for number in range(len(nodes) - 1)]
    return ag.GraphDescription.of("cuda", 0, (listed, chain if edges is None else edges))


FILL = GraphNode(0, "memset", target=0x1000, nbytes=8, value=1)
SCALE = GraphNode(0, "kernel", "scale", (2, 1, 1), (64, 1, 1), 0)
ADD = GraphNode(0, "kernel", "_Z3addPf", (2, 1, 1), (64, 1, 1), 0)
CHILD = GraphNode(0, "graph", bodies=(([SCALE, FILL._replace(id=1)], [GraphEdge(0, 1)]),))


def of(*nodes, edges=None):
    return ag.Fingerprint.of(described(*nodes, edges=edges))


@pytest.mark.parametrize(
    "same",
    [
        (FILL._replace(target=0x2000), SCALE, ADD),
        (FILL._replace(value=3), SCALE, ADD),
        (FILL, SCALE._replace(target=5), ADD),
    ],
)
def test_addresses_and_values_do_not_count(same):
    assert of(*same) == of(FILL, SCALE, ADD)
    assert str(of(*same)) == str(of(FILL, SCALE, ADD))
    assert of(FILL, SCALE, ADD).differences(of(*same)) == []


@pytest.mark.parametrize(
    ("nodes", "edges", "words"),
    [
        ((FILL, SCALE), None, ["1 kernel node 'add' fewer"]),
        ((FILL, SCALE, ADD, ADD, FILL), None, ["1 kernel node 'add' more", "1 memset node more"]),
        ((FILL, ADD, SCALE), None, ["the same nodes in another order"]),
        ((FILL._replace(nbytes=16), SCALE, ADD), None, ["other sizes (grids, blocks or numbers of bytes)"]),
        (
            (FILL, SCALE._replace(shared_bytes=16), ADD),
            None,
            ["other sizes (grids, blocks or numbers of bytes)"],
        ),
        (
            (FILL, SCALE._replace(block=(32, 1, 1)), ADD),
            None,
            ["other sizes (grids, blocks or numbers of bytes)"],
        ),
        (
            (FILL, SCALE._replace(grid=(3, 1, 1)), ADD),
            None,
            ["other sizes (grids, blocks or numbers of bytes)"],
        ),
        ((FILL, SCALE, ADD), [GraphEdge(0, 1), GraphEdge(0, 2)], ["other dependencies between the nodes"]),
    ],
)
def test_differences_in_words(nodes, edges, words):
    here, there = of(FILL, SCALE, ADD), of(*nodes, edges=edges)
    assert here != there
    assert str(here) != str(there)
    assert here.differences(there) == words


def test_what_is_inside_of_nodes_counts():
    body = CHILD.bodies[0]
    smaller = CHILD._replace(bodies=((body[0][:1], []),))
    resized = CHILD._replace(bodies=(([SCALE, FILL._replace(id=1, nbytes=9)], body[1]),))
    unordered = CHILD._replace(bodies=((body[0], []),))
    assert of(CHILD).differences(of(smaller)) == ["1 memset node fewer"]
    assert of(CHILD).differences(of(resized)) == ["other sizes (grids, blocks or numbers of bytes)"]
    assert of(CHILD).differences(of(unordered)) == ["other dependencies between the nodes"]


def test_functions_of_one_short_name_are_told_apart():
    one, other = (GraphNode(0, "kernel", f"ns::scale<{number}>(float*)") for number in (8, 16))
    assert of(one, ADD).differences(of(other)) == [
        "1 kernel node 'ns::scale<16>(float*)' more",
        "1 kernel node 'add' fewer",
        "1 kernel node 'ns::scale<8>(float*)' fewer",
    ]


def test_it_is_the_same_in_every_process():
    run = [sys.executable, "-c", PROGRAM]
    first, second = (subprocess.run(run, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert first == second
    assert len(first.strip()) == 16


def test_of_a_graph():
    with ag.Stream(backend="cpu") as stream, ag.Graph(keep_graph=True) as graph:
        stream.launch(print)
    assert graph.fingerprint() == ag.Fingerprint.of(graph.describe())
    assert graph.fingerprint().functions == (("host", "print", 1),)
    with ag.Stream(backend="cpu") as stream, ag.Graph() as not_kept:
        stream.launch(print)
    with pytest.raises(ag.GraphStateError, match="keep_graph"):
        not_kept.fingerprint()
