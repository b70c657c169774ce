"""What events refuse, and what they answer, on the cpu backend."""

import copy
import os
import threading

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability
from accelerator_graph.backends.cpu import CpuBackend

PATIENCE = 20


@pytest.fixture
def stream():
    return ag.Stream(backend="cpu")


@pytest.fixture
def gate(stream):
    """Work that is under way until the gate is opened."""
    gate = threading.Event()
    yield gate
    gate.set()
    stream.synchronize()


def test_an_event_is_asked_waited_for_and_timed(stream, gate):
    start = stream.record(timing=True)
    stream.launch(gate.wait, PATIENCE)
    plain, end = stream.record(), stream.record(timing=True)
    assert start.query() is True
    assert (plain.query(), end.query()) == (False, False)
    threading.Timer(0.02, gate.set).start()
    end.synchronize()
    assert plain.query() is end.query() is True
    assert 0 < start.elapsed_time(end) < PATIENCE * 1000
    assert end.elapsed_time(start) == -start.elapsed_time(end)
    assert start.elapsed_time(start) == 0


def test_the_time_of_work_that_is_not_done_is_refused(stream, gate):
    start = stream.record(timing=True)
    stream.launch(gate.wait, PATIENCE)
    end = stream.record(timing=True)
    for first, second in ((start, end), (end, start)):
        with pytest.raises(ag.GraphStateError, match=r"is not done; call its synchronize\(\) first"):
            first.elapsed_time(second)


def test_an_event_without_a_time_is_refused(stream):
    timed, plain = stream.record(timing=True), stream.record()
    with pytest.raises(ValueError, match=r"the end event was recorded without a time.*record\(timing=True\)"):
        timed.elapsed_time(plain)
    with pytest.raises(ValueError, match=r"the start event was recorded without a time"):
        plain.elapsed_time(timed)


def test_timing_is_true_or_false(stream):
    with pytest.raises(TypeError, match="record: timing must be True or False, not 'no'"):
        stream.record(timing="no")


@pytest.mark.parametrize("bad", [None, 1.5, "event", object()])
def test_what_is_not_an_event_has_no_time(stream, bad):
    with pytest.raises(TypeError, match="end must be an Event"):
        stream.record(timing=True).elapsed_time(bad)


class TwoDevices(CpuBackend):
    __slots__ = ()

    device_count = 2


def test_events_of_different_backends_or_devices_have_no_time_between_them(stream):
    ag.backends.register("two_devices", TwoDevices)
    try:
        first, second = (ag.Stream(device, backend="two_devices").record(timing=True) for device in (0, 1))
        with pytest.raises(ValueError, match="device 0, and of backend 'two_devices', device 1"):
            first.elapsed_time(second)
        with pytest.raises(ValueError, match="'two_devices', device 0, and of backend 'cpu', device 0"):
            first.elapsed_time(stream.record(timing=True))
    finally:
        ag.backends.unregister("two_devices")


def test_what_was_recorded_in_a_capture_is_refused_and_the_capture_goes_on(stream):
    done = []
    side = ag.Stream(backend="cpu")
    before = stream.record(timing=True)
    with stream, ag.Graph() as graph:
        side.wait(stream)
        for capturing in (stream, side):
            with pytest.raises(ag.GraphStateError, match="the stream is being captured"):
                capturing.record(timing=True)
        event = stream.record()
        for ask in (event.query, event.synchronize, lambda: before.elapsed_time(event)):
            with pytest.raises(ag.GraphStateError, match="recorded in a capture, where nothing runs"):
                ask()
        stream.launch(done.append, 1)
        side.wait(stream)
        stream.wait(side)
    graph.replay()
    stream.synchronize()
    assert done == [1]
    with pytest.raises(ag.GraphStateError, match="recorded in a capture"):
        event.query()


def test_waiting_for_an_event_in_a_capture_breaks_it_as_every_wait_does(stream):
    event = stream.record(timing=True)
    for ask in (event.query, event.synchronize):
        with pytest.raises(ag.CaptureError) as failed, stream, ag.Graph():
            ask()
        assert failed.value.reason in ("illegal_call", "invalidated")


class Untimed(CpuBackend):
    """A plug-in that was written before events had times."""

    __slots__ = ()

    def capabilities(self, device):
        return super().capabilities(device) - {Capability.TIMING}


def test_a_backend_without_the_capability_says_so():
    ag.backends.register("untimed", Untimed)
    try:
        stream = ag.Stream(backend="untimed")
        event = stream.record()
        for ask in (lambda: stream.record(timing=True), event.query, event.synchronize):
            with pytest.raises(ag.UnsupportedError, match="does not have the capability 'timing'") as refused:
                ask()
            assert refused.value.capability == "timing"
        ag.Stream(backend="untimed").wait(event)
        with stream, ag.Graph() as graph:
            stream.launch(int)
        with pytest.raises(ag.UnsupportedError, match="'timing'"):
            graph.profile()
    finally:
        ag.backends.unregister("untimed")


def test_a_callable_can_not_wait_for_an_event_behind_itself(stream):
    events, refused = [], []
    recorded = threading.Event()

    def wait():
        recorded.wait(PATIENCE)
        try:
            events[0].synchronize()
        except ag.DriverError as error:
            refused.append(error)

    stream.launch(wait)
    events.append(stream.record())
    recorded.set()
    stream.synchronize()
    assert (refused[0].code_name, refused[0].call) == ("WOULD_DEADLOCK", "synchronize")


def test_a_failure_is_left_to_the_stream(stream):
    stream.launch(lambda: 1 / 0)
    event = stream.record(timing=True)
    event.synchronize()
    assert event.query() is True
    with pytest.raises(ag.DriverError, match="ZeroDivisionError"):
        stream.synchronize()


def test_an_event_is_not_copied(stream):
    with pytest.raises(TypeError, match="an Event can't be pickled or copied"):
        copy.copy(stream.record(timing=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_an_event_from_before_a_fork_is_refused(stream):
    event = stream.record(timing=True)
    pid = os.fork()
    if pid == 0:
        refused = 0
        for ask in (event.query, event.synchronize, lambda: event.elapsed_time(event)):
            try:
                ask()
            except ag.GraphStateError as error:
                refused += "before this process was forked" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert event.query() is True
