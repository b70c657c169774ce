"""Progress markers, written by graphs of CUDA and of HIP."""

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability
from accelerator_graph.inspection.progress import markers_of


def captured(backend, block):
    graph = ag.Graph(keep_graph=True, observe=ag.progress())
    with ag.Stream(backend=backend.name) as stream, graph:
        for number in range(300):
            with ag.label(str(number)):
                stream.fill(block, number & 0xFF, 4)
    return graph


def writes_host_memory(backend):
    """Return False on AMD's runtime 6.4."""
    return Capability.PROGRESS in backend.capabilities(0)


def test_a_replay_ends_with_its_last_marker(backend, stream, block):
    if not writes_host_memory(backend):
        with pytest.raises(ag.UnsupportedError, match="has no memory of the host that a graph can write"):
            captured(backend, block)
        return
    graph = captured(backend, block)
    assert markers_of(graph).place().state == "not begun"
    for _ in range(2):
        graph.replay()
        graph.stream.synchronize()
        assert markers_of(graph).place().state == "ended"
    description = graph.describe()
    assert [label.stop - label.start for label in description.labels] == [1] * 300
    assert {description.nodes[label.start].nbytes for label in description.labels} <= {4, 1}
    assert len(description.nodes) == 300 + 602 + 3
    assert [node.name for node in description.nodes].count("marker of progress") == 602 + 3


def test_host_memory_is_made_during_a_capture(backend, stream, other, block):
    token = backend.capture_begin(other, "global")
    backend.fill(other, block, 1, 4)
    if writes_host_memory(backend):
        assert backend.host_memory(stream, 8) > 0
    else:
        with pytest.raises(ag.UnsupportedError, match="'progress'"):
            backend.host_memory(stream, 8)
    graph = backend.capture_end(token)
    assert len(backend.nodes(graph)[0]) == 1
    backend.destroy_graph(graph)
