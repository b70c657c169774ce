"""Pages of graphs in a real browser: they are drawn, ask nobody for anything, and can be used by keyboard."""

from __future__ import annotations

from lanes import require

pytestmark = require("browser")

import time

import pytest

from accelerator_graph.backends.base import GraphNode
from accelerator_graph.inspection.page import diff_to_html, to_html
from accelerator_graph.inspection.profile import GraphProfile
from browser import launched, watched
from inspection.shapes import chain, described, forked_chain, labelled

TIMEOUT = 60_000
"""In milliseconds, as playwright counts: ten thousand boxes take seconds, on a busy machine more."""

SHOWN = "page.shown().length"
CHOSEN = "page.chosen().sides.at(-1).uid"
EDGES = "page.views[0].cy.edges().length"
DRAWN = "page.views[0].cy.nodes().length"
FILL = "page.views[0].cy.getElementById('0').style('background-color')"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def chromium():
    with launched() as browser:
        yield browser


@pytest.fixture
def opened(chromium, tmp_path):
    """Open a page; nothing may have gone wrong on it by the end of the test."""
    views = []

    def opened(text, scheme="light"):
        path = tmp_path / f"{len(views)}.html"
        path.write_text(text, encoding="utf-8")
        view = chromium.new_page(viewport={"width": 1300, "height": 800}, color_scheme=scheme)
        view.set_default_timeout(TIMEOUT)
        views.append((view, watched(view, path.as_uri())))
        view.goto(path.as_uri())
        return view

    yield opened
    for view, found in views:
        view.close()
        assert found == []


def until(view, condition):
    """Wait for a condition; playwright's own way would need `eval`, which the pages forbid."""
    end = time.monotonic() + TIMEOUT / 1000
    while not view.evaluate(condition):
        assert time.monotonic() < end, condition
        view.wait_for_timeout(50)


def details(view):
    return view.inner_text("#details")


@pytest.mark.parametrize("count", [100, 10_000])
def test_search_finds_a_node_and_keys_move_on(opened, count):
    wanted = count - 6
    view = opened(to_html(forked_chain(count)))
    assert view.evaluate(SHOWN) == 100
    assert "Each box is one piece of work" in details(view)
    view.keyboard.press("/")
    view.keyboard.type(f"step_{wanted}")
    assert view.inner_text("#found") == "1 match"
    view.keyboard.press("Enter")
    assert view.evaluate(CHOSEN) == str(wanted)
    assert f"step_{wanted}" in details(view)
    assert "step_" in details(view).partition("waited for by")[2]
    view.keyboard.press("Escape")
    view.keyboard.press("ArrowDown")
    assert view.evaluate(CHOSEN) == str(wanted + 1)
    view.keyboard.press("ArrowLeft")
    assert view.evaluate(CHOSEN) == str(wanted)
    view.keyboard.press("Home")
    view.keyboard.press("End")
    assert view.evaluate("page.chosen() === page.shown().at(-1)")


def test_ten_thousand_nodes_are_drawn(opened):
    view = opened(to_html(forked_chain(10_000)))
    view.click("#unfold")
    until(view, f"{DRAWN} >= 10000")
    before = view.evaluate("page.views[0].cy.pan().x")
    view.mouse.move(400, 400)
    view.mouse.down()
    view.mouse.move(460, 440, steps=4)
    view.mouse.up()
    until(view, f"page.views[0].cy.pan().x > {before} + 20")
    assert view.evaluate(EDGES) == 0
    view.press("#views .canvas", "Home")
    until(view, f"{EDGES} > 10 && {EDGES} < 1500")
    view.click("#fold")
    assert view.evaluate(SHOWN) == 100


def test_labels_fold_and_say_where_they_are(opened):
    names = (
        ("model", 0, 40, "model.py", 3),
        ("attention", 10, 20, "model.py", 7),
        ("attention", 30, 35, "", 0),
    )
    view = opened(to_html(labelled(forked_chain(60), *names)))
    assert view.evaluate(SHOWN) == 63
    view.fill("#search", "attention")
    assert view.inner_text("#found") == "15 matches"
    view.press("#search", "Enter")
    assert view.evaluate(CHOSEN) == "10"
    assert "model (model.py:3) \u203a attention (model.py:7)" in details(view)
    view.keyboard.press("Escape")
    view.keyboard.press("Enter")
    assert view.evaluate(SHOWN) == 53
    assert "model.py:7" in details(view)
    assert "Unfold" in details(view)
    view.keyboard.press("ArrowRight")
    assert view.evaluate(SHOWN) == 63


def test_bodies_are_shown_inside_their_node(opened):
    inside = chain("inner_a", "inner_b")
    body = [*inside.nodes], [*inside.edges]
    nodes = [GraphNode(0, "kernel", "outer"), GraphNode(1, "graph", bodies=(body,))]
    view = opened(to_html(described(nodes, [])))
    assert view.evaluate(SHOWN) == 5
    view.fill("#search", "inner_b")
    view.press("#search", "Enter")
    assert view.evaluate(CHOSEN) == "1/0/1"
    assert "1/0/0 inner_a" in details(view)


def test_dark_and_light_are_different_and_follow_the_system(opened):
    view = opened(to_html(forked_chain(30)))
    light = view.evaluate(BACKGROUND), view.evaluate(FILL)
    view.emulate_media(color_scheme="dark")
    until(view, f"{FILL} !== '{light[1]}'")
    dark = opened(to_html(forked_chain(30)), "dark")
    assert (dark.evaluate(BACKGROUND), dark.evaluate(FILL)) == (
        view.evaluate(BACKGROUND),
        view.evaluate(FILL),
    )
    assert view.evaluate(BACKGROUND) != light[0]


def test_colours_by_size(opened):
    view = opened(to_html(forked_chain(30)))
    view.select_option("#colour", "size")
    fills = view.evaluate(
        "[2, 12].map((id) => page.views[0].cy.getElementById(`${id}`).style('background-color'))"
    )
    assert fills[0] != fills[1]
    assert "size 2.1 KiB" in view.inner_text("#legend")


def test_times_of_labels(opened):
    description = labelled(chain(*"abcd"), ("step", 0, 4, "s.py", 1), ("attention", 1, 2, "s.py", 2))
    spans = [(0.0, 300.0), (0.0, 300.0), (100.0, 350.0)]
    profile = GraphProfile.of("cuda", 0, 4, [300.0], description.labels, [spans])
    view = opened(to_html(description, profile))
    assert view.input_value("#colour") == "time"
    assert "time 250 us" in view.inner_text("#legend")
    fills = view.evaluate(
        "page.shown().map((item, index) => item.isGroup ? null :"
        " page.views[0].cy.getElementById(`${index}`).style('background-color')).filter(Boolean)"
    )
    assert fills[0] == fills[2] == fills[3] != fills[1]
    assert "step · 300 us" in view.evaluate(
        "page.views[0].cy.nodes().map((each) => each.data('text')).join()"
    )
    view.press("#views .canvas", "ArrowDown")
    assert "300 us" in details(view)


def test_names_are_text(opened):
    hurtful = "</script><img src=x onerror='window.hurt = true'>"
    view = opened(to_html(chain(hurtful, "b")))
    view.press("#views .canvas", "ArrowDown")
    assert hurtful in details(view)
    assert view.evaluate("window.hurt") is None


def test_two_graphs_move_together_and_are_marked(opened):
    names = [f"step_{index}" for index in range(40)]
    view = opened(diff_to_html(chain(*names), chain(*names[:20], "extra", *names[21:]), ("old", "new")))
    assert "node 20 (kernel step_20) is gone" in details(view)
    assert view.evaluate("page.views.map(({ cy }) => cy.$('.gone').length)") == [1, 0]
    assert view.evaluate("page.views.map(({ cy }) => cy.$('.new').length)") == [0, 1]
    view.mouse.move(300, 500)
    view.mouse.wheel(0, -300)
    until(
        view,
        "page.views[0].cy.zoom() === page.views[1].cy.zoom()"
        "&& page.views[0].cy.pan().x === page.views[1].cy.pan().x",
    )
    view.fill("#search", "extra")
    view.press("#search", "Enter")
    assert "Only in the second graph" in details(view)


def test_a_page_is_printed_light_with_the_whole_graph(opened):
    view = opened(to_html(forked_chain(30)), "dark")
    dark = view.evaluate(FILL)
    view.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.evaluate(FILL) != dark
    until(view, "document.querySelector('.printed').naturalWidth > 300")
    view.evaluate("dispatchEvent(new Event('afterprint'))")
    assert view.evaluate(FILL) == dark
    assert view.pdf().startswith(b"%PDF")


def test_a_graph_without_nodes(opened):
    view = opened(to_html(described([], [])))
    view.press("#views .canvas", "ArrowDown")
    view.press("#views .canvas", "Enter")
    assert details(view) == "The graph has no nodes."
