"""The HIP backend and the device that is current: the caller's stays the caller's."""

import contextlib

import pytest

from accelerator_graph import errors
from accelerator_graph.backends.base import CaptureStatus
from backends.hip.bench import Block, Cells, Gate, call, loaded, number, status_of, step
from backends.tools import MODES, child, linked, prepare, recorded, replayed
from threads import in_thread

pytest_plugins = ["backends.hip.fixtures"]

WITH_TWO = "SOFTWARE_HSA_DEVICES"


def test_on_two_devices(backend, runtime, request):
    """What follows, in a process of its own that has two devices."""
    if backend.device_count > 1:
        pytest.skip("there are two devices here, too")
    code = f"import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', {__file__!r}]))"
    status, printed, complaint = child(code, **{WITH_TWO: "2"})
    if "skipped" in printed and "needs two devices" in printed:
        pytest.skip("a second device can't be had here")
    assert status == 0, printed + complaint
    assert "failed" not in printed


@pytest.fixture
def two(backend):
    """A stream and a block on each of two devices; the first is current."""
    if backend.device_count < 2:
        pytest.skip("it needs two devices")
    with current(0):
        streams = [backend.create_stream(device) for device in range(2)]
        blocks = []
        for device in range(2):
            with current(device):
                blocks.append(Block())
        yield list(zip(streams, blocks, strict=True))
        for device in range(2):
            with current(device):
                blocks[device].free()
            backend.destroy_stream(streams[device])


@contextlib.contextmanager
def current(device):
    before = number("hipGetDevice")
    call("hipSetDevice", device)
    try:
        yield
    finally:
        call("hipSetDevice", before)


@pytest.mark.parametrize("here", [0, 1])
@pytest.mark.parametrize("there", [0, 1])
def test_every_method_leaves_the_current_device(backend, two, tmp_path, here, there):
    stream, block = two[there]

    def same(value):
        assert number("hipGetDevice") == here
        return value

    def work():
        with current(here):
            side = same(backend.create_stream(there, like=stream, priority=-1))
            assert same(backend.device_of(stream)) == there
            same(backend.fill(stream, block, 1, None))
            same(backend.copy(stream, block, bytes(8), None))
            same(backend.synchronize(stream))
            assert same(backend.query(stream))
            assert int(same(backend.as_stream(int(stream)))) == int(stream)
            for mode in MODES:
                same(prepare(backend, stream))
                token = same(backend.capture_begin(stream, mode))
                assert token.place == there
                assert same(backend.capture_status(stream)) is CaptureStatus.ACTIVE
                backend.fill(stream, block, 2, None)
                same(linked(backend, stream, side))
                backend.fill(side, block, 3, 8)
                same(linked(backend, side, stream))
                graph = same(backend.capture_end(token))
                assert graph.place == there
                same(backend.nodes(graph))
                same(backend.dump(graph, str(tmp_path / "x.dot"), True))
                same(replayed(backend, graph, stream))
                same(backend.capture_abandon(backend.capture_begin(stream, mode)))
            same(backend.destroy_stream(side))
        with current(there):
            assert block.read() == bytes([3] * 8 + [2] * (block.nbytes - 8))

    work()
    in_thread(work)


@pytest.mark.parametrize("here", [0, 1])
def test_failures_leave_the_current_device(backend, two, here):
    stream, block = two[1]
    with current(here):
        for spoil in (backend.synchronize, backend.query):
            token = backend.capture_begin(stream, "thread_local")
            backend.fill(stream, block, 2, None)
            with pytest.raises(errors.DriverError):
                spoil(stream)
            with pytest.raises(errors.DriverError):
                backend.capture_end(token)
            assert number("hipGetDevice") == here
            assert status_of(stream) == "none"
        with pytest.raises(errors.DriverError):
            backend.create_stream(99)
        assert number("hipGetDevice") == here
        replayed(backend, recorded(backend, stream, block, 4), stream)
    with current(1):
        assert block.read() == bytes([4] * block.nbytes)


def test_a_graph_is_replayed_while_another_device_is_current(backend, two):
    stream, block = two[1]
    executable = backend.instantiate(graph := recorded(backend, stream, block, 5))
    launch = backend.native_calls(stream).bind(executable)
    launch()
    in_thread(launch)
    backend.synchronize(stream)
    with current(1):
        assert block.read() == bytes([5] * block.nbytes)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


@pytest.mark.parametrize("handle", [0, 2])
def test_the_default_streams_are_those_of_the_executables_device(backend, two, handle):
    stream, block = two[1]
    executable = backend.instantiate(graph := recorded(backend, stream, block, 5))
    special = backend.as_stream(handle)
    assert backend.device_of(special) == 0
    with current(1):
        assert backend.device_of(special) == 1
    backend.replay(executable, special)
    assert number("hipGetDevice") == 0
    with current(1):
        backend.synchronize(special)
        assert block.read() == bytes([5] * block.nbytes)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


def test_runs_on_the_second_device_are_one_after_another(backend, two):
    (_, _), (stream, _) = two
    other = backend.create_stream(1)
    with current(1):
        kernels, cells = loaded(), Cells(1)
        gate = Gate(kernels.meet, backend.launch)
    token = backend.capture_begin(stream, "thread_local")
    step(backend, kernels, stream, cells.at(0), 10, 1)
    executable = backend.instantiate(graph := backend.capture_end(token))
    gate.close(stream)
    backend.replay(executable, stream)
    backend.replay(executable, other)
    assert not backend.query(other)
    gate.open()
    backend.synchronize(other)
    assert cells[0] == 11
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)
    backend.destroy_stream(other)
