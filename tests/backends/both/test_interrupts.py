"""The CUDA and the HIP backend on fakes: what captures refuse, and calls that are interrupted."""

from itertools import count

import pytest

from accelerator_graph import errors
from accelerator_graph.backends.base import CaptureStatus
from backends.tools import in_threads_of_one_ident, interrupted
from threads import in_thread


def names(api):
    """The functions that were called, without the vendor's prefix."""
    return [name.removeprefix("hip").removeprefix("cu") for name, *_ in api.seen]


def test_a_capture_without_a_graph_was_invalidated(fake):
    backend, api = fake
    api.graph = 0
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_end(backend.capture_begin(9, "global"))
    assert (raised.value.reason, raised.value.code) == ("invalidated", None)
    assert (api.graphs, api.capturing) == (0, 0)


def test_abandoning_twice_asks_the_driver_once(fake):
    backend, api = fake
    token = backend.capture_begin(9, "global")
    backend.capture_abandon(token)
    assert (api.capturing, api.graphs) == (0, 0)
    api.capturing = 1  # somebody else's by now
    backend.capture_abandon(token)
    assert api.capturing
    ended = backend.capture_begin(9, "global")
    backend.capture_end(ended)
    backend.capture_abandon(ended)
    assert api.graphs == 1


def test_a_new_stream_with_the_handle_of_one_that_is_being_destroyed_is_destroyed_as_well(fakes, fake):
    backend, api = fake
    first, second = int("1000"), int("1000")
    destroyed = []

    def destroy(handle):
        destroyed.append(handle)
        if len(destroyed) == 1:  # the first is gone, and another thread has got its place
            in_thread(lambda: backend.destroy_stream(second))
        return 0 if fakes.PREFIX == "hip" else (api.CUresult.CUDA_SUCCESS,)

    setattr(api, f"_{fakes.PREFIX}StreamDestroy", destroy)
    backend.destroy_stream(first)
    assert destroyed == [1000, 1000]


def test_the_per_thread_stream_of_another_thread_is_left_alone(fake):
    backend, api = fake
    token = backend.capture_begin(2, "global")
    in_thread(lambda: backend.capture_abandon(token))
    assert api.capturing
    backend.capture_abandon(token)
    assert not api.capturing


def test_the_per_thread_stream_of_a_thread_with_the_ident_of_a_dead_one_is_left_alone(fake):
    backend, api = fake

    def healthy(token):
        api.capturing = 0  # this thread's own stream, and another one
        mine = backend.capture_begin(2, "global")
        backend.capture_abandon(token)
        assert api.capturing
        backend.capture_abandon(mine)
        assert not api.capturing

    in_threads_of_one_ident(lambda: backend.capture_begin(2, "global"), healthy)


@pytest.mark.parametrize("handle", [0, 1])
def test_the_legacy_stream_is_refused_before_any_call(fake, handle):
    backend, api = fake
    with pytest.raises(
        errors.CaptureError, match=r"^a capture on the legacy stream can't begin: .*own"
    ) as raised:
        backend.capture_begin(handle, "global")
    assert raised.value.reason == "default_stream"
    assert backend.capture_status(handle) is CaptureStatus.NONE
    assert backend.capture_info(handle) is None
    assert api.seen == []


def test_a_refused_begin_ends_nothing(fakes, fake):
    backend, api = fake
    api.fail = f"{fakes.PREFIX}StreamBeginCapture"
    with pytest.raises(errors.DriverError):
        backend.capture_begin(9, "global")
    assert "StreamEndCapture" not in names(api)
    fakes.untouched(api)


# ---- interrupts ----------------------------------------------------------------------------------


def test_an_interrupted_begin_leaves_no_capture(fakes, fake):
    backend, api = fake
    for at in count(1):
        if not interrupted(lambda: backend.capture_begin(9, "global"), at, fakes.__file__):
            break
        assert not api.capturing, at
        assert api.graphs == 0, at
        fakes.untouched(api)
    assert api.capturing
    assert at > 20


def test_an_interrupted_end_leaves_neither_capture_nor_graph(fakes, fake):
    backend, api = fake
    still = 0
    for at in count(1):
        token = backend.capture_begin(9, "global")
        if not interrupted(lambda: backend.capture_end(token), at, fakes.__file__):  # noqa: B023
            break
        still += api.capturing
        backend.capture_abandon(token)
        assert not api.capturing, at
        assert api.graphs == 0, at
        fakes.untouched(api)
    assert api.graphs == 1
    assert still <= 2  # where the functions begin, before there is anything to catch it
    assert at > 10


def test_an_interrupt_leaves_the_thread_as_it_was(fakes, fake):
    backend, api = fake
    for at in count(1):
        if not interrupted(lambda: backend.instantiate(fakes.graph()), at, fakes.__file__):
            break
        fakes.untouched(api)
    assert at > 20
