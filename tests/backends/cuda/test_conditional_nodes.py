"""Conditional nodes: added to captures by hand, as frameworks do it, and described with what is inside."""

import pytest

from lanes import require

pytestmark = require("cuda")

from cuda.bindings import driver

import accelerator_graph as ag
from backends.cuda.bench import IF, add_conditional, call, current
from backends.tools import replayed

WHILE, SWITCH = (
    getattr(driver.CUgraphConditionalNodeType, f"CU_GRAPH_COND_TYPE_{name}", None)
    for name in ("WHILE", "SWITCH")
)
RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
SET = driver.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
TOLD = hasattr(driver, "cuGraphNodeGetParams") and call(driver.cuDriverGetVersion) >= 13020
"""Whether the driver tells what is inside a conditional node."""


def capture_state(stream):
    """The graph that a stream records into, and what the next node will depend on."""
    newer = getattr(driver, "cuStreamGetCaptureInfo_v3", driver.cuStreamGetCaptureInfo)
    _, _, graph, after, *_, count = call(newer, stream)
    return graph, after[:count]


def record_conditional(stream, kind, value, size):
    """Add a conditional node to the capture of a stream; return its bodies."""
    graph, after = capture_state(stream)
    node, bodies = add_conditional(graph, kind, value, size, after)
    update = getattr(driver, "cuStreamUpdateCaptureDependencies_v2", None)
    if update is None:
        call(driver.cuStreamUpdateCaptureDependencies, stream, [node], None, 1, SET)
    else:
        call(update, stream, [node], [driver.CUgraphEdgeData()], 1, SET)
    return bodies


def record_into(body, stream, *fills):
    """Let a body fill memory, one after another."""
    call(driver.cuStreamBeginCaptureToGraph, stream, body, None, None, 0, RELAXED)
    for address, value, nbytes in fills:
        call(driver.cuMemsetD8Async, address, value, nbytes, stream)
    call(driver.cuStreamEndCapture, stream)


@pytest.fixture
def side(backend, block):
    stream = backend.create_stream(0)
    yield stream
    backend.destroy_stream(stream)


def test_a_condition_chooses_a_body_and_the_bodies_are_described(backend, stream, side, block):
    first, second, third, fourth = (block.pointer + 16 * index for index in range(4))
    with current(block.context):
        token = backend.capture_begin(stream, "relaxed")
        backend.fill(stream, block, 1, block.nbytes)
        (then,) = record_conditional(stream, IF, 1, 1)
        record_into(then, side, (first, 2, 16), (first, 3, 8))
        yes, no = record_conditional(stream, IF, 0, 2)
        record_into(yes, side, (second, 4, 16))
        record_into(no, side, (second, 5, 16))
        (loop,) = record_conditional(stream, WHILE, 0, 1)
        record_into(loop, side, (third, 6, 16))
        cases = record_conditional(stream, SWITCH, 2, 3)
        for index, case in enumerate(cases):
            record_into(case, side, (fourth, 7 + index, 16))
        graph = backend.capture_end(token)
    nodes, edges = backend.nodes(graph)
    replayed(backend, graph, stream)
    assert block.read()[:64] == bytes([3] * 8 + [2] * 8 + [5] * 16 + [1] * 16 + [9] * 16)
    assert [node.kind for node in nodes] == ["memset", *["conditional"] * 4]
    assert len(edges) == 4
    said = [(node.name, [[each.value for each in body] for body, _ in node.bodies]) for node in nodes[1:]]
    if not TOLD:
        assert said == [("", [])] * 4
        return
    assert said == [
        ("if", [[2, 3]]),
        ("if", [[4], [5]]),
        ("while", [[6]]),
        ("switch", [[7], [8], [9]]),
    ]
    body, inside = nodes[1].bodies[0]
    assert [(node.kind, node.target, node.nbytes) for node in body] == [
        ("memset", first, 16),
        ("memset", first, 8),
    ]
    assert [(edge.source, edge.target) for edge in inside] == [(0, 1)]


def test_a_condition_inside_a_condition(backend, stream, side, block):
    with current(block.context):
        token = backend.capture_begin(stream, "relaxed")
        whole, _ = capture_state(stream)
        (outer,) = record_conditional(stream, IF, 1, 1)
        _, (inner,) = add_conditional(outer, IF, 1, 1, of=whole)
        record_into(inner, side, (block.pointer, 8, 4))
        graph = backend.capture_end(token)
    (node,), _ = backend.nodes(graph)
    replayed(backend, graph, stream)
    assert block.read()[:4] == bytes([8] * 4)
    assert len(node.bodies) == TOLD
    for body, _ in node.bodies:
        assert [each.name for each in body] == ["if"]
        assert [each.value for each in body[0].bodies[0][0]] == [8]


def test_conditional_nodes_allow_one_executable(backend, stream, side, block):
    graph = ag.Graph(keep_graph=True, stream=ag.Stream(backend="cuda", like=stream))
    with current(block.context):
        with graph:
            (body,) = record_conditional(graph.stream.native, IF, 1, 1)
        record_into(body, side, (block.pointer, 7, 4))
    graph.instantiate()
    graph.instantiate()  # the old executable goes first
    graph.replay()
    graph.stream.synchronize()
    assert block.read()[:4] == bytes([7] * 4)
    graph.reset()


def test_a_description_says_what_is_inside_or_that_it_is_not_told(backend, stream, side, block):
    graph = ag.Graph(keep_graph=True, stream=ag.Stream(backend="cuda", like=stream))
    with current(block.context):
        with graph, ag.label("loop"):
            (body,) = record_conditional(graph.stream.native, WHILE, 0, 1)
        record_into(body, side, (block.pointer, 1, 4))
    description = graph.describe()
    assert ag.GraphDescription.from_json(description.to_json()) == description
    said = str(description)
    if TOLD:
        assert description.kinds() == {"conditional": 1, "memset": 1}
        assert "conditional  while" in said
        assert "inside node 0" in said
    else:
        assert "the driver does not report what is inside" in said
    graph.reset()


def test_a_graph_with_a_conditional_node_is_timed_as_a_whole(backend, stream, side, block):
    graph = ag.Graph(keep_graph=True, stream=ag.Stream(backend="cuda", like=stream))
    with current(block.context):
        with graph:
            with ag.label("if"):
                (body,) = record_conditional(graph.stream.native, IF, 1, 1)
            with ag.label("fill"):
                graph.stream.fill(block.pointer + 4, 5, 4)
        record_into(body, side, (block.pointer, 7, 4))
    profile = graph.profile(2)
    assert profile.least > 0
    (note,) = profile.notes
    assert "has a conditional node" in note
    assert block.read()[:8] == bytes([7] * 4 + [5] * 4)
    graph.reset()
