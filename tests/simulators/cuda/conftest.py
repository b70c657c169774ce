"""Fixtures of the driver's own tests."""

import pytest
from cuda.bindings import driver

from accelerator_graph.testing.works.cuda import call
from driver_rules.contexts import current, new_context
from simulators.cuda.faults import Accounts, Faults
from simulators.cuda.tools import Gate


@pytest.fixture
def faults():
    faults = Faults("libcuda.so.1")
    faults.reset()
    yield faults
    faults.reset()


@pytest.fixture
def live():
    """A function that says what lives that did not at the start, in a context of its own."""
    call(driver.cuInit, 0)
    context = new_context()
    before = Accounts().live()

    def live():
        now = Accounts().live()
        return {name: now[name] - before[name] for name in now if now[name] != before[name]}

    with current(context):
        yield live
    call(driver.cuCtxDestroy, context)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.opened.set()
