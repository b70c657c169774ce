"""Captures of the CUDA and the HIP backend: which calls break them, and which do not."""

import pytest

from accelerator_graph import errors
from accelerator_graph.backends.base import CaptureStatus
from backends.tools import MODES, linked, recorded, replayed
from threads import in_thread

pytestmark = pytest.mark.usefixtures("no_error_left")


@pytest.mark.promise("other-threads-break-nothing")
@pytest.mark.parametrize(
    ("mode", "here", "elsewhere"),
    [("global", False, False), ("thread_local", False, True), ("relaxed", True, True)],
)
def test_modes_say_which_threads_may_allocate(bench, backend, stream, block, mode, here, elsewhere):
    for allocate, allowed in [(bench.allocate, here), (lambda: in_thread(bench.allocate), elsewhere)]:
        token = backend.capture_begin(stream, mode)
        backend.fill(stream, block, 4, None)
        assert allocate() == (0 if allowed else 900)
        if allowed:
            replayed(backend, backend.capture_end(token), stream)
            continue
        assert backend.capture_status(stream) is CaptureStatus.INVALIDATED
        with pytest.raises(errors.DriverError) as raised:
            backend.capture_end(token)
        assert (raised.value.reason, raised.value.code) == ("invalidated", 901)
        assert backend.capture_status(stream) is CaptureStatus.NONE
    replayed(backend, recorded(backend, stream, block, 5, mode), stream)
    assert block.read() == bytes([5] * block.nbytes)


def test_the_error_says_what_broke_a_capture(backend, stream, block):
    token = backend.capture_begin(stream, "thread_local")
    backend.fill(stream, block, 1, None)
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_begin(stream, "thread_local")
    assert raised.value.code == 401
    assert backend.capture_status(stream) is CaptureStatus.ACTIVE
    with pytest.raises(errors.DriverError, match=r"Synchronize returned .* \(900\): a call that ") as raised:
        backend.synchronize(stream)
    assert raised.value.reason == "illegal_call"
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_end(token)
    assert raised.value.reason == "invalidated"


@pytest.mark.promise("unjoined-on-every-backend")
def test_unjoined_work_ends_a_capture_without_a_graph(backend, stream, other, block):
    token = backend.capture_begin(stream, "thread_local")
    backend.fill(stream, block, 1, None)
    linked(backend, stream, other)
    backend.fill(other, block, 1, None)
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_end(token)
    assert raised.value.reason == "unjoined"
    assert backend.capture_status(other) is CaptureStatus.NONE


@pytest.mark.promise("graphs-end-at-any-time")
@pytest.mark.parametrize("where", [lambda work: work(), in_thread], ids=["same thread", "other thread"])
@pytest.mark.parametrize("mode", MODES)
def test_housekeeping_breaks_no_capture(bench, backend, stream, other, block, mode, where):
    def housekeeping():
        side = backend.create_stream(0)
        with backend.relaxed(other):
            backend.synchronize(other)
        executable = backend.instantiate(kept)
        backend.native_calls(other).upload(executable)
        backend.replay(executable, other)
        linked(backend, other, side)
        backend.native_calls(side).bind(executable)()
        linked(backend, side, other)
        backend.destroy_executable(executable)
        backend.nodes(kept)
        backend.destroy_graph(kept)
        backend.destroy_stream(side)
        assert bench.last_error() == 0

    kept = recorded(backend, other, block, 1)
    token = backend.capture_begin(stream, mode)
    where(housekeeping)
    assert backend.capture_status(stream) is CaptureStatus.ACTIVE
    backend.fill(stream, block, 8, None)
    graph = backend.capture_end(token)
    backend.synchronize(other)
    replayed(backend, graph, stream)
    assert block.read() == bytes([8] * block.nbytes)


def test_the_callers_capture_mode_is_left_as_it_was(bench, backend, stream, other, block):
    for mode in range(len(MODES)):
        before = bench.exchange(mode)
        replayed(backend, recorded(backend, stream, block), stream)
        token = backend.capture_begin(stream, "thread_local")
        backend.fill(stream, block, 1, None)
        linked(backend, stream, other)
        backend.fill(other, block, 2, None)
        backend.capture_abandon(token)
        assert bench.exchange(before) == mode
