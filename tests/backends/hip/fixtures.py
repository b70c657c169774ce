"""The fixtures of the tests of the HIP backend."""

from __future__ import annotations

import pytest

from accelerator_graph import errors
from accelerator_graph.backends._hip import driver
from accelerator_graph.backends.hip import HipBackend
from backends.hip.bench import Block, Cells, Gate, answer, call, loaded, opened, step, until
from backends.hip.fakes import API, FakeRuntime


@pytest.fixture(scope="module")
def backend():
    found = HipBackend.probe()
    if not found.usable:
        pytest.skip(f"backend 'hip' is not available: {found.reason}")
    try:
        return opened()
    except errors.BackendUnavailableError as error:
        if found.devices is not None:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def runtime(backend):
    """The number of AMD's own runtime, such as (7, 2)."""
    version = HipBackend.probe().versions.get("runtime")
    if version is None:
        pytest.skip("the runtime is not AMD's own")
    major, minor = map(int, version.split(".")[:2])
    return major, minor


@pytest.fixture
def no_error_left(request):
    """No test of the backend leaves a last error behind, which a framework would take for its own."""
    yield
    if "backend" in request.fixturenames:
        code = answer("hipGetLastError")
        assert code == 0, f"the runtime's last error is {code}"


@pytest.fixture
def block(backend):
    block = Block()
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
    runtime = FakeRuntime()
    monkeypatch.setattr(driver, "import_hip", lambda: API)
    monkeypatch.setattr(driver, "Library", lambda: runtime)
    backend = HipBackend()
    backend.name = "hip"
    backend._driver = driver.Driver("hip")
    backend._stream_type, backend._pointer_type = int, bytes
    runtime.seen.clear()
    return backend, runtime
