"""Fixtures of the tests of the CUDA and the HIP backend, all above a fixture `bench`."""

import pytest


@pytest.fixture(scope="module")
def backend(bench):
    return bench.opened()


@pytest.fixture
def block(bench, backend):
    block = bench.Block()
    yield block
    block.free()


@pytest.fixture
def stream(backend):
    stream = backend.create_stream(0)
    yield stream
    backend.destroy_stream(stream)


@pytest.fixture
def other(backend):
    stream = backend.create_stream(0)
    yield stream
    backend.destroy_stream(stream)


@pytest.fixture
def no_error_left(bench):
    """No test leaves a last error behind, which a framework would take for its own."""
    yield
    assert bench.last_error() == 0
