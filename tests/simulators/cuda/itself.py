"""The software CUDA driver itself: asynchronous, in order, it counts what lives and fails when told.

Run by test_on_software_driver.py.
"""

import time

import pytest
from cuda.bindings import driver

from accelerator_graph.testing.works.cuda import KERNEL, call
from driver_rules.contexts import current, new_context
from simulators.cuda.faults import ALWAYS, Accounts
from simulators.cuda.tools import captured, read, wait_until

NULL, BLOCKING, NON_BLOCKING = "null", 0, 1


@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [
        (NULL, BLOCKING, True),
        (BLOCKING, NULL, True),
        (NULL, NON_BLOCKING, False),
        (NON_BLOCKING, NULL, False),
        (BLOCKING, BLOCKING, False),
    ],
)
def test_the_legacy_stream_and_blocking_ones_wait_for_each_other(live, gate, first, second, waits):
    made = [
        driver.CUstream(0) if kind == NULL else call(driver.cuStreamCreate, kind) for kind in (first, second)
    ]
    memory = call(driver.cuMemAlloc, 1)
    gate.close(made[0])
    call(driver.cuMemsetD8Async, memory, 7, 1, made[1])
    if waits:
        assert driver.cuStreamQuery(made[1])[0] == driver.CUresult.CUDA_ERROR_NOT_READY
    else:
        call(driver.cuStreamSynchronize, made[1]) if second != NULL else wait_until(lambda: read(memory) == 7)
    gate.opened.set()
    call(driver.cuCtxSynchronize)
    assert read(memory) == 7
    call(driver.cuMemFree, memory)
    for stream in made:
        if int(stream):
            call(driver.cuStreamDestroy, stream)
    assert live() == {}


def test_events_order_streams(live, gate):
    a, b = (call(driver.cuStreamCreate, NON_BLOCKING) for _ in range(2))
    memory = call(driver.cuMemAlloc, 1)
    event = call(driver.cuEventCreate, 0)
    gate.close(a)
    call(driver.cuMemsetD8Async, memory, 1, 1, a)
    call(driver.cuEventRecord, event, a)
    call(driver.cuStreamWaitEvent, b, event, 0)
    call(driver.cuMemsetD8Async, memory, 2, 1, b)
    assert driver.cuEventQuery(event)[0] == driver.CUresult.CUDA_ERROR_NOT_READY
    assert driver.cuStreamQuery(b)[0] == driver.CUresult.CUDA_ERROR_NOT_READY
    call(driver.cuEventDestroy, event)  # what waits for it does so still
    gate.opened.set()
    call(driver.cuStreamSynchronize, b)
    assert read(memory) == 2
    call(driver.cuStreamDestroy, a)
    call(driver.cuStreamDestroy, b)
    call(driver.cuMemFree, memory)
    assert live() == {}


def test_an_executable_that_was_destroyed_still_runs(live, gate):
    a, b = (call(driver.cuStreamCreate, NON_BLOCKING) for _ in range(2))
    memory = call(driver.cuMemAlloc, 1)
    graph = captured(a, (driver.cuMemsetD8Async, memory, 3, 1))
    executable = call(driver.cuGraphInstantiate, graph, 0)
    assert live() == {"streams": 2, "allocations": 1, "graphs": 1, "nodes": 1, "executables": 1}
    gate.close(a)
    call(driver.cuGraphLaunch, executable, a)
    call(driver.cuGraphLaunch, executable, b)  # after the run on the other stream
    call(driver.cuGraphExecDestroy, executable)
    call(driver.cuGraphDestroy, graph)
    assert driver.cuStreamQuery(b)[0] == driver.CUresult.CUDA_ERROR_NOT_READY
    assert live() == {"streams": 2, "allocations": 1}
    gate.opened.set()
    call(driver.cuStreamSynchronize, b)
    assert read(memory) == 3
    for stream in (a, b):
        call(driver.cuStreamDestroy, stream)
    call(driver.cuMemFree, memory)
    assert live() == {}


def test_memory_goes_with_its_context(live):
    context = new_context()
    with current(context):
        memory = call(driver.cuMemAlloc, 1)
    assert live() == {"contexts": 1, "allocations": 1}
    call(driver.cuCtxDestroy, context)
    assert live() == {}
    assert driver.cuMemFree(memory)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE


def test_a_missing_dependency_shows(live):
    """Of nodes that don't depend on each other, the one that was recorded last runs first."""
    a, b = (call(driver.cuStreamCreate, NON_BLOCKING) for _ in range(2))
    memory = call(driver.cuMemAlloc, 1)
    event = call(driver.cuEventCreate, 0)
    call(driver.cuStreamBeginCapture, a, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    call(driver.cuEventRecord, event, a)
    call(driver.cuStreamWaitEvent, b, event, 0)
    call(driver.cuMemsetD8Async, memory, 1, 1, a)
    call(driver.cuMemsetD8Async, memory, 2, 1, b)
    call(driver.cuEventRecord, event, b)
    call(driver.cuStreamWaitEvent, a, event, 0)
    graph = call(driver.cuStreamEndCapture, a)
    executable = call(driver.cuGraphInstantiate, graph, 0)
    call(driver.cuGraphLaunch, executable, a)
    call(driver.cuStreamSynchronize, a)
    assert read(memory) == 1
    for release, handle in (
        (driver.cuGraphExecDestroy, executable),
        (driver.cuGraphDestroy, graph),
        (driver.cuEventDestroy, event),
        (driver.cuStreamDestroy, a),
        (driver.cuStreamDestroy, b),
        (driver.cuMemFree, memory),
    ):
        call(release, handle)
    assert live() == {}


# ---- faults and accounts -------------------------------------------------------------------------


def test_the_nth_call_fails(live, faults):
    faults.fail("cuStreamCreate", code=2, nth=2, times=2)
    codes, streams = zip(*[driver.cuStreamCreate(1) for _ in range(4)], strict=True)
    assert [int(code) for code in codes] == [0, 2, 2, 0]
    assert faults.calls()["cuStreamCreate"] == 4
    assert faults.pending == 0
    assert live() == {"streams": 2}
    call(driver.cuStreamDestroy, streams[0])
    call(driver.cuStreamDestroy, streams[3])


def test_any_call_fails(live, faults):
    faults.fail(code=719, nth=2, times=ALWAYS)
    assert driver.cuCtxGetDevice()[0] == 0
    assert driver.cuCtxGetDevice()[0] == 719
    assert driver.cuStreamCreate(0)[0] == 719
    assert faults.pending == 1
    faults.reset()
    assert driver.cuCtxGetDevice()[0] == 0
    assert faults.calls()["cuCtxGetDevice"] == 1


def test_a_call_does_its_work_and_fails_all_the_same(live, faults):
    stream = call(driver.cuStreamCreate, 0)
    faults.fail("cuStreamDestroy", code=700, after=True)
    assert driver.cuStreamDestroy(stream)[0] == 700
    assert live() == {}


@pytest.mark.parametrize("after", [False, True])
def test_an_end_that_fails_ends_the_capture(live, faults, after):
    stream = call(driver.cuStreamCreate, 1)
    call(driver.cuStreamBeginCapture, stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    assert live() == {"streams": 1, "captures": 1, "graphs": 1}
    faults.fail("cuStreamEndCapture", code=2, after=after)
    assert driver.cuStreamEndCapture(stream)[0] == 2
    assert live() == {"streams": 1}
    call(driver.cuStreamDestroy, stream)


def test_a_call_takes_long(live, faults):
    faults.delay("cuCtxGetDevice", 20_000)
    start = time.monotonic()
    driver.cuCtxGetDevice()
    assert time.monotonic() - start >= 0.02


def test_faults_that_could_not_happen_are_refused(faults):
    with pytest.raises(AssertionError, match="cuNothing"):
        faults.fail("cuNothing", code=1)
    with pytest.raises(ValueError, match="nth is 0"):
        faults.fail(code=1, nth=0)


def test_a_handle_that_means_nothing_any_more_is_counted(live):
    accounts = Accounts()
    stream = call(driver.cuStreamCreate, 1)
    call(driver.cuStreamDestroy, stream)
    before = accounts.stale_handles
    assert driver.cuStreamDestroy(stream)[0] == driver.CUresult.CUDA_ERROR_INVALID_HANDLE
    assert accounts.stale_handles == before + 1


def test_what_the_driver_does_not_have_is_counted(live, monkeypatch, tmp_path):
    accounts, names = Accounts(), tmp_path / "names"
    before = accounts.unknown_calls
    monkeypatch.setenv("SOFTWARE_CUDA_UNKNOWN", str(names))
    assert driver.cuCtxGetLimit(driver.CUlimit.CU_LIMIT_STACK_SIZE)[0] == 801
    module = call(driver.cuModuleLoadData, KERNEL.replace(b"entry step(", b"entry strange("))
    assert driver.cuModuleGetFunction(module, b"strange")[0] == 801
    assert driver.cuModuleGetFunction(module, b"step")[0] == driver.CUresult.CUDA_ERROR_NOT_FOUND
    call(driver.cuModuleUnload, module)
    assert accounts.unknown_calls == before + 2
    assert names.read_text().split() == ["cuCtxGetLimit", "strange"]
