"""Looking for the driver and initialising it: the calls that are made before there is a backend."""

from __future__ import annotations

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.cuda import CudaBackend

from . import figures
from .bench import Bench, faults, nothing_left
from .codes import UNKNOWN_CODE


@pytest.fixture(autouse=True)
def clean():
    with nothing_left():
        yield
        faults.reset()


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGetCount"])
@pytest.mark.parametrize("code", [2, 3, 100, 101, 802, 803, 804, 999, UNKNOWN_CODE])
def test_a_driver_that_can_not_be_initialised_is_not_available(function, code):
    backend = CudaBackend()
    backend.name = "cuda"
    faults.fail(function, code=code)
    with pytest.raises(ag.errors.BackendUnavailableError) as raised:
        backend.open()
    assert faults.pending == 0
    assert function in str(raised.value)
    assert f"({code})" in raised.value.reasons["cuda"]
    assert isinstance(raised.value.__cause__, ag.DriverError)
    figures.injected[function] += 1
    backend.open()
    Bench().usable()
    figures.states_checked += 1


@pytest.mark.parametrize("code", [1, 34, 999])
def test_a_driver_that_does_not_tell_its_version_is_not_usable(code):
    faults.fail("cuDriverGetVersion", code=code)
    found = CudaBackend.probe()
    assert faults.pending == 0
    assert not found.usable
    assert "libcuda.so.1" in found.reason or str(code) in found.reason
    figures.injected["cuDriverGetVersion"] += 1
    assert CudaBackend.probe().usable
    figures.states_checked += 1


def test_a_primary_context_is_retained_once():
    first = ag.Stream(0, backend="cuda")
    faults.reset()
    second = ag.Stream(0, backend="cuda")
    assert faults.calls()["cuDevicePrimaryCtxRetain"] == 0
    assert first.handle != second.handle
    figures.states_checked += 1
