"""The columns of a picture."""

import time

import pytest

from accelerator_graph.backends.base import GraphEdge
from accelerator_graph.inspection.drawing import MOST_LANES, lanes
from inspection.shapes import forked_chain


@pytest.mark.parametrize(
    ("count", "edges", "expected"),
    [
        (0, [], []),
        (3, [], [0, 0, 0]),
        (3, [(0, 1), (1, 2)], [0, 0, 0]),
        (4, [(0, 1), (0, 2), (1, 3), (2, 3)], [0, 0, 1, 0]),
        (5, [(0, 1), (0, 2), (2, 3), (1, 4), (3, 4)], [0, 1, 0, 0, 0]),
        (7, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6)], [0, 0, 1, 0, 0, 1, 0]),
        (6, [(0, 1), (0, 2), (2, 3), (0, 5), (1, 4), (3, 4), (4, 5)], [0, 1, 0, 0, 0, 0]),
        (6, [(0, 1), (0, 2), (0, 4), (2, 3), (3, 5), (4, 5)], [0, 1, 0, 0, 2, 0]),
        (6, [(0, 2), (1, 2), (0, 3), (1, 3), (2, 4), (3, 4), (2, 5), (3, 5)], [0, 1, 0, 1, 0, 1]),
    ],
    ids=[
        "nothing",
        "no dependencies",
        "a chain",
        "a fork",
        "the longer branch goes on",
        "a lane again",
        "a dependency on an early node",
        "no line through a node",
        "two lanes that wait for each other",
    ],
)
def test_lanes(count, edges, expected):
    assert lanes(count, [GraphEdge(*each) for each in edges]) == expected


def test_nodes_that_run_at_once_are_in_lanes_of_their_own():
    edges = [GraphEdge(node, 60) for node in range(60)]
    assert lanes(61, edges) == [*range(60), 0]


def test_there_are_only_so_many_lanes():
    many = 5_000
    edges = [GraphEdge(node, many) for node in range(many)]
    assert max(lanes(many + 1, edges)) == MOST_LANES - 1


def test_ten_thousand_nodes_take_little_time():
    description = forked_chain(10_000)
    before = time.process_time()
    lanes(len(description.nodes), description.edges)
    assert time.process_time() - before < 2
