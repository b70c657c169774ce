"""The page of a graph: what it holds, and that nothing in a name can leave its place."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.base import GraphNode
from accelerator_graph.inspection import page
from accelerator_graph.inspection.files import write_difference
from accelerator_graph.inspection.names import printable
from accelerator_graph.inspection.page import diff_to_html, to_html
from inspection.shapes import chain, described, forked_chain, labelled

FOLDER = Path(page.__file__).parent
HURTFUL = "</script><img src=x onerror=alert(1)><!--{{title}}&amp;\u2028\ud800"
SCRIPTS = 8


class Elements(HTMLParser):
    """The elements of a page, and the text of the one with the data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.data = json.loads(self.text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.found and self.found[-1][1].get("id") == "data" and not self.text:
            self.text = data

    def count(self, tag):
        return sum(1 for name, _ in self.found if name == tag)


def graph_of(elements, side=0):
    return ag.GraphDescription.from_json(json.dumps(elements.data["graphs"][side]))


def test_a_page_holds_the_description():
    with ag.Stream(backend="cpu") as stream:
        with ag.Graph(keep_graph=True) as inner:
            stream.launch(print)
        with ag.Graph(keep_graph=True) as graph:
            stream.launch(len)
            inner.replay()
        description = graph.describe()
    elements = Elements(to_html(description))
    assert graph_of(elements) == description
    assert elements.data["graphs"][0]["lanes"] == [0, 0]
    assert elements.data["graphs"][0]["nodes"][1]["bodies"][0]["lanes"] == [0]
    assert elements.data["names"] == {"len": ["len", "len"], "print": ["print", "print"]}


def test_a_page_is_written_by_its_suffix(tmp_path):
    with ag.Stream(backend="cpu") as stream, ag.Graph(keep_graph=True) as graph:
        stream.launch(print)
    graph.debug_dump(tmp_path / "graph.HTML")
    text = (tmp_path / "graph.HTML").read_text(encoding="utf-8")
    assert text == to_html(graph.describe())
    assert "<title>Graph of cpu, device 0</title>" in text


@pytest.mark.promise("page-is-one-file")
def test_a_page_needs_no_other_file():
    elements = Elements(to_html(forked_chain(20)))
    for tag, attributes in elements.found:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert not {"src", "href", "srcset", "onclick", "onerror"} & attributes.keys()
    [policy] = [attributes["content"] for _, attributes in elements.found if "http-equiv" in attributes]
    assert policy.startswith("default-src 'none';")
    ours = [path.read_text(encoding="utf-8") for path in FOLDER.glob("*.*s") if "cytoscape" not in path.name]
    assert len(ours) == SCRIPTS - 1
    assert not re.findall(r"https?:|@import|url\(|fetch\(|XMLHttp|innerHTML|eval\(", "".join(ours))


def test_names_stay_in_their_place():
    description = labelled(chain(HURTFUL), (HURTFUL, 0, 1, HURTFUL, 3))._replace(backend=HURTFUL)
    elements = Elements(to_html(description))
    assert elements.count("script") == SCRIPTS
    assert elements.count("img") == 0
    shown = elements.data["graphs"][0]
    assert [label["name"] for label in shown["labels"]] == [printable(HURTFUL)]
    assert elements.data["names"] == {HURTFUL: [printable(HURTFUL)] * 2}
    to_html(chain("\ud800")._replace(backend="\ud800")).encode()


def test_labels_are_taken_over_on_one_line_and_from_left_to_right():
    text = to_html(labelled(chain("a", "b", "c"), ("atten\ntion\u202e", 1, 3, "model.py", 7)))
    expected = {"name": "atten\\ntion\\u202e", "start": 1, "stop": 3, "file": "model.py", "line": 7}
    assert Elements(text).data["graphs"][0]["labels"] == [expected]


def test_a_comparison_has_what_both_have_in_one_row():
    old = chain("a", "b", "c", "d")
    changed = [*chain("x", "a", "c", "d", "y").nodes]
    changed[3] = changed[3]._replace(grid=(2, 1, 1))
    new = described(changed, list(chain("x", "a", "c", "d", "y").edges))
    elements = Elements(diff_to_html(old, new, ("<old>", "new")))
    assert elements.data["rows"] == [[None, 0], [0, 1], [1, None], [2, 2], [3, 3], [None, 4]]
    assert "grid" in elements.data["changes"]["3"][0]
    assert elements.data["sentences"] == ag.diff(old, new)
    assert [each["title"] for each in elements.data["graphs"]] == ["<old>", "new"]
    assert (graph_of(elements, 0), graph_of(elements, 1)) == (old, new)


def test_every_node_is_in_a_row_once():
    old, new = chain(*"abcabcab"), chain(*"bcaxcabyb")
    rows = Elements(diff_to_html(old, new, ("a", "b"))).data["rows"]
    assert [a for a, _ in rows if a is not None] == [*range(8)]
    assert [b for _, b in rows if b is not None] == [*range(9)]


def test_two_graphs_are_a_page_or_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.html, not '\.svg'"):
        write_difference(chain("a"), chain("b"), ("a", "b"), ".svg", str(tmp_path / "graphs.svg"))
    assert list(tmp_path.iterdir()) == []


def test_the_library_is_the_version_that_its_page_names():
    source = Path(__file__).parents[2] / "accelerator_graph/inspection/page"  # a wheel has no README there
    said = re.findall(r"\d+\.\d+\.\d+", (source / "README.md").read_text(encoding="utf-8"))
    [version] = re.findall(r'\.version="([\d.]+)"', (FOLDER / "cytoscape.min.js").read_text(encoding="utf-8"))
    assert set(said) == {version}
    assert "Permission is hereby granted" in (FOLDER / "cytoscape-LICENSE.txt").read_text(encoding="utf-8")


# ---- in notebooks --------------------------------------------------------------------------------


def test_a_notebook_shows_the_first_nodes_and_the_table():
    text = forked_chain(60)._repr_html_()
    assert text.count("<rect ") == 25
    assert "... and 35 more nodes" in text
    text = labelled(forked_chain(60), ("model", 2, 9, "m.py", 3), ("model.<b>", 4, 6, "", 0))._repr_html_()
    assert text.count("<rect ") == 28
    assert [*re.findall(r">(model[^<]*)</text>", text)] == ["model", "model / &lt;b&gt;", "model"]
    assert "<title>m.py:3</title>" in text
    assert forked_chain(3)._repr_html_().count("<path ") == 2
    assert "0 nodes" in described([], [])._repr_html_()


def test_a_graph_is_drawn_in_a_notebook_if_it_can_be_described():
    with ag.Stream(backend="cpu") as stream:
        with ag.Graph() as lost:
            stream.launch(print)
        with ag.Graph(keep_graph=True) as graph:
            stream.launch(print)
            assert graph._repr_html_() is None
    assert graph._repr_html_() == graph.describe()._repr_html_()
    assert lost._repr_html_() is None
    assert ag.Graph(backend="cpu")._repr_html_() is None


def test_names_in_a_notebook_are_escaped():
    text = described([GraphNode(0, HURTFUL, HURTFUL)], [])._replace(backend=HURTFUL)._repr_html_()
    text.encode()
    assert "<img" not in text
    assert "</script" not in text
    assert "&lt;/script&gt;" in text
