"""Streams of the CUDA and the HIP backend."""

import pytest

from accelerator_graph import errors
from accelerator_graph.backends.base import CaptureStatus
from accelerator_graph.testing.works import work_of
from backends.tools import MODES, everything, replayed
from threads import in_thread

pytestmark = pytest.mark.usefixtures("no_error_left")


def test_any_thread_may_call_every_method(backend, stream, block, tmp_path):
    in_thread(lambda: everything(backend, stream, block, tmp_path / "graph.dot"))
    everything(backend, stream, block, tmp_path / "graph.dot")


def test_a_foreign_stream_that_blocks(bench, backend, block, tmp_path):
    foreign, destroy = bench.blocking_stream()
    everything(backend, backend.as_stream(foreign), block, tmp_path / "graph.dot")
    destroy()


def test_streams_are_non_blocking_and_their_priority_is_clamped(bench, backend):
    least, greatest = bench.priorities()
    for asked, given in [(-1000, greatest), (1000, least), (0, 0)]:
        stream = backend.create_stream(0, priority=asked)
        assert bench.priority_and_flags(stream) == (given, 1)
        backend.destroy_stream(stream)


def test_what_is_no_stream(backend, stream):
    assert backend.as_stream(stream) is not None
    for none in (True, -1, 1 << 64, 1.0, "0", None, object()):
        assert backend.as_stream(none) is None


def test_a_device_that_is_not_there(backend):
    with pytest.raises(errors.DriverError) as raised:
        backend.create_stream(1000)
    assert raised.value.code == 101


@pytest.mark.parametrize("mode", MODES)
def test_the_per_thread_stream_captures(bench, backend, block, mode):
    def work():
        stream = backend.as_stream(2)
        assert backend.device_of(stream) == 0
        token = backend.capture_begin(stream, mode)
        assert backend.capture_status(stream) is CaptureStatus.ACTIVE
        assert backend.capture_info(stream) is not None
        assert in_thread(lambda: backend.capture_status(stream)) is CaptureStatus.NONE
        backend.fill(stream, block, 9, None)
        replayed(backend, backend.capture_end(token), stream)

    def work_on_the_device():
        with bench.on_device():
            work()

    in_thread(work_on_the_device)
    assert block.read() == bytes([9] * block.nbytes)
    in_thread(work)


@pytest.mark.parametrize("handle", [0, 1])
def test_the_legacy_stream_never_captures(bench, backend, block, handle):
    foreign, destroy = bench.blocking_stream()
    blocking, legacy = backend.as_stream(foreign), backend.as_stream(handle)
    token = backend.capture_begin(blocking, "thread_local")
    with pytest.raises(errors.CaptureError):
        backend.capture_begin(legacy, "thread_local")
    assert backend.capture_status(legacy) is CaptureStatus.NONE
    assert backend.capture_info(legacy) is None
    backend.fill(blocking, block, 1, None)
    backend.destroy_graph(backend.capture_end(token))
    destroy()


def test_a_stream_that_works_is_not_done(bench, backend, stream):
    let_go = bench.working(stream)
    assert backend.query(stream) is False
    let_go()
    backend.synchronize(stream)
    assert backend.query(stream) is True


def test_the_work_of_the_kit_names_its_device(backend):
    used = work_of(backend.name)()
    assert used.backend == backend.name
    assert used.device_name().isprintable()
    assert used.device_name()
