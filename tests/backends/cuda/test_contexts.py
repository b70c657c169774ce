"""The CUDA backend leaves the caller's contexts as they were, and works in those of its streams."""

from __future__ import annotations

import sys

import pytest

from lanes import require

pytestmark = require("cuda")

from cuda.bindings import driver

from accelerator_graph import errors
from backends.cuda.bench import Block, call, current, new_context, primary_context
from backends.tools import everything, recorded, replayed
from processes import execute
from threads import in_thread

FIRST = """
import accelerator_graph as ag
driver = ag.backends.get("cuda").driver
from accelerator_graph._core.extension import fast
print(fast is None or isinstance(driver.ask_current, fast.Ask))
"""


def test_a_driver_is_asked_in_c_even_if_it_is_opened_before_there_is_a_graph():
    assert execute([sys.executable, "-c", FIRST]).stdout.split() == ["True"]


def test_a_thread_without_a_context_stays_without(backend, stream, block, tmp_path):
    def work():
        everything(backend, stream, block, tmp_path / "graph.dot")
        fresh = backend.create_stream(0)
        assert backend.device_of(fresh) == 0
        backend.destroy_stream(fresh)
        assert int(call(driver.cuCtxGetCurrent)) == 0
        assert int(driver.cuCtxPopCurrent()[0]) == 201  # nothing on the stack

    in_thread(work)


def test_a_callers_contexts_are_left_as_they_were(backend, stream, block, tmp_path):
    def work():
        below = primary_context(backend.device_count - 1)
        call(driver.cuCtxPushCurrent, below)
        above = new_context()  # current from now on
        try:
            everything(backend, stream, block, tmp_path / "graph.dot")
            token = backend.capture_begin(stream, "thread_local")
            for fails in (lambda: backend.synchronize(stream), lambda: backend.capture_end(token)):
                with pytest.raises(errors.DriverError):
                    fails()
            assert int(call(driver.cuCtxPopCurrent)) == int(above)
            assert int(call(driver.cuCtxPopCurrent)) == int(below)
            assert int(driver.cuCtxPopCurrent()[0]) == 201
        finally:
            call(driver.cuCtxDestroy, above)

    in_thread(work)


def test_a_foreign_stream_keeps_its_own_context(backend, stream, tmp_path):
    own, context = stream, new_context()
    foreign = call(driver.cuStreamCreate, 0)
    call(driver.cuCtxPopCurrent)
    block = Block(context=context)
    try:
        stream = backend.as_stream(int(foreign))
        in_thread(lambda: everything(backend, stream, block, tmp_path / "graph.dot"))
        token = backend.capture_begin(stream, "thread_local")
        assert int(token.place) == int(context)
        backend.capture_abandon(token)
        side = backend.create_stream(0, like=stream)
        assert int(call(driver.cuStreamGetCtx, side)) == int(context)
        assert backend.context_id(side) == backend.context_id(stream) != backend.context_id(own)
        backend.destroy_stream(side)
    finally:
        block.free()
        call(driver.cuStreamDestroy, foreign)
        call(driver.cuCtxDestroy, context)


def test_every_device(backend):
    if backend.device_count < 2:
        pytest.skip("there is one device only")

    def work():
        for device in reversed(range(backend.device_count)):
            stream = backend.create_stream(device)
            block = Block(context=primary_context(device))
            assert backend.device_of(stream) == device
            graph = recorded(backend, stream, block, device + 1)
            assert int(graph.place) == int(primary_context(device))
            replayed(backend, graph, stream)
            assert block.read() == bytes([device + 1] * block.nbytes)
            block.free()
            backend.destroy_stream(stream)

    in_thread(work)
    with current():
        work()


@pytest.mark.parametrize("special", [0, 1, 2])
def test_a_special_stream_has_the_launch_of_the_others_in_one_context(backend, stream, block, special):
    graph = recorded(backend, stream, block, 1)
    executable = backend.instantiate(graph)
    ordinary = backend.native_calls(stream).launch_function(executable)
    there = backend.native_calls(backend.as_stream(special)).launch_function(executable)
    if ordinary is not None:  # the driver may not tell where its functions are
        assert (there.address, there.failed) == (ordinary.address, ordinary.failed)
        assert there.guard.context == int(executable.place)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)
