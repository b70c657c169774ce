"""A KeyboardInterrupt, or what else a signal handler raises, at any moment of every operation."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership, pools
from core import random_signals
from lanes import sample, step

from . import figures
from .bench import MODE, A, Bench, accounts, capture_mode, found, leaked, no_capture, released
from .calls import no_phase
from .every_call import clear
from .moments import Interrupter
from .operation import Operation
from .operations import OPERATIONS
from .vendor import BACKEND, vendor

ELSEWHERE = vendor.elsewhere()


class HandlerRaised(Exception):
    """What a signal handler may raise instead, a time limit for example."""


def time_is_up(*_: object) -> None:
    raise HandlerRaised


HANDLERS = (signal.default_int_handler, time_is_up)


@pytest.fixture(autouse=True)
def thread() -> Iterator[None]:
    vendor.go_to(ELSEWHERE)
    before = vendor.exchange(MODE)
    handler = signal.signal(signal.SIGTERM, time_is_up)
    yield
    signal.signal(signal.SIGTERM, handler)
    vendor.go_to(vendor.HOME)
    vendor.exchange(before)


def interrupted(work: Callable[[], object], at: int) -> tuple[str, BaseException | None]:
    """Do work with a signal at the given moment; return where that was, and what was raised."""
    error: BaseException | None = None
    interrupter = Interrupter(at, HANDLERS[at // step("moments") % 2], vendor.WATCHED)
    before = sys.gettrace()
    try:
        sys.settrace(interrupter)
        work()
    except BaseException as raised:
        error = raised.with_traceback(None)
    finally:
        sys.settrace(before)
    return interrupter.where, error


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_interrupt_at_any_moment_leaves_no_trace(operation: Operation) -> None:
    problems = []
    for at in sample("moments"):
        vendor.go_to(ELSEWHERE)
        where, problem = strike(operation, at)
        if not where:
            break
        if problem and vendor.NOT_COVERED not in (problem := f"at {where}: {problem}"):
            problems.append(problem)
    assert not problems, "\n".join(problems)


def strike(operation: Operation, at: int) -> tuple[str, str]:
    """Interrupt an operation at a moment; return where that was, and what is wrong then.

    What a call has just made may be left, or one object that was about to be destroyed.
    """
    live, misused, ids = released(), (accounts.stale_handles, accounts.unknown_calls), set(pools._pools)
    bench = Bench(**operation.options)
    operation.prepare(bench)
    ownership.drain()
    place = vendor.place()
    where, error = interrupted(lambda: operation.run(bench, no_phase), at)
    problem, code = "", 0
    if where:
        try:
            assert reaches_the_caller(error), f"{error!r} was raised instead"
            assert vendor.place() == place, f"the {vendor.PLACE}"
            assert capture_mode() == int(MODE), "the capture mode"
            check(operation, bench, error)
            if bench.graph is None or bench.graph.state == "empty":
                ownership.drain()  # as the next call does
                assert set(pools._pools) == ids, "a pool was not given back"
            bench.usable()
            assert (accounts.stale_handles, accounts.unknown_calls) == misused, "a stale handle"
        except Exception as wrong:
            problem, code = str(wrong) or repr(wrong), getattr(wrong, "code", 0)
            clear(ELSEWHERE)
            vendor.end_all(bench.stream.native, bench.fork.native)
    error = bench = None  # type: ignore[assignment]
    vendor.quiesce()
    found()
    left = leaked(live)
    left.pop("nodes", None)
    figures.states_checked += 1
    figures.left_by_interrupts += sum(left.values()) == 1
    if left and code and code == operation.consequence:
        problem = ""
    return where, problem or ("" if sum(left.values()) <= operation.made else f"leaked {left}")


def reaches_the_caller(error: BaseException | None) -> bool:
    """Return True if what the handler has raised did, or is the cause of a broken capture that did."""
    if isinstance(error, ag.CaptureError):
        error = error.__cause__
    return isinstance(error, (KeyboardInterrupt, HandlerRaised))


def check(operation: Operation, bench: Bench, error: BaseException | None) -> None:
    """Find that an operation was done or not."""
    if bench.graph is not None and bench.graph.state == "capturing":  # by hand
        bench.graph.reset()
    no_capture()
    if bench.graph is not None:
        assert bench.graph.state in states(operation), "the graph's state"
    try:
        operation.check(bench, error)
    except AssertionError:
        operation.check(bench, None)


def states(operation: Operation) -> set[str]:
    """Return the states in which an operation that is interrupted may leave the graph."""
    failed = {operation.failed} if isinstance(operation.failed, str) else {"captured", "empty", "ready"}
    return {operation.done, *failed, *operation.interrupted}


# ---- what is due to be destroyed ----------------------------------------------------------------


def used() -> None:
    """Make one object of each kind, which nobody holds afterwards."""
    stream = ag.Stream(0, backend=BACKEND)
    with stream, ag.Graph(keep_graph=True) as graph:
        stream.fill(A, 1)
    graph.replay()
    stream.synchronize()
    stream.record()


def test_after_an_interrupt_at_any_moment_of_a_destruction_all_is_destroyed_once() -> None:
    problems = []
    for at in count(1):
        before, stale = released(), accounts.stale_handles
        used()
        where, _ = interrupted(ownership.drain, at)
        if not where:
            break
        try:
            assert leaked(before) == {}, "leaked"
            assert accounts.stale_handles == stale, "a stale handle"
            assert vendor.place() == ELSEWHERE, f"the {vendor.PLACE}"
            assert capture_mode() == int(MODE), "the capture mode"
            figures.states_checked += 1
        except AssertionError as wrong:
            problems.append(f"at {where}: {wrong}")
            clear(ELSEWHERE)
    assert at > 60
    problems = [each for each in problems if vendor.NOT_COVERED not in each]
    assert not problems, "\n".join(problems)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timer")
def test_real_signals_at_random_moments_leave_no_trace() -> None:
    def capture() -> None:
        with graph:
            stream.fill(A, 1)

    def look() -> None:
        graph.reset()
        no_capture()
        assert vendor.place() == ELSEWHERE
        vendor.exchange(MODE)  # not looked at: see vendor.NOT_COVERED
        figures.states_checked += 1

    stream = ag.Stream(0, backend=BACKEND)
    graph = ag.Graph(stream=stream)
    random_signals.interrupt(capture, look, rounds=1000)
    bench = Bench()
    bench.usable()
