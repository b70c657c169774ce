"""Looking for the driver and initialising it: the calls that are made before there is a backend."""

import pytest

import accelerator_graph as ag

from . import figures
from .bench import Bench, faults, nothing_left
from .vendor import BACKEND, codes, vendor


@pytest.fixture(autouse=True)
def clean():
    with nothing_left():
        yield
        faults.reset()


@pytest.mark.parametrize(
    ("function", "code"), [(function, code) for function, codes in codes.OPENING.items() for code in codes]
)
def test_a_driver_that_can_not_be_initialised_is_not_available(function, code):
    backend = vendor.Backend()
    backend.name = BACKEND
    faults.fail(function, code=code)
    with pytest.raises(ag.errors.BackendUnavailableError) as raised:
        backend.open()
    assert faults.pending == 0
    assert function in str(raised.value)
    assert f"({code})" in raised.value.reasons[BACKEND]
    assert isinstance(raised.value.__cause__, ag.DriverError)
    figures.injected[function] += 1
    backend.open()
    Bench().usable()
    figures.states_checked += 1


@pytest.mark.skipif(not vendor.VERSION, reason="the version is not asked for")
@pytest.mark.parametrize("code", [1, 34, 999])
def test_a_driver_that_does_not_tell_its_version_is_not_usable(code):
    faults.fail(vendor.VERSION, code=code)
    found = vendor.Backend.probe()
    assert faults.pending == 0
    assert not found.usable
    assert "libcuda.so.1" in found.reason or str(code) in found.reason
    figures.injected[vendor.VERSION] += 1
    assert vendor.Backend.probe().usable
    figures.states_checked += 1


@pytest.mark.skipif(not vendor.FIRST_USE, reason="there is nothing to be done on the first use of a device")
def test_a_primary_context_is_retained_once():
    first = ag.Stream(0, backend=BACKEND)
    faults.reset()
    second = ag.Stream(0, backend=BACKEND)
    assert faults.calls()["cuDevicePrimaryCtxRetain"] == 0
    assert first.handle != second.handle
    figures.states_checked += 1


@pytest.mark.skipif(not codes.NO_DEVICE, reason="the driver says so in the same way as everything else")
def test_no_device_is_no_error():
    backend = vendor.Backend()
    backend.name = BACKEND
    function, code = codes.NO_DEVICE
    faults.fail(function, code=code)
    with pytest.raises(ag.errors.BackendUnavailableError, match="finds no device"):
        backend.open()
    assert faults.pending == 0
    assert vendor.no_last_error()
    figures.injected[function] += 1
    figures.states_checked += 1
