"""`verify` over raw memory of CUDA and HIP: planted faults are named, right programs are not accused."""

import pytest

import accelerator_graph as ag
from accelerator_graph._core import current_stream
from accelerator_graph.testing.works import work_of
from diagnosis.accusing import accusation
from diagnosis.device_programs import FAULTS, RIGHT

BACKENDS = [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("cuda", "hip")]


@pytest.fixture(params=BACKENDS)
def work(request):
    with ag.Stream(backend=request.param):
        yield work_of(request.param)()
    current_stream._thread.streams.clear()  # which the thread would keep until the process ends


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(work, name):
    make, cause = FAULTS[name]
    assert accusation(make, work).report.cause == cause


@pytest.mark.promise("no-wrong-accusation")
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_is_not_accused(work, name):
    args, how = RIGHT[name](work)
    try:
        report = ag.verify(*args, **how)
    finally:
        getattr(args[0], "close", int)()
    assert report.verdict == "right", report
