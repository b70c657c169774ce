"""The current stream of tests that need no GPU."""

import pytest

import accelerator_graph as ag


@pytest.fixture
def stream():
    """The current stream, of the CPU backend."""
    with ag.Stream(backend="cpu") as stream:
        yield stream
        stream.synchronize()
