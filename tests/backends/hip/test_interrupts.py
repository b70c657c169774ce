"""Captures of the HIP backend on a runtime of a few lines: what fails, and where they are interrupted."""

from __future__ import annotations

from itertools import count

import pytest

from accelerator_graph import errors
from accelerator_graph.backends._hip.driver import Graph
from accelerator_graph.backends.base import CaptureStatus
from backends.hip import fakes as hip_fakes
from backends.hip.bench import MODES
from backends.hip.fakes import untouched
from backends.tools import in_thread, interrupted

pytest_plugins = ["backends.hip.fixtures"]


def test_a_capture_without_a_graph_was_invalidated(fake):
    backend, runtime = fake
    runtime.graph = 0
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_end(backend.capture_begin(9, "global"))
    assert (raised.value.reason, raised.value.code) == ("invalidated", None)
    assert (runtime.graphs, runtime.capturing) == (0, 0)


def test_abandoning_twice_asks_the_runtime_once(fake):
    backend, runtime = fake
    token = backend.capture_begin(9, "global")
    backend.capture_abandon(token)
    assert (runtime.capturing, runtime.graphs) == (0, 0)
    runtime.capturing = 1  # somebody else's by now
    backend.capture_abandon(token)
    assert runtime.capturing
    ended = backend.capture_begin(9, "global")
    backend.capture_end(ended)
    backend.capture_abandon(ended)
    assert runtime.graphs == 1


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


def test_the_per_thread_stream_of_another_thread_is_left_alone(fake):
    backend, runtime = fake
    token = backend.capture_begin(2, "global")
    in_thread(lambda: backend.capture_abandon(token))
    assert runtime.capturing
    backend.capture_abandon(token)
    assert not runtime.capturing


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


@pytest.mark.parametrize("handle", [0, 1])
def test_the_legacy_stream_is_refused_before_any_call(fake, handle):
    backend, runtime = fake
    with pytest.raises(
        errors.CaptureError, match=r"^a capture on the legacy stream can't begin: .*own"
    ) as raised:
        backend.capture_begin(handle, "global")
    assert raised.value.reason == "default_stream"
    assert backend.capture_status(handle) is CaptureStatus.NONE
    assert backend.capture_info(handle) is None
    assert runtime.seen == []


# ---- interrupts ----------------------------------------------------------------------------------


def test_an_interrupted_begin_leaves_no_capture(fake):
    backend, runtime = fake
    for at in count(1):
        if not interrupted(lambda: backend.capture_begin(9, "global"), at, hip_fakes.__file__):
            break
        assert not runtime.capturing, at
        assert runtime.graphs == 0, at
        untouched(runtime)
    assert runtime.capturing
    assert at > 20


def test_an_interrupted_end_leaves_neither_capture_nor_graph(fake):
    backend, runtime = fake
    still = 0
    for at in count(1):
        token = backend.capture_begin(9, "global")
        if not interrupted(lambda: backend.capture_end(token), at, hip_fakes.__file__):  # noqa: B023
            break
        still += runtime.capturing
        backend.capture_abandon(token)
        assert not runtime.capturing, at
        assert runtime.graphs == 0, at
        untouched(runtime)
    assert runtime.graphs == 1
    assert still <= 2  # where the functions begin, before there is anything to catch it
    assert at > 10


def test_an_interrupt_leaves_device_and_mode_as_they_were(fake):
    backend, runtime = fake
    for at in count(1):
        if not interrupted(lambda: backend.instantiate(Graph(21, 3)), at, hip_fakes.__file__):
            break
        untouched(runtime)
    assert at > 20
