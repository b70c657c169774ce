"""Captures with breaks on the CUDA and the HIP backend."""

import pytest

import accelerator_graph as ag

pytestmark = pytest.mark.usefixtures("no_error_left")


class Array:
    """Device memory, as libraries of arrays show it."""

    def __init__(self, address):
        self._address = address

    @property
    def __cuda_array_interface__(self):
        return {"data": (self._address, False), "shape": (512,), "typestr": "|u1", "version": 3}


def test_memory_that_a_segment_uses_by_its_address_can_not_be_live(backend, block):
    graph = ag.Graph()

    def capture(given):
        with ag.Stream(backend=backend.name) as stream, ag.graph(graph, stream=stream, breaks=True):
            stream.fill(block.pointer + 512, 1, 8)
            ag.eager(lambda given: None)(ag.live("given", given))

    for given in (Array(block.pointer + 512), [Array(block.pointer + 8)], Array(block.pointer + 519)):
        with pytest.raises(ag.CaptureError, match=r"'given' \(node 0 there, memset, has its address"):
            capture(given)
        assert graph.state == "empty"
    capture(Array(block.pointer))
    graph.replay(live={"given": Array(block.pointer + 512)})
