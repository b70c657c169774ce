"""Every call of every operation fails in every way: the error is the documented one, no trace is left."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from itertools import cycle

import pytest
from cuda.bindings import driver
from works.cuda import call as succeed
from works.cuda import device

import accelerator_graph as ag
from accelerator_graph import _lifetime, pools, streams

from . import figures
from .bench import (
    MODE,
    Bench,
    accounts,
    capture_mode,
    contexts,
    elsewhere,
    faults,
    found,
    leaked,
    no_capture,
    quiesce,
    released,
    set_contexts,
)
from .calls import DESTROYS, Call, no_phase, recording
from .codes import failures, reason
from .operation import Operation
from .operations import OPERATIONS

ELSEWHERE = elsewhere()


def calls_of(operation: Operation, stack: list[int]) -> list[Call]:
    """Do the operation once, with every call succeeding, and return its calls."""
    gc.collect()
    set_contexts(stack)
    with recording() as recorder:
        bench = Bench(**operation.options)
        operation.prepare(bench)
        _lifetime.drain()
        recorder.notes.clear()
        faults.reset()
        with suppress(*filter(None, [operation.ends])):
            operation.run(bench, lambda phase: setattr(recorder, "phase", phase))
        calls = recorder.calls()
    counted = faults.calls()
    for each in calls:
        counted[each.function] -= 1
    assert not any(counted.values()), counted
    if bench.graph is not None:
        assert bench.graph.state == operation.done
    operation.check(bench, None)
    return calls


@pytest.fixture(autouse=True)
def thread(monkeypatch):
    """Test in a thread with a capture mode of its own, and let nothing be printed that was not raised."""
    before = succeed(driver.cuThreadExchangeStreamCaptureMode, MODE)
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: unraised.append(repr(error)))
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    set_contexts([])
    succeed(driver.cuThreadExchangeStreamCaptureMode, before)


unraised: list[str] = []


def pytest_generate_tests(metafunc):
    if "call" not in metafunc.fixturenames:
        return
    succeed(driver.cuThreadExchangeStreamCaptureMode, MODE)
    gc.disable()
    gc.freeze()  # what is there by now need not be looked at in every collection
    cases = []
    for operation in OPERATIONS:
        calls = calls_of(operation, [])
        assert calls == calls_of(operation, [ELSEWHERE])
        cases += [pytest.param(operation, call, id=f"{operation.name}-{call}") for call in calls]
    gc.enable()
    metafunc.parametrize(("operation", "call"), cases)


def test_a_call_fails(operation, call):
    problems = []
    for stack, (code, late) in zip(cycle(([], [ELSEWHERE])), failures(call.function), strict=False):
        set_contexts(stack)
        problem = ""
        try:
            inject(operation, call, code, late)
        except Exception as error:
            problem = f"{code}{' late' if late else ''}: {error or repr(error)}"
        if problem:
            problems.append(problem)
            clear(stack)
    assert not problems, "\n".join(problems)


def test_a_capture_may_have_begun_if_the_driver_does_not_say_so():
    bench = Bench()
    faults.reset()
    faults.fail("cuStreamBeginCapture", code=719, after=True)
    faults.fail("cuStreamIsCapturing", code=719, nth=2)
    with pytest.raises(ag.CaptureError, match="cuStreamBeginCapture"):
        bench.graph.capture_begin()
    assert faults.pending == 0
    no_capture()
    bench.usable()


def inject(operation: Operation, call: Call, code: int, late: bool) -> None:
    live, misused = released(), (accounts.stale_handles, accounts.unknown_calls)
    ids = set(pools._pools)
    bench = Bench(**operation.options)
    operation.prepare(bench)
    _lifetime.drain()
    stack = contexts()
    faults.fail(call.function, code=code, nth=call.nth, after=late)
    error = None
    try:
        operation.run(bench, no_phase)
    except Exception as raised:
        error = raised.with_traceback(None)
    happened = faults.pending == 0
    faults.reset()
    assert happened, f"{call} was not called; {error!r}"
    figures.injected[call.function] += 1
    failed = check_error(operation, call, code, error)
    check_thread(call, stack, late)
    no_capture()
    if bench.graph is not None:
        assert bench.graph.state == operation.state(call if failed else None), "the graph's state"
    if bench.graph is None or bench.graph.state == "empty":
        assert set(pools._pools) == ids, "a pool was not given back"
    operation.check(bench, error if failed else None)
    bench.usable()
    figures.states_checked += 1
    error = bench = None
    quiesce()
    found()
    check_leaks(call, late, live)
    assert (accounts.stale_handles, accounts.unknown_calls) == misused, "a stale handle, or an unknown call"
    assert not unraised, "printed"


def check_error(operation: Operation, call: Call, code: int, error: Exception | None) -> bool:
    """Check what was raised, and return whether it was on account of the call that failed."""
    if call.role != "work" or call.function in operation.ignores:
        if call.destroys and operation.consequence and error is not None:
            assert isinstance(error, ag.DriverError)
            assert error.code == operation.consequence
            return True
        asked_for = (operation.ends or type(None)) is type(error)
        assert asked_for, f"an error that nobody asked for: {error!r}"
        return False
    assert error is not None, "the code was swallowed"
    assert isinstance(error, (ag.DriverError, ag.CaptureError)), f"{error!r} is not documented"
    assert call.function in str(error), "another call is named"
    assert f"({code})" in str(error), "another code is named"
    assert error.code == code
    assert error.reason == reason(code)
    if isinstance(error, ag.DriverError):
        assert error.backend == "cuda"
        assert isinstance(error, ag.OutOfMemoryError) == (code == 2)
    return True


def check_thread(call: Call, stack: list[int], late: bool) -> None:
    """Find contexts and capture mode as before, unless the very call that restores them was to fail."""
    kept = call.role == "restore" and not late
    if kept and call.function == "cuCtxSetCurrent":
        set_contexts(stack)
    if kept and call.function == "cuThreadExchangeStreamCaptureMode":
        succeed(driver.cuThreadExchangeStreamCaptureMode, MODE)
    assert contexts() == stack, "the contexts"
    assert capture_mode() == int(MODE), "the capture mode"


def check_leaks(call: Call, late: bool, before: dict[str, int]) -> None:
    """Find nothing left, but what was kept from being destroyed."""
    destroyed = late and call.function in DESTROYS
    allowed = {} if destroyed or not call.destroys else {call.destroys: 1}
    if "graphs" in allowed:
        before = {name: count for name, count in before.items() if name != "nodes"}
    found = leaked(before, allowed)
    figures.left_by_destruction += sum(found.values()) if found == allowed else 0
    figures.leaks += sum(found.values()) if found != allowed else 0
    assert found in (allowed, {}), "leaked"


def clear(stack: list[int]) -> None:
    """Forget what a failed check has left."""
    set_contexts(stack)
    succeed(driver.cuThreadExchangeStreamCaptureMode, MODE)
    faults.reset()
    unraised.clear()
    _lifetime.captures.clear()
    _lifetime.thread.capturing.clear()
    streams._thread.stack.clear()
    gc.collect()
    _lifetime.drain()
    with device().current():
        driver.cuStreamEndCapture(driver.CUstream(2))
