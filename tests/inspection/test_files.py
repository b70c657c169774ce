"""Files that `debug_dump` writes, by their suffix."""

import shutil
import xml.etree.ElementTree as ET

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.base import GraphEdge, GraphNode
from accelerator_graph.inspection.drawing import draw, to_dot
from inspection.shapes import forked_chain


def work(): ...


@pytest.fixture
def graph():
    with ag.Stream(backend="cpu") as stream:
        with ag.Graph(keep_graph=True) as inner:
            stream.launch(work)
            stream.launch(work)
        with ag.Graph(keep_graph=True) as graph:
            stream.launch(print)
            inner.replay()
        yield graph


def test_json_is_the_description(graph, tmp_path):
    graph.debug_dump(tmp_path / "graph.JSON")
    text = (tmp_path / "graph.JSON").read_text(encoding="utf-8")
    assert ag.GraphDescription.from_json(text) == graph.describe()


@pytest.mark.parametrize("name", ["graph.dot", "graph", "graph.txt"])
def test_any_other_file_is_dot(graph, tmp_path, name):
    graph.debug_dump(tmp_path / name)
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert text == to_dot(graph.describe())
    assert text.startswith("digraph")
    assert "n0 -> n1;" in text
    assert "subgraph cluster_n1_0 {" in text
    assert "n1_0_0 -> n1_0_1;" in text


def test_names_are_quoted():
    node = GraphNode(0, "kernel", 'say "hi"\\')
    edges = [GraphEdge(0, 0, "programmatic")]
    text = to_dot(ag.GraphDescription.of("cuda", 0, ([node], edges)))
    assert r'label="kernel say \"hi\"\\"' in text
    assert "n0 -> n0 [style=dashed];" in text


LABELLED = ag.GraphDescription.of(
    "cuda",
    0,
    ([GraphNode(index, "host", f"f{index}") for index in range(6)], [GraphEdge(0, 5)]),
    [
        ag.Label("a", 0, 3, "x.py", 1),
        ag.Label("a.b", 1, 2, "x.py", 2),
        ag.Label('say "c"', 2, 5, "x.py", 3),
    ],
)
"""The last two labels overlap, as those of generators can."""


def test_labels_are_boxes():
    lines = [line.strip() for line in to_dot(LABELLED).splitlines()]
    inside, path = {}, []
    for line in lines:
        if line.startswith("label="):
            path.append(line.split('"')[1])
        elif line == "}" and path:
            path.pop()
        elif "fillcolor" in line:
            inside[line.split()[0]] = [*path]
    assert path == []
    assert inside == {
        "n0": ["a"],
        "n1": ["a", "b"],
        "n2": ["a", "say \\"],
        "n3": ["say \\"],
        "n4": ["say \\"],
        "n5": [],
    }


@pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz is not installed")
def test_labels_are_drawn(tmp_path):
    draw(LABELLED, "svg", str(tmp_path / "graph.svg"))
    texts = [each.text for each in ET.parse(tmp_path / "graph.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert sorted(each for each in texts if each and not each.startswith("host")) == [
        "a",
        "b",
        'say "c"',
        'say "c"',
    ]


@pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz is not installed")
@pytest.mark.parametrize(("suffix", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_pictures(graph, tmp_path, suffix, begins):
    path = tmp_path / f"graph.{suffix}"
    graph.debug_dump(path)
    assert path.read_bytes().startswith(begins)
    if suffix == "svg":
        texts = {element.text for element in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")}
        assert {"host print", "graph", "host work", "inside node 1"} <= texts


def test_without_graphviz_the_error_says_what_to_do(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match=r"install Graphviz, or write a \.html, \.dot or \.json file"):
        graph.debug_dump(tmp_path / "graph.svg")
    assert list(tmp_path.iterdir()) == []


def test_a_drawing_that_would_take_minutes_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has 3001 nodes, .* write a \.html file"):
        draw(forked_chain(3001), "svg", str(tmp_path / "a.svg"))


def test_graphviz_that_fails_is_an_error(graph, tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\necho 'out of paint' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(OSError, match="out of paint"):
        graph.debug_dump(tmp_path / "graph.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["dot"]


def test_a_page_with_times(tmp_path):
    stream = ag.Stream(backend="cpu")
    with stream, ag.Graph(keep_graph=True) as graph, ag.label("work"):
        stream.launch(work)
    with stream, ag.Graph(keep_graph=True) as other, ag.label("others"):
        stream.launch(work)
    profile = graph.profile(1)
    graph.debug_dump(tmp_path / "x.html", profile=profile)
    assert f'"time":{profile.labels[0].time}' in (tmp_path / "x.html").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=r"must end in \.html"):
        graph.debug_dump(tmp_path / "x.svg", profile=profile)
    with pytest.raises(TypeError, match=r"profile must be what Graph\.profile\(\) returns, not 3"):
        graph.debug_dump(tmp_path / "y.html", profile=3)
    with pytest.raises(ValueError, match="labels that the graph has not"):
        other.debug_dump(tmp_path / "y.html", profile=profile)
    assert [each.name for each in tmp_path.iterdir()] == ["x.html"]
