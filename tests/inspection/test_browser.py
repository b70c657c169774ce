"""Pages of graphs in a real browser: they are drawn, ask nobody for anything, and can be used by keyboard."""

from lanes import require

pytestmark = require("browser")

import time

import pytest

from accelerator_graph.backends.base import GraphEdge, GraphNode
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
PAINTED = """(() => {
    const { overview } = page.views[0], { width, height } = overview;
    const copy = Object.assign(document.createElement("canvas"), { width, height });
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(overview, 0, 0);
    const { data } = context.getImageData(0, 0, width, height);
    return data.filter((value, index) => index % 4 === 3 && value > 0).length * 4 / data.length;
})()"""
"""The part of the window in which something is drawn behind cytoscape's canvas."""
FILL = "page.views[0].cy.getElementById('0').style('background-color')"
TEXTS = "page.views[0].cy.nodes().map((each) => each.data('text')).filter(Boolean)"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def chromium():
    with launched() as browser:
        yield browser


@pytest.fixture
def opened(chromium, tmp_path):
    """Open a page; nothing may have gone wrong on it by the end of the test."""
    views = []

    def opened(text, scheme="light", width=1300):
        path = tmp_path / f"{len(views)}.html"
        path.write_text(text, encoding="utf-8")
        view = chromium.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
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
    """From far away by a canvas of the page, from near by cytoscape, which has those near the window only."""
    view = opened(to_html(forked_chain(10_000)))
    view.click("#unfold")
    assert view.evaluate(SHOWN) > 10_000
    until(view, f"{DRAWN} === 0 && {PAINTED} > 0.2")
    before = view.evaluate("page.views[0].cy.pan().x")
    view.mouse.move(400, 400)
    view.mouse.down()
    view.mouse.move(460, 440, steps=4)
    view.mouse.up()
    until(view, f"page.views[0].cy.pan().x > {before} + 20")
    view.press("#views .canvas", "Home")
    until(view, f"{DRAWN} > 20 && {DRAWN} < 1500 && {EDGES} > 10 && {EDGES} < 1500")
    view.press("#views .canvas", "End")
    until(view, f"page.views[0].cy.getElementById(`${{{SHOWN} - 1}}`).hasClass('chosen')")
    assert view.evaluate(DRAWN) < 1500
    view.click("#fold")
    assert view.evaluate(SHOWN) == 100
    assert view.evaluate(DRAWN) == 100
    assert view.evaluate(PAINTED) == 0


def test_boxes_that_are_far_away_can_be_chosen_and_found(opened):
    view = opened(to_html(forked_chain(10_000)))
    view.click("#unfold")
    before = view.evaluate(PAINTED)
    place = view.evaluate(
        "(() => { const { x, y } = page.shown()[5000].place, { cy, canvas } = page.views[0],"
        " around = canvas.getBoundingClientRect();"
        " return [around.x + x * cy.zoom() + cy.pan().x, around.y + y * cy.zoom() + cy.pan().y]; })()"
    )
    view.mouse.click(*place)
    until(view, "page.chosen() === page.shown()[5000]")
    assert view.evaluate(DRAWN) == 0
    view.fill("#search", "step_77")
    assert view.inner_text("#found") == "100 matches"
    assert view.evaluate(PAINTED) > before


def test_a_large_graph_is_printed_whole(opened):
    view = opened(to_html(forked_chain(3_000)))
    view.click("#unfold")
    view.evaluate("dispatchEvent(new Event('beforeprint'))")
    until(view, "document.querySelector('.printed').naturalWidth > 300")
    assert view.evaluate(DRAWN) > 3_000
    view.evaluate("dispatchEvent(new Event('afterprint'))")
    assert view.evaluate(DRAWN) == 0


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


def test_conditional_nodes_say_what_is_inside_or_that_it_is_not_told(opened):
    body = [GraphNode(0, "memset", value=1)], []
    nodes = [GraphNode(0, "conditional", "if", bodies=(body, body)), GraphNode(1, "conditional")]
    view = opened(to_html(described(nodes, [])))
    names = view.evaluate("page.shown().filter((item) => item.isGroup).map((item) => item.name)")
    assert names == ["inside node 0, then", "inside node 0, else"]
    view.fill("#search", "not reported by the driver")
    view.press("#search", "Enter")
    assert view.evaluate(CHOSEN) == "1"
    view.fill("#search", "0/1/0")
    view.press("#search", "Enter")
    assert "value\n1" in details(view)


def test_what_differs_inside_a_conditional_node_is_marked(opened):
    def conditional(*values):
        bodies = tuple(([GraphNode(0, "memset", value=value)], []) for value in values)
        return described([GraphNode(0, "kernel", "f"), GraphNode(1, "conditional", "if", bodies=bodies)], [])

    view = opened(diff_to_html(conditional(1, 2), conditional(1, 3), ("old", "new")))
    assert "inside node 1 (conditional if), else" in details(view)
    assert view.evaluate(SHOWN) == 5
    view.click("#unfold")
    assert view.evaluate(SHOWN) == 6
    assert view.evaluate("page.views.map(({ cy }) => cy.$('.changed').length)") == [2, 2]
    view.fill("#search", "1/1/0")
    view.press("#search", "Enter")
    assert "fills with 3 instead of 2" in details(view)


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


def test_times_of_labels_and_what_has_to_be_known(opened):
    description = labelled(chain(*"abcd"), ("step", 0, 4, "s.py", 1), ("attention", 1, 2, "s.py", 2))
    spans = [(0.0, 300.0), (0.0, 300.0), (100.0, 110.0)]
    profile = GraphProfile.of("cuda", 0, 4, [300.0], description.labels, [spans])
    view = opened(to_html(description, profile))
    assert view.input_value("#colour") == "time"
    assert "time of a label 300 us" in view.inner_text("#legend")
    fills = view.evaluate("page.views[0].cy.nodes().not('.box').map((each) => each.data('fill'))")
    assert len({fills[0], fills[2], fills[1]}) == 3  # the two labels, and the nodes, which have no times
    assert len({*fills}) == 3
    texts = view.evaluate(TEXTS)
    assert {"\u25be step \u00b7 300 us", "\u25be attention \u00b7 10 us ?"} < {*texts}
    assert "300 us a replay (median of 1; 300 us to 300 us)." in details(view)
    assert "below 20 us the time is uncertain" in details(view)
    view.press("#views .canvas", "ArrowDown")
    assert "300 us" in details(view)
    kernels = [{0: (0.0, 90.0), 1: (100.0, 110.0)}]
    view = opened(to_html(description, profile.with_kernels(description.nodes, kernels)))
    assert "time of a node 90 us" in view.inner_text("#legend")
    assert view.evaluate("page.views[0].cy.getElementById('1').data('fill')") == fills[0]


@pytest.mark.parametrize("width", [1280, 1920])
@pytest.mark.parametrize("by_branch", [True, False])
def test_branches_of_a_fork_are_side_by_side(opened, width, by_branch):
    """In whatever order they were recorded: branch by branch, or step by step."""
    branches, steps = 40, 3
    number = [
        1 + (b * steps + s if by_branch else s * branches + b) for b in range(branches) for s in range(steps)
    ]
    last = branches * steps + 1
    edges = [GraphEdge(number[at - 1] if at % steps else 0, number[at]) for at in range(len(number))] + [
        GraphEdge(number[at], last) for at in range(steps - 1, len(number), steps)
    ]
    nodes = [GraphNode(node, "kernel", f"k{node}") for node in range(last + 1)]
    view = opened(to_html(described(nodes, edges)), width=width)
    places = view.evaluate("page.shown().map(({ place: { x, y } }) => [x, y])")
    assert {y for _, y in places} == {46 * line for line in range(steps + 2)}
    assert len({x for x, _ in places}) == branches
    assert len({(x, y) for x, y in places}) == last + 1
    if by_branch:  # names of labels are above their branches
        labels = [(f"branch {b}", 1 + b * steps, 1 + (b + 1) * steps, "m.py", 1) for b in range(branches)]
        view = opened(to_html(labelled(described(nodes, edges), *labels)), width=width)
        box = "page.views[0].cy.getElementById(`${item.place.index}`).position('x')"
        headers = view.evaluate(f"page.shown().filter((item) => item.isGroup).map((item) => {box})")
        first = view.evaluate(
            f"page.shown().filter((item) => item.isGroup).map(({{ items: [item] }}) => {box})"
        )
        assert headers == first
        assert len({*headers}) == branches


def test_parts_of_a_long_list_are_named_by_their_labels(opened):
    layers = [(f"layers.{at}", 2 * at, 2 * at + 1, "m.py", 1) for at in range(400)]
    view = opened(to_html(labelled(chain(*["step"] * 801), *layers)))
    assert "\u25b8 layers.0 to layers.49 (100)" in view.evaluate(TEXTS)
    assert view.evaluate(TEXTS)[-1] == "\u25b8 node 800"


LONG = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT"


@pytest.mark.parametrize("width", [1280, 1920])
@pytest.mark.parametrize("count", [20, 60, 250])
def test_names_are_whole_where_there_is_room_and_can_be_read_at_first(opened, width, count):
    view = opened(to_html(chain(*[LONG] * count)), width=width)
    assert view.evaluate("page.views[0].cy.zoom()") >= 0.85
    [text] = {*view.evaluate(TEXTS)}
    assert (text == LONG) if count == 20 else (text[:9] + text[-9:] == LONG[:9] + LONG[-9:])
    first = view.evaluate("page.views[0].cy.getElementById('0').renderedBoundingBox()")
    assert first["x1"] > 0 < first["y1"]


def test_odd_and_long_labels_stay_in_their_boxes(opened):
    names = "first\nsecond", "\u202eturned", "x" * 3000
    labels = [(name, 2 * at, 2 * at + 2, "s.py", 1) for at, name in enumerate(names)]
    view = opened(to_html(labelled(chain(*"abcdef"), *labels)))
    texts = view.evaluate(TEXTS)
    assert {"\u25be first\\nsecond", "\u25be \\u202eturned"} < {*texts}
    assert max(map(len, texts)) < 100
    view.click("#fold")
    assert [text for text in view.evaluate(TEXTS) if text.endswith("xx (2)")]


def test_keys_work_before_anything_is_clicked(opened):
    view = opened(to_html(forked_chain(30)))
    view.keyboard.press("End")
    assert view.evaluate(CHOSEN) == "29"
    view.keyboard.press("ArrowUp")
    assert view.evaluate(CHOSEN) == "28"


def test_names_are_text(opened):
    hurtful = "</script><img src=x onerror='window.hurt = true'>"
    view = opened(to_html(chain(hurtful, "b")))
    view.press("#views .canvas", "ArrowDown")
    assert hurtful in details(view)
    assert view.evaluate("window.hurt") is None


def test_two_graphs_move_together_and_are_marked(opened):
    names = [f"step_{index}" for index in range(40)]
    new = chain(*names[:10], "extra", *names[10:20], *names[21:])
    view = opened(diff_to_html(chain(*names), new, ("old", "new")))
    assert "node 10 (kernel extra) is new\nnode 20 (kernel step_20) is gone" in details(view)
    assert view.evaluate("page.views.map(({ cy }) => cy.$('.gone').length)") == [1, 0]
    assert view.evaluate("page.views.map(({ cy }) => cy.$('.new').length)") == [0, 1]
    for key, number, name in (("n", 1, "extra"), ("n", 2, "step_20"), ("n", 1, "extra"), ("p", 2, "step_20")):
        view.press("#views .canvas >> nth=0", key)
        assert view.inner_text("#found") == f"{number} of 2"
        assert name in details(view)
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


def test_two_graphs_have_their_labels(opened):
    layers = [(f"layer {at}", 10 * at, 10 * at + 10, "m.py", 1) for at in range(4)]
    old = labelled(chain(*[f"step_{at}" for at in range(40)]), *layers)
    nodes = [*old.nodes]
    nodes[15] = nodes[15]._replace(grid=(1, 2, 3))
    view = opened(diff_to_html(old, old._replace(nodes=tuple(nodes)), ("old", "new")))
    texts = view.evaluate(TEXTS)
    assert {"\u25b8 layer 0 (10)", "\u25be layer 1", "\u2260 step_15", "\u25b8 20 the same"} < {*texts}
    assert view.evaluate("page.views[1].cy.$('.changed').length") == 1
    view.click("#unfold")
    assert {f"\u25be layer {at}" for at in range(4)} < {*view.evaluate(TEXTS)}


def test_a_page_is_printed_light_with_the_whole_graph(opened):
    view = opened(to_html(forked_chain(30)), "dark")
    dark = view.evaluate(FILL)
    view.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.evaluate(FILL) != dark
    until(view, "document.querySelector('.printed').naturalWidth > 300")
    view.evaluate("dispatchEvent(new Event('afterprint'))")
    assert view.evaluate(FILL) == dark
    assert view.pdf().startswith(b"%PDF")


def test_a_body_without_nodes_can_be_folded(opened):
    view = opened(to_html(described([GraphNode(0, "conditional", "if", bodies=(([], []),))], [])))
    view.click("#fold")
    assert view.evaluate("page.shown().map(({ place: { x, y } }) => [x, y])") == [[0, 0], [0, 46]]
    assert view.evaluate(DRAWN) == 2
    view.press("#views .canvas", "End")
    assert details(view).startswith("inside node 0")


def test_a_graph_without_nodes(opened):
    view = opened(to_html(described([], [])))
    view.press("#views .canvas", "ArrowDown")
    view.press("#views .canvas", "Enter")
    assert details(view) == "The graph has no nodes."
