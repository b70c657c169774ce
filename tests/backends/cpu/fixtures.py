"""The fixtures of the tests of the cpu backend, driven directly."""

import gc
import signal

import pytest

from accelerator_graph.backends.cpu import CpuBackend
from backends.cpu.tools import LIMIT, everyone, no_workers_left, staying


def out_of_time(signum, frame):
    raise TimeoutError(f"the test took more than {LIMIT} seconds")


@pytest.fixture
def time_limit():
    staying.update(everyone())  # those of other tests, and of a thread's side stream
    before = signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def backend():
    backend = CpuBackend()
    backend.name = "cpu"
    backend.open()
    yield backend
    gc.collect()
    assert no_workers_left()


@pytest.fixture
def streams(backend):
    made = [backend.create_stream(0) for _ in range(3)]
    yield made
    for stream in made:
        backend.destroy_stream(stream)


@pytest.fixture
def stream(streams):
    return streams[0]


@pytest.fixture
def capture(backend, stream):
    """Capture what a function enqueues on `stream`; return the graph."""

    def capture(enqueue, mode="thread_local"):
        token = backend.capture_begin(stream, mode)
        enqueue()
        return backend.capture_end(token)

    return capture
