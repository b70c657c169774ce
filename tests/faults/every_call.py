"""Every call of every operation fails in every way: the error is the documented one, no trace is left."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from typing import Any

import pytest

import accelerator_graph as ag
from accelerator_graph._core import capture_table, ownership, stream_stack

from . import figures
from .bench import (
    MODE,
    Bench,
    accounts,
    capture_mode,
    faults,
    found,
    leaked,
    no_capture,
    pools_in_use,
    released,
)
from .calls import Call, no_phase, recording
from .codes import failures, reason
from .operation import Operation
from .operations import OPERATIONS
from .vendor import BACKEND, codes, vendor

ELSEWHERE = vendor.elsewhere()


def calls_of(operation: Operation, place: Any) -> list[Call]:
    """Do the operation once, with every call succeeding, and return its calls."""
    gc.collect()
    vendor.go_to(place)
    with recording() as recorder:
        bench = Bench(**operation.options)
        operation.prepare(bench)
        ownership.drain()
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
    before = vendor.exchange(MODE)
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: unraised.append(repr(error)))
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    vendor.go_to(vendor.HOME)
    vendor.exchange(before)


unraised: list[str] = []


def pytest_generate_tests(metafunc):
    if "call" not in metafunc.fixturenames:
        return
    vendor.exchange(MODE)
    gc.disable()
    gc.freeze()  # what is there by now need not be looked at in every collection
    cases = []
    for operation in OPERATIONS:
        at_home = {str(call) for call in calls_of(operation, vendor.HOME)}
        calls = calls_of(operation, ELSEWHERE)
        missing = [call.function for call in calls if str(call) not in at_home]
        assert len(at_home) + len(missing) == len(calls)
        assert {vendor.SET_PLACE}.issuperset(missing), "only what is current already need not be set"
        for call in calls:
            cases.append((operation, call, (vendor.HOME if str(call) in at_home else ELSEWHERE, ELSEWHERE)))
    gc.enable()
    metafunc.parametrize(
        ("operation", "call", "places", "number"),
        [(*each, number) for number, each in enumerate(cases)],
        ids=[f"{operation.name}-{call}" for operation, call, _ in cases],
    )


def test_a_call_fails(operation, call, places, number):
    problems = []
    for nth, (code, late) in enumerate(failures(call.function, number)):
        place = places[(number + nth) % 2]
        vendor.go_to(place)
        problem = ""
        try:
            inject(operation, call, code, late)
        except Exception as error:
            problem = f"{code}{' late' if late else ''}: {error or repr(error)}"
        if problem:
            problems.append(problem)
            clear(place)
    assert not problems, "\n".join(problems)


def test_a_capture_may_have_begun_if_the_driver_does_not_say_so():
    bench = Bench()
    faults.reset()
    faults.fail(vendor.BEGIN, code=719, after=True)
    faults.fail(vendor.IS_CAPTURING, code=719, nth=2)
    with pytest.raises(ag.CaptureError, match=vendor.BEGIN):
        bench.graph.capture_begin()
    assert faults.pending == 0
    no_capture()
    bench.usable()


def inject(operation: Operation, call: Call, code: int, late: bool) -> None:
    live, misused = released(), (accounts.stale_handles, accounts.unknown_calls)
    ids = pools_in_use()
    bench = Bench(**operation.options)
    operation.prepare(bench)
    ownership.drain()
    place = vendor.place()
    bench.left_undone = "" if late else call.function
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
    check_thread(call, place, late)
    no_capture()
    vendor.unsafe_call()
    assert vendor.no_last_error() or not failed, "the thread's last error stays"
    if bench.graph is not None:
        assert bench.graph.state == operation.state(call if failed else None), "the graph's state"
    if bench.graph is None or bench.graph.state == "empty":
        assert pools_in_use() == ids, "a pool was not given back"
    operation.check(bench, error if failed else None)
    bench.usable()
    figures.states_checked += 1
    error = bench = None
    vendor.quiesce()
    found()
    check_leaks(operation, call, late, live)
    assert (accounts.stale_handles, accounts.unknown_calls) == misused, "a stale handle, or an unknown call"
    assert not unraised, "printed"


def check_error(operation: Operation, call: Call, code: int, error: Exception | None) -> bool:
    """Check what was raised, and return whether it was on account of the call that failed."""
    if call.role == "alive" and code in codes.NO_STREAM:
        assert error is None, f"an error that nobody asked for: {error!r}"
        return False
    ignored = call.function in operation.ignores or call.phase == "updating"
    if call.role not in ("work", "handle", "alive") or ignored:
        if call.destroys and operation.consequence and error is not None:
            assert isinstance(error, ag.DriverError)
            assert error.code == operation.consequence
            return True
        asked_for = (operation.ends or type(None)) is type(error)
        assert asked_for, f"an error that nobody asked for: {error!r}"
        return False
    assert error is not None, "the code was swallowed"
    if call.role == "handle" and code in codes.NO_STREAM:
        assert isinstance(error, ValueError), f"{error!r} is not documented"
        assert "not the handle of a stream" in str(error)
        return True
    assert isinstance(error, (ag.DriverError, ag.CaptureError)), f"{error!r} is not documented"
    assert call.function in str(error), "another call is named"
    assert f"({code})" in str(error), "another code is named"
    assert error.code == code
    assert error.reason == reason(code)
    if isinstance(error, ag.DriverError):
        assert error.backend == BACKEND
        assert isinstance(error, ag.OutOfMemoryError) == (code == 2)
    return True


def check_thread(call: Call, place: Any, late: bool) -> None:
    """Find contexts and capture mode as before, unless the very call that restores them was to fail."""
    kept = call.role == "restore" and not late
    if kept and call.function == vendor.SET_PLACE:
        vendor.go_to(place)
    if kept and call.function == vendor.EXCHANGE:
        vendor.exchange(MODE)
    assert vendor.place() == place, f"the {vendor.PLACE}"
    assert capture_mode() == int(MODE), "the capture mode"


def check_leaks(operation: Operation, call: Call, late: bool, before: dict[str, int]) -> None:
    """Find nothing left, but what was kept from being destroyed."""
    destroyed = late and call.function in vendor.DESTROYS
    count = operation.graphs if call.destroys == "graphs" else 1
    allowed = {} if destroyed or not call.destroys else {call.destroys: count}
    if "graphs" in allowed:
        before = {name: count for name, count in before.items() if name != "nodes"}
    found = leaked(before, allowed)
    figures.left_by_destruction += sum(found.values()) if found == allowed else 0
    figures.leaks += sum(found.values()) if found != allowed else 0
    assert found in (allowed, {}), "leaked"


def clear(place: Any) -> None:
    """Forget what a failed check has left."""
    vendor.go_to(place)
    vendor.exchange(MODE)
    faults.reset()
    unraised.clear()
    capture_table.live.clear()
    capture_table.thread.graphs.clear()
    stream_stack.thread.entries.clear()
    gc.collect()
    ownership.drain()
    vendor.end_all()
