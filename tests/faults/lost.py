"""A device that is lost: from some call on every call answers the same code, until all are let go of."""

from __future__ import annotations

import gc
import sys

import pytest

import accelerator_graph as ag
from accelerator_graph._core import capture_table, ownership, stream_stack
from simulators.cuda.faults import ALWAYS

from . import figures
from .bench import Bench, faults
from .calls import no_phase
from .every_call import calls_of
from .operations import OPERATIONS
from .vendor import vendor


@pytest.fixture(autouse=True)
def found_again():
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    faults.reset()
    vendor.go_to(vendor.HOME)
    gc.collect()
    ownership.drain()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_it_is_said_to_be_lost_and_python_s_side_is_in_order(operation, monkeypatch):
    printed: list[str] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: printed.append(repr(error)))
    own = (
        []
        if vendor.INSTANTIATES_ALLOCATIONS_AGAIN or "allocating" not in operation.name
        else [("other", 801)]
    )
    for number in range(1, len(calls_of(operation, vendor.HOME)) + 1):
        bench = Bench(**operation.options)
        operation.prepare(bench)
        ownership.drain()
        faults.reset()
        faults.fail(code=719, nth=number, times=ALWAYS)
        error: Exception | None = None
        try:
            operation.run(bench, no_phase)
        except Exception as raised:
            error = raised.with_traceback(None)
        assert not capture_table.live
        assert not capture_table.thread.graphs
        assert not stream_stack.thread.entries
        assert isinstance(error, (ag.DriverError, ag.CaptureError, type(None), operation.ends or type(None)))
        if isinstance(error, (ag.DriverError, ag.CaptureError)):
            assert (error.reason, error.code) in (("device_lost", 719), ("illegal_call", 900), *own)
        if bench.graph is not None:
            assert bench.graph.state in ("empty", "captured", "ready")
            bench.graph.reset()
        ownership.drain()
        assert not printed
        figures.injected["every function from the n-th call on"] += 1
        figures.states_checked += 1
        faults.reset()
        end_captures(bench)
        vendor.quiesce()  # what could not be waited for is still under way
        error = bench = None
        vendor.go_to(vendor.HOME)
        gc.collect()  # while destroying succeeds
        ownership.drain()


def end_captures(bench: Bench) -> None:
    """End what the driver did not hear of any more."""
    vendor.go_to(vendor.HOME)
    vendor.end_all(bench.stream.native, bench.fork.native)
    vendor.exchange(vendor.MODES["global"])
