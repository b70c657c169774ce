"""Streams and captures of the CUDA backend: what the driver does in its own way."""

import pytest

from lanes import require

pytestmark = require("cuda")

from cuda.bindings import driver

from accelerator_graph import errors
from accelerator_graph.backends.base import CaptureStatus
from backends.tools import MODES, recorded, replayed
from threads import in_thread


def test_as_stream(backend, stream):
    runtime = pytest.importorskip("cuda.bindings.runtime")
    assert backend.as_stream(stream) is stream
    for same in (int(stream), runtime.cudaStream_t(int(stream)), driver.CUstream(int(stream))):
        found = backend.as_stream(same)
        assert type(found) is driver.CUstream
        assert backend.handle_int(found) == int(stream)
    for none in (True, -1, 1 << 64, 1.0, "0", None, object(), driver.CUevent(int(stream))):
        assert backend.as_stream(none) is None
    assert int(backend.as_stream(0)) == 0


def test_a_replay_into_a_capture_breaks_it(backend, stream, block):
    executable = backend.instantiate(graph := recorded(backend, stream, block))
    token = backend.capture_begin(stream, "thread_local")
    with pytest.raises(errors.DriverError) as raised:
        backend.replay(executable, stream)
    assert raised.value.reason == "illegal_call"
    backend.capture_abandon(token)
    assert backend.capture_status(stream) is CaptureStatus.NONE
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


@pytest.mark.parametrize("mode", MODES)
def test_a_capture_is_abandoned_from_anywhere(backend, stream, block, mode):
    def begin():
        token = backend.capture_begin(stream, mode)
        backend.fill(stream, block, 1, None)
        return token

    for abandon, started in [
        (backend.capture_abandon, begin),
        (lambda token: in_thread(lambda: backend.capture_abandon(token)), begin),
        (backend.capture_abandon, lambda: in_thread(begin)),  # a thread that has ended
    ]:
        token = started()
        assert backend.capture_status(stream) is CaptureStatus.ACTIVE
        abandon(token)
        assert backend.capture_status(stream) is CaptureStatus.NONE
        abandon(token)
        replayed(backend, recorded(backend, stream, block, 6, mode), stream)
    assert block.read() == bytes([6] * block.nbytes)
