"""The fixtures of the tests of the HIP backend."""

from importlib import import_module

import pytest

from accelerator_graph.backends.hip import HipBackend
from backends.fixtures import backend, block, no_error_left, other, stream
from backends.hip.bench import Cells, Gate, call, loaded, step, until
from backends.hip.fakes import faked

__all__ = ["backend", "block", "no_error_left", "other", "stream"]


@pytest.fixture(scope="module")
def bench():
    return import_module("backends.hip.bench")


@pytest.fixture(scope="module")
def runtime(backend):
    """The number of AMD's own runtime, such as (7, 2)."""
    version = HipBackend.probe().versions.get("runtime")
    if version is None:
        pytest.skip("the runtime is not AMD's own")
    major, minor = map(int, version.split(".")[:2])
    return major, minor


@pytest.fixture(scope="module")
def kernels(backend):
    return loaded()


@pytest.fixture
def gate(backend, kernels):
    gate = Gate(kernels.meet, backend.launch)
    yield gate
    gate.open()


@pytest.fixture
def cells(backend):
    cells = Cells(16)
    yield cells
    call("hipDeviceSynchronize")
    cells.free()


@pytest.fixture
def apart(backend, kernels, stream):
    """A stream that goes on while `stream` waits: the runtime has a few queues, which the streams share."""
    gate, cells, made = Gate(kernels.meet, backend.launch), Cells(1), []
    gate.close(stream)
    try:
        while not cells[0]:
            assert len(made) < 16, "all streams wait for one"
            made.append(backend.create_stream(0))
            step(backend, kernels, made[-1], cells.at(0), 1, 1)
            until(lambda: cells[0], limit=0.3)
    finally:
        gate.open()
        call("hipDeviceSynchronize")
    yield made[-1]
    for each in made:
        backend.destroy_stream(each)


@pytest.fixture
def fake(monkeypatch):
    """A backend and the runtime of a few lines that it calls."""
    return faked(monkeypatch)
