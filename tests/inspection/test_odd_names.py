"""Names that disturb a terminal, a page or a drawing: each is shown as text, and on one line."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.base import GraphEdge, GraphNode
from accelerator_graph.inspection.drawing import draw
from accelerator_graph.inspection.names import demangled, printable
from inspection.shapes import chain, described, labelled
from inspection.test_memory_text import DEVICE, LARGE

CLEAR = "a\n\x1b[2J\u202e\ud800b"
SHOWN = r"a\n\x1b[2J\u202e\ud800b"


def one_node(name: str) -> ag.GraphDescription:
    return labelled(chain(name), (name, 0, 1, name, 1))._replace(backend=name, mode=name)


def profile() -> ag.GraphProfile:
    [node], [label] = one_node(CLEAR).nodes, one_node(CLEAR).labels
    spans = [(0.0, 2.0), (0.0, 2.0)]
    return ag.GraphProfile.of(CLEAR, 0, 1, [2.0], [label], [spans]).with_kernels([node], [{0: (0.0, 2.0)}])


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        (one_node(CLEAR), 4),
        (profile(), 8),
        (LARGE._replace(backend=CLEAR), 7),
        (ag.MemoryReport((LARGE._replace(name=CLEAR),), (DEVICE,)), None),
    ],
    ids=lambda what: type(what).__name__,
)
def test_a_table_has_nothing_that_moves_the_cursor(what: object, lines: int | None):
    text = str(what)
    assert printable(text.replace("\n", "")) == text.replace("\n", "")
    assert SHOWN in text
    assert lines is None or len(text.splitlines()) == lines


def test_a_difference_is_one_line():
    old, new = one_node(CLEAR), one_node("other")
    assert new.nodes[0].kind == "kernel"
    for sentence in (*ag.diff(old, new), *ag.diff(new, old)):
        assert printable(sentence) == sentence
    assert f"node 0 (kernel other) calls other instead of {SHOWN}" in ag.diff(old, new)[-2]


@pytest.mark.parametrize("kind", ["{}", "{0}", "{missing}"])
def test_the_kind_of_a_dependency_is_no_format(kind: str):
    nodes = [GraphNode(0, "kernel", "a"), GraphNode(1, "kernel", "b")]
    old, new = (described(nodes, [GraphEdge(0, 1, each)]) for each in ("", kind))
    assert ag.diff(old, new) == [
        f"node 1 (kernel b) waits for node 0 by a {kind} dependency instead of ordinary"
    ]


def test_a_name_that_is_no_utf8_is_not_demangled():
    assert demangled("_Z\ud800") == "_Z\ud800"
    assert str(one_node("_Z\ud800")).count(r"_Z\ud800") == 5


@pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz is not installed")
def test_a_drawing_shows_the_characters_of_a_name(tmp_path):
    name = r"a&lt;b &amp; \N \"d\" 日本"
    draw(chain(name), "svg", str(tmp_path / "graph.svg"))
    texts = [each.text for each in ET.parse(tmp_path / "graph.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [f"kernel {name}"]
