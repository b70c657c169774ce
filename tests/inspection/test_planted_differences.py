"""What `diff` says of two graphs between which one thing was changed, in models whose layers are alike."""

import random
import time

import pytest

from accelerator_graph import GraphDescription, Label, diff
from accelerator_graph.backends.base import GraphEdge, GraphNode
from accelerator_graph.inspection.difference import compare


def kernel(name, blocks):
    return GraphNode(0, "kernel", name, (blocks, 1, 1), (128, 1, 1), 0)


NORM, SOFTMAX, ADD = kernel("norm", 4), kernel("softmax", 12), kernel("add", 8)
GEMMS = kernel("gemm", 64), kernel("gemm", 32)
ZERO = GraphNode(0, "memset", target=4096, nbytes=4, value=0)
LAYER = [NORM, GEMMS[0], SOFTMAX, GEMMS[1], ADD, ZERO]
TWELVE = [LAYER] * 12
WIDER = [kernel(each.name, each.grid[0] * 2) if each.grid else each for each in LAYER]
CONTENTS = "(2 kernel gemm, 1 kernel norm, 1 kernel softmax, 1 kernel add, 1 memset)"

LABELS = {
    "numbered": lambda number: f"layers.{number}",  # as torch names modules
    "alike": lambda number: "layer",
    "none": None,
}


def model(layers, name=LABELS["numbered"]):
    """A chain: one kernel, the layers, and one kernel."""
    nodes, labels = [kernel("embed", 1)], []
    for number, layer in enumerate(layers):
        if name is not None:
            labels.append(Label(name(number), len(nodes), len(nodes) + len(layer), "model.py", 1))
        nodes += layer
    nodes.append(kernel("head", 1))
    chain = [GraphEdge(index, index + 1) for index in range(len(nodes) - 1)]
    numbered = [node._replace(id=index) for index, node in enumerate(nodes)]
    return GraphDescription.of("cuda", 0, (numbered, chain), labels)


def replaced(layers, index, position, *nodes):
    """The layers, in one of which these nodes stand in the place of one."""
    layer = layers[index]
    return [*layers[:index], [*layer[:position], *nodes, *layer[position + 1 :]], *layers[index + 1 :]]


@pytest.mark.parametrize("labels", LABELS)
def test_one_grid(labels):
    name = LABELS[labels]
    old, new = model(TWELVE, name), model(replaced(TWELVE, 7, 1, kernel("gemm", 65)), name)
    where = {"numbered": "in 'layers.7': ", "alike": "in 'layer', number 8: ", "none": ""}[labels]
    assert diff(old, new) == [f"{where}node 44 (kernel gemm) has the grid (65, 1, 1) instead of (64, 1, 1)"]
    assert diff(new, old) == [f"{where}node 44 (kernel gemm) has the grid (64, 1, 1) instead of (65, 1, 1)"]


@pytest.mark.parametrize("labels", LABELS)
def test_one_function(labels):
    name = LABELS[labels]
    old, new = model(TWELVE, name), model(replaced(TWELVE, 4, 3, kernel("gemm_tn", 32)), name)
    where = {"numbered": "in 'layers.4': ", "alike": "in 'layer', number 5: ", "none": ""}[labels]
    assert diff(old, new) == [f"{where}node 28 (kernel gemm_tn) calls gemm_tn instead of gemm"]


@pytest.mark.parametrize("labels", LABELS)
def test_one_kernel_more(labels):
    name = LABELS[labels]
    old, new = model(TWELVE, name), model(replaced(TWELVE, 4, 2, SOFTMAX, kernel("dropout", 1)), name)
    where = {"numbered": "in 'layers.4': ", "alike": "in 'layer', number 5: ", "none": ""}[labels]
    assert diff(old, new) == [f"{where}node 28 (kernel dropout) is new"]
    assert diff(new, old) == [f"{where}node 28 (kernel dropout) is gone"]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("numbered", f"label 'layers.12' is {{}}: nodes 73 to 78 {CONTENTS}"),
        ("alike", f"label 'layer', number 13, is {{}}: nodes 73 to 78 {CONTENTS}"),
        ("none", f"nodes 73 to 78 {CONTENTS} are {{}}"),
    ],
)
def test_one_layer_more_of_the_same_kind(labels, said):
    """Nothing tells which of thirteen equal layers is the one more; by its number, it is the last one."""
    old, new = model(TWELVE, LABELS[labels]), model([*TWELVE, LAYER], LABELS[labels])
    assert diff(old, new) == [said.format("new")]
    assert diff(new, old) == [said.format("gone")]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("alike", f"label 'layer', number 6, is new: nodes 31 to 36 {CONTENTS}"),
        ("none", f"nodes 31 to 36 {CONTENTS} are new"),
    ],
)
def test_a_layer_with_other_parameters_in_the_middle(labels, said):
    old, new = model(TWELVE, LABELS[labels]), model([*TWELVE[:5], WIDER, *TWELVE[5:]], LABELS[labels])
    assert diff(old, new) == [said]


def test_a_layer_in_the_middle_and_another_one_gone():
    layers = [[node._replace(nbytes=number, block=(number, 1, 1)) for node in LAYER] for number in range(12)]
    new = [*layers[:4], WIDER, *layers[4:9], *layers[10:]]
    assert diff(model(layers, None), model(new, None)) == [
        f"nodes 25 to 30 {CONTENTS} are new",
        f"nodes 55 to 60 {CONTENTS} are gone",
    ]


@pytest.mark.parametrize("labels", LABELS)
def test_everything_has_another_grid_and_nothing_is_new(labels):
    old, new = model(TWELVE, LABELS[labels]), model([WIDER] * 12, LABELS[labels])
    said = diff(old, new)
    assert all("the grid" in each for each in said), said
    assert len(said) == (5 if labels == "none" else 5 * 12)


def test_a_label_has_another_name():
    old = model(TWELVE)
    new = model(TWELVE, lambda number: f"blocks.{number}" if number == 3 else f"layers.{number}")
    assert diff(old, new) == ["label 'blocks.3' was called 'layers.3'"]


def test_ten_thousand_nodes_with_changes_everywhere():
    chooses = random.Random(1)
    layer = [kernel(f"k{chooses.randrange(60)}", chooses.randrange(4)) for _ in range(800)]
    changed = [[*layer[:index], kernel("extra", 1), *layer[index:]] for index in range(1, 13)]
    old, new = model([layer] * 12, None), model([[kernel("first", 1)], *changed, layer], None)
    begun = time.process_time()
    said = diff(old, new)
    assert time.process_time() - begun < 2
    assert said[:12] == [
        "node 1 (kernel first) is new",
        *(f"node {3 + 802 * index} (kernel extra) is new" for index in range(11)),
    ]
    [layer_and_one] = said[12:]
    assert layer_and_one.startswith("nodes 8025 to 8825 (")


# ---- any two graphs ------------------------------------------------------------------------------


def any_graph(chooses):
    """A few nodes of few kinds, their dependencies and labels that are nested."""
    count = chooses.randrange(12)
    nodes = [
        chooses.choice((NORM, GEMMS[0], GEMMS[1], ZERO, ZERO._replace(target=8)))._replace(id=index)
        for index in range(count)
    ]
    edges = [
        GraphEdge(a, b, chooses.choice(("", "", "programmatic")))
        for b in range(count)
        for a in range(b)
        if chooses.random() < 0.3
    ]
    labels = []
    for _ in range(chooses.randrange(3) if count else 0):
        start = chooses.randrange(count)
        labels.append(Label(chooses.choice("ab"), start, chooses.randrange(start, count) + 1, "m.py", 1))
    return GraphDescription.of(
        "cuda", 0, (nodes, edges), sorted(labels, key=lambda each: (each.start, -each.stop))
    )


@pytest.mark.parametrize("seed", range(300))
def test_equal_graphs_and_no_others_have_no_difference(seed):
    chooses = random.Random(seed)
    a, b = any_graph(chooses), any_graph(chooses)
    if seed % 3 == 0:  # almost equal
        b = a._replace(edges=a.edges[:-1])
    assert diff(a, a) == []
    assert bool(diff(a, b)) == (a != b)
    assert bool(diff(b, a)) == (a != b)


@pytest.mark.parametrize("seed", range(100))
def test_pairs_are_of_one_kind_and_in_order(seed):
    chooses = random.Random(seed)
    a, b = any_graph(chooses), any_graph(chooses)
    pairs = compare(a, b).pairs
    assert [*pairs] == sorted(pairs)
    assert [*pairs.values()] == sorted({*pairs.values()})
    assert all(a.nodes[old].kind == b.nodes[new].kind for old, new in pairs.items())
