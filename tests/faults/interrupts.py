"""A KeyboardInterrupt, or what else a signal handler raises, at any moment of a capture."""

from __future__ import annotations

import signal
import sys
from itertools import count

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership
from core import random_signals
from core.test_interrupts import HandlerRaised, by_hand, with_graph, with_side_stream
from lanes import step

from . import figures
from .bench import MODE, accounts, capture_mode, leaked, no_capture, released
from .every_call import clear
from .moments import Interrupter
from .vendor import BACKEND, vendor

ELSEWHERE = vendor.elsewhere()
MEMORY = vendor.memory(4)
STEP = step("moments")
FIRST = {KeyboardInterrupt: 1, HandlerRaised: 1 + STEP // 2}
"""The first moment, by the exception: in a plain run each strikes at other moments than the other."""


def body_passes(stream, log):
    stream.fill(MEMORY, 1)


def body_raises(stream, log):
    stream.fill(MEMORY, 1)
    raise LookupError


def body_invalidates(stream, log):
    stream.fill(MEMORY, 1)
    stream.synchronize()


BODIES = (body_passes, body_raises, body_invalidates)


@pytest.fixture(autouse=True)
def thread():
    vendor.go_to(ELSEWHERE)
    before = vendor.exchange(MODE)
    yield
    vendor.go_to(vendor.HOME)
    vendor.exchange(before)


def attempt(way, body, at, pool, error):
    """Capture with an interrupt at the given moment; return what became of it."""
    stream = ag.Stream(0, backend=BACKEND)
    graph = ag.Graph(pool=pool)
    interrupter = Interrupter(at, error, vendor.WATCHED)
    with stream:
        before = sys.gettrace()
        try:
            sys.settrace(interrupter)
            way(graph, stream, body, None)
        except (KeyboardInterrupt, HandlerRaised, LookupError, ag.CaptureError, ag.DriverError):
            pass
        finally:
            sys.settrace(before)
        assert ag.current_stream() is stream
    return graph, stream, interrupter


def check(graph, stream, pool):
    """Find no trace of the capture, and capture again."""
    no_capture()
    assert graph.state in ("empty", "ready")
    assert vendor.place() == ELSEWHERE, f"the {vendor.PLACE}"
    assert capture_mode() == int(MODE), "the capture mode"
    graph.reset()
    with stream, graph:
        stream.fill(MEMORY, 2)
    MEMORY[:] = bytes(4)
    graph.replay()
    stream.synchronize()
    assert bytes(MEMORY) == bytes([2] * 4)
    other = ag.Graph(pool=pool)
    with stream, other:
        stream.fill(MEMORY, 3)
    figures.states_checked += 1


def every_moment(way, body, error):
    """Interrupt at moments of a capture; reset what was captured by hand, and return what is wrong then.

    One object may be left: that which the driver has just made, or which was about to be destroyed.
    """
    problems = []
    attempt(way, body, 0, ag.graph_pool_handle(), error)
    for at in count(FIRST[error], STEP):
        pool, before = ag.graph_pool_handle(), released()
        graph, stream, interrupter = attempt(way, body, at, pool, error)
        if not interrupter.where:
            break
        problem = ""
        try:
            if way is by_hand:
                graph.reset()
            check(graph, stream, pool)
        except Exception as found:
            problem = str(found)
            clear(ELSEWHERE)
        graph = stream = None
        left = leaked(before)
        left.pop("nodes", None)
        figures.left_by_interrupts += sum(left.values()) == 1
        if problem or sum(left.values()) > 1:
            problems.append(f"at {interrupter.where}: {problem or left}")
    assert at > 60
    return problems


@pytest.mark.parametrize("error", [KeyboardInterrupt, HandlerRaised])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("way", [with_graph, with_side_stream, by_hand])
def test_an_interrupt_at_any_moment_leaves_no_trace(way, body, error):
    problems = [each for each in every_moment(way, body, error) if vendor.NOT_COVERED not in each]
    assert not problems, "\n".join(problems)


def used() -> None:
    """Make one object of each kind, which nobody holds afterwards."""
    stream = ag.Stream(0, backend=BACKEND)
    with stream, ag.Graph(keep_graph=True) as graph:
        stream.fill(MEMORY, 1)
    graph.replay()
    stream.synchronize()
    stream.record()


def interrupted_drain(at):
    """Destroy what is due with an interrupt at the given moment; return where that was."""
    interrupter = Interrupter(at, KeyboardInterrupt, vendor.WATCHED)
    before = sys.gettrace()
    try:
        sys.settrace(interrupter)
        ownership.drain()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupter.where


def test_after_an_interrupt_at_any_moment_of_a_destruction_all_is_destroyed_once():
    problems = []
    for at in count(1):
        before, stale = released(), accounts.stale_handles
        used()
        where = interrupted_drain(at)
        if not where:
            break
        try:
            assert leaked(before) == {}, "leaked"
            assert accounts.stale_handles == stale, "a stale handle"
            assert vendor.place() == ELSEWHERE, f"the {vendor.PLACE}"
            assert capture_mode() == int(MODE), "the capture mode"
            figures.states_checked += 1
        except AssertionError as found:
            problems.append(f"at {where}: {found}")
            clear(ELSEWHERE)
    assert at > 60
    problems = [each for each in problems if vendor.NOT_COVERED not in each]
    assert not problems, "\n".join(problems)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timer")
def test_real_signals_at_random_moments_leave_no_trace():
    def capture():
        with graph:
            stream.fill(MEMORY, 1)

    def look():
        graph.reset()
        no_capture()
        assert vendor.place() == ELSEWHERE
        vendor.exchange(MODE)  # not looked at: see vendor.NOT_COVERED
        figures.states_checked += 1

    stream = ag.Stream(0, backend=BACKEND)
    graph = ag.Graph(stream=stream)
    random_signals.interrupt(capture, look, rounds=1000)
    check(graph, stream, ag.graph_pool_handle())
