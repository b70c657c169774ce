"""Descriptions as JSON, and back."""

import json

import pytest

from accelerator_graph import GraphDescription, Label
from accelerator_graph.backends.base import GraphEdge, GraphNode
from accelerator_graph.inspection.serialization import read_json, record, value

INSIDE = ([GraphNode(0, "memcpy", source=1, target=2, nbytes=3)], [])
NODES = [
    GraphNode(0, "kernel", "f", grid=(1, 2, 3), block=(32, 1, 1), shared_bytes=48),
    GraphNode(1, "memset", target=2**63, nbytes=8, value=0),
    GraphNode(2, "graph", bodies=(INSIDE, INSIDE)),
]
MANGLED = "_ZN2ns5scaleEPf"
DESCRIPTION = GraphDescription.of("cuda", 1, (NODES, [GraphEdge(1, 2), GraphEdge(0, 1, "programmatic")]))


def test_there_and_back():
    assert GraphDescription.from_json(DESCRIPTION.to_json()) == DESCRIPTION
    assert GraphDescription.from_json(DESCRIPTION.to_json(indent=2)) == DESCRIPTION
    assert DESCRIPTION.edges == (GraphEdge(0, 1, "programmatic"), GraphEdge(1, 2))


def test_every_field_comes_back_from_nodes_inside_others_too():
    """No two are equal: neither the bodies, nor the dependencies in them."""
    full = GraphNode(
        *(0, "kernel", "f", (1, 2, 3), (4, 5, 6), 7, 8, 9, 10, 11),
        arguments=(8, 4),
        settable=("arguments", "enabled"),
        changed=("arguments",),
        values=("00", "01"),
        enabled=False,
    )
    plain = GraphNode(0, "empty"), GraphNode(1, "host"), GraphNode(2, "memset", shared_bytes=0, target=0)
    deep = GraphNode(1, "graph", bodies=(([full], []),))
    first = [full, deep, plain[2]], [GraphEdge(0, 2), GraphEdge(1, 2, "programmatic")]
    second = [*plain], [GraphEdge(0, 1, "programmatic")]
    nodes = [full, GraphNode(1, "conditional", "if", bodies=(first, second, ([], []))), plain[2]]
    described = GraphDescription.of("cuda", 1, (nodes, [GraphEdge(0, 2)]))
    read = GraphDescription.from_json(described.to_json())
    assert read == described
    assert read.nodes == tuple(nodes)
    assert [[len(part) for part in body] for body in read.nodes[1].bodies] == [[3, 2], [3, 1], [0, 0]]


def test_only_what_is_known_is_written():
    data = json.loads(DESCRIPTION.to_json())
    assert data["schema"] == 1
    assert data["nodes"][1] == {"id": 1, "kind": "memset", "target": 2**63, "nbytes": 8, "value": 0}
    assert data["edges"] == [[0, 1, "programmatic"], [1, 2]]


@pytest.mark.parametrize(
    ("wanted", "data", "expected"),
    [
        (int, 1, 1),
        (int, True, None),
        (int, 1.0, None),
        (bool, True, True),
        (bool, 1, None),
        (float, 1.5, 1.5),
        (float, 1, None),
        (str, "1", "1"),
        (str, None, None),
        (int | None, 1, 1),
        (int | None, True, None),
        (None | int, 1, 1),
        (tuple[int, str] | None, [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2, 3], (1, 2, 3)),
        (tuple[int, ...], [], ()),
        (tuple[int, ...], [1, False], None),
        (tuple[int, ...], "12", None),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, str], [1], None),
        (tuple[int, str], [1, "a", "b"], None),
        (GraphEdge, [0, 1], GraphEdge(0, 1)),
        (GraphEdge, {"source": 0, "target": 1, "new": 2}, GraphEdge(0, 1)),
        (GraphEdge, {"source": 0, "target": True}, None),
        (GraphEdge, [0, 1, "", "too many"], None),
        (GraphEdge, 1, None),
    ],
)
def test_a_value_has_to_be_of_its_type(wanted, data, expected):
    if expected is None:
        with pytest.raises(TypeError, match="can't be"):
            value(wanted, data)
    else:
        found = value(wanted, data)
        assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("data", "others", "expected"),
    [
        ([1, 2, "a"], {}, GraphEdge(1, 2, "a")),
        ([1, 2], {"source": 5}, GraphEdge(5, 2)),
        ([1, "not taken"], {"target": 3}, GraphEdge(1, 3)),
        ({"target": 2, "source": 1}, {}, GraphEdge(1, 2)),
        ({"target": "not taken", "source": 1, "kind": "a"}, {"target": 3}, GraphEdge(1, 3, "a")),
        ({"target": 2}, {}, KeyError),
        ([1], {}, KeyError),
        ((1, 2), {}, TypeError),
    ],
)
def test_fields_are_read_by_their_names_or_in_their_order(data, others, expected):
    if isinstance(expected, type):
        with pytest.raises(expected):
            record(GraphEdge, data, **others)
    else:
        assert record(GraphEdge, data, **others) == expected


def test_nothing_is_a_value_where_it_may_be():
    assert value(int | None, None) is None


def test_mode_and_pool():
    captured = DESCRIPTION._replace(mode="global", pool=(0, 7))
    assert GraphDescription.from_json(captured.to_json()) == captured
    data = json.loads(captured.to_json())
    assert (data["schema"], data["mode"], data["pool"]) == (1, "global", [0, 7])
    assert not {"mode", "pool"} & json.loads(DESCRIPTION.to_json()).keys()


@pytest.mark.parametrize("pool", [[1], [1, 2, 3], ["a", "b"], 7])
def test_a_pool_that_is_none_is_refused(pool):
    text = json.dumps(json.loads(DESCRIPTION.to_json()) | {"pool": pool})
    with pytest.raises(ValueError, match="damaged"):
        GraphDescription.from_json(text)


def test_labels():
    labels = (Label("a", 0, 3, "model.py", 7), Label("b", 1, 2, "model.py", 9))
    labelled = DESCRIPTION._replace(labels=labels)
    assert GraphDescription.from_json(labelled.to_json()) == labelled
    data = json.loads(labelled.to_json())
    assert data["schema"] == 1
    assert data["labels"][1] == {"name": "b", "start": 1, "stop": 2, "file": "model.py", "line": 9}
    assert "labels" not in json.loads(DESCRIPTION.to_json())
    data["labels"][0]["colour"] = "red"
    assert GraphDescription.from_json(json.dumps(data)) == labelled


def test_a_name_in_c_plus_plus_is_kept_once():
    nodes = [
        GraphNode(0, "kernel", MANGLED),
        GraphNode(1, "graph", bodies=(([GraphNode(0, "kernel", MANGLED)], []),)),
    ]
    described = GraphDescription.of("cuda", 0, (nodes, []))
    assert described.nodes[0].demangled == "ns::scale(float*)"
    text = described.to_json()
    assert text.count("ns::scale") == 1
    data = json.loads(text)
    assert data["schema"] == 1
    assert GraphDescription.from_json(text) == described
    data["demangled"][MANGLED] = "as another machine says it"
    assert GraphDescription.from_json(json.dumps(data)).nodes[0].demangled == "as another machine says it"


def test_a_name_that_only_a_node_inside_has_is_kept():
    inside = ([GraphNode(0, "kernel", MANGLED)], [])
    text = GraphDescription.of("cuda", 0, ([GraphNode(0, "graph", bodies=(inside,))], [])).to_json()
    data = json.loads(text)
    data["demangled"][MANGLED] = "as another machine says it"
    ((node,), _) = GraphDescription.from_json(json.dumps(data)).nodes[0].bodies[0]
    assert node.demangled == "as another machine says it"


def test_a_file_without_such_names_is_read():
    data = {"schema": 1, "backend": "cuda", "device": 0, "edges": []}
    text = json.dumps(data | {"nodes": [{"id": 0, "kind": "kernel", "name": MANGLED}]})
    assert GraphDescription.from_json(text).nodes[0].demangled == "ns::scale(float*)"
    for damaged in ([], 3, {MANGLED: 3}):
        with pytest.raises(ValueError, match="damaged"):
            GraphDescription.from_json(text[:-1] + f', "demangled": {json.dumps(damaged)}}}')


@pytest.mark.parametrize("change", [{"start": 2, "stop": 2}, {"stop": 4}, {"start": -1}, {"start": "0"}])
def test_labels_of_nodes_that_are_not_there_are_refused(change):
    label = Label("a", 0, 3, "model.py", 7)._asdict() | change
    text = json.dumps(json.loads(DESCRIPTION.to_json()) | {"labels": [label]})
    with pytest.raises(ValueError, match="damaged"):
        GraphDescription.from_json(text)


@pytest.mark.promise("old-json-is-read")
def test_fields_of_a_later_version_are_ignored():
    data = json.loads(DESCRIPTION.to_json())
    data["nodes"][0]["colour"] = "red"
    assert GraphDescription.from_json(json.dumps(data | {"more": 1})) == DESCRIPTION


def test_each_of_two_names_has_its_own_in_c_plus_plus():
    other = "_ZN2ns3addEi"
    nodes = [GraphNode(number, "kernel", name) for number, name in enumerate((MANGLED, "plain", other))]
    text = GraphDescription.of("cuda", 0, (nodes, [])).to_json()
    read = GraphDescription.from_json(text)
    assert [node.demangled for node in read.nodes] == ["ns::scale(float*)", "", "ns::add(int)"]
    assert json.loads(text)["demangled"] == {MANGLED: "ns::scale(float*)", other: "ns::add(int)"}


INNER = {"nodes": [{"id": 0, "kind": "empty"}, {"id": 1, "kind": "empty"}], "edges": [[0, 1]]}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"edges": [[0, 2]]}, "names a node that does not exist"),
        ({"edges": [[2, 0]]}, "names a node that does not exist"),
        ({"edges": [[0, 1], [-1, 1]]}, "names a node that does not exist"),
        ({"edges": [[0, -1], [0, 1]]}, "names a node that does not exist"),
        ({"nodes": INNER["nodes"][::-1]}, "not numbered in their order"),
        ({"nodes": [{"id": 1, "kind": "empty"}, {"id": 2, "kind": "empty"}]}, "not numbered in their order"),
        ({"nodes": [*INNER["nodes"], {"id": 1, "kind": "empty"}]}, "not numbered in their order"),
        ({"nodes": [INNER["nodes"][0], 5]}, "GraphNode can't be 5"),
    ],
)
def test_nodes_and_dependencies_are_checked_in_every_graph(inside, change, said):
    data = INNER | change
    if inside:
        whole = {"id": 0, "kind": "conditional", "bodies": [INNER, data]}
        data = {"nodes": [whole], "edges": []}
    text = json.dumps({"schema": 1, "backend": "cpu", "device": 0} | data)
    if not said:
        assert len(GraphDescription.from_json(text).nodes) == (1 if inside else 2)
        return
    with pytest.raises(ValueError, match=f"the description is damaged .*{said}"):
        GraphDescription.from_json(text)


def test_a_long_value_is_not_repeated_in_full():
    data = json.loads(DESCRIPTION.to_json())
    for part, named in (("backend", "'backend'"), ("device", "'device'")):
        with pytest.raises(ValueError, match=f"{named} can't be ") as raised:
            GraphDescription.from_json(json.dumps(data | {part: [*range(10_000)]}))
        assert len(str(raised.value)) < 300


@pytest.mark.promise("old-json-is-read")
@pytest.mark.parametrize("newest", [1, 2, 3])
def test_texts_up_to_the_newest_schema_are_read(newest):
    for schema in range(5):
        text = json.dumps({"schema": schema, "more": 7})
        if 1 <= schema <= newest:
            assert read_json(text, "a thing", "thing", newest, lambda data: data["more"]) == 7
        else:
            said = f"^the thing has schema {schema}, and this accelerator_graph reads up to {newest};"
            with pytest.raises(ValueError, match=said):
                read_json(text, "a thing", "thing", newest, lambda data: data["more"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "not the description of a graph"),
        ("{}", "not the description of a graph"),
        ("digraph {}", "the text is not JSON; read the description of a graph that to_json"),
        ('{"schema": 99}', "has schema 99"),
        ('{"schema": 0}', "has schema 0"),
        ('{"schema": 2}', "has schema 2"),
        ('{"schema": "new"}', "has schema 'new'"),
        ('{"schema": 1, "backend": "cpu"}', "damaged"),
        ('{"schema": 1, "backend": "cpu", "device": 0, "nodes": [{}], "edges": []}', "damaged"),
        ('{"schema": 1, "backend": "cpu", "device": 0, "nodes": [], "edges": [[0, 1]]}', "damaged"),
        ('{"schema": 1, "backend": "cpu", "device": 0, "nodes": 3, "edges": []}', "damaged"),
    ],
)
def test_other_texts_are_refused(text, said):
    with pytest.raises(ValueError, match=said):
        GraphDescription.from_json(text)
