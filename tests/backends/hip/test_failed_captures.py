"""Captures of the HIP backend on a runtime of a few lines: what fails, and where they are interrupted."""

import pytest

from accelerator_graph import errors
from backends.hip.fakes import untouched
from backends.tools import MODES

pytest_plugins = ["backends.hip.fixtures"]


def test_what_the_runtime_leaves_in_the_graph_after_an_error_is_not_touched(fake):
    """That is 0xbad here, which `_hipGraphDestroy` refuses."""
    backend, runtime = fake
    runtime.capturing = 0
    token = backend.capture_begin(9, "global")
    runtime.capturing = 0
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_end(token)
    assert raised.value.code == 401
    untouched(runtime)


@pytest.mark.parametrize("code", [901, 904, 908])
def test_a_failed_end_is_followed_by_another_capture_that_succeeds(fake, code):
    backend, runtime = fake
    token = backend.capture_begin(9, "global")
    runtime.end_code = code
    runtime.seen.clear()
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_end(token)
    assert raised.value.code == code
    assert (runtime.capturing, runtime.graphs) == (0, 0)
    assert ("hipStreamBeginCapture", 3, MODES.index("relaxed")) in runtime.seen
    untouched(runtime)


def test_an_abandon_without_its_device_ends_the_capture_all_the_same(fake):
    backend, runtime = fake
    token = backend.capture_begin(9, "global")
    runtime.fail = "hipSetDevice"
    backend.capture_abandon(token)
    assert not runtime.capturing


@pytest.mark.parametrize("capturing", [0, 1])
def test_a_begin_that_fails(fake, capturing):
    """The runtime may have begun all the same; then it is ended."""
    backend, runtime = fake

    def begin(stream, mode):
        runtime.capturing = capturing
        return 1

    runtime._hipStreamBeginCapture = begin
    with pytest.raises(errors.DriverError):
        backend.capture_begin(9, "global")
    assert ("hipStreamEndCapture" in [name for name, *_ in runtime.seen]) == bool(capturing)
    assert not runtime.capturing
    untouched(runtime)


def test_a_begin_on_a_stream_that_captures_ends_nothing(fake):
    backend, runtime = fake
    runtime._hipStreamBeginCapture = lambda stream, mode: 401
    runtime.capturing = 1  # somebody else's
    with pytest.raises(errors.DriverError):
        backend.capture_begin(9, "global")
    assert runtime.capturing == 1
    untouched(runtime)
