"""`verify` with torch: on a GPU, and on torch's build for the CPU."""

from __future__ import annotations

import os

import pytest

import accelerator_graph as ag
import lanes

pytestmark = lanes.require("torch")

import torch

from diagnosis import torch_programs as programs
from diagnosis.accusing import accusation

ON_CPU = os.environ.get(lanes.SIMULATOR) == "torch_cpu" or not torch.cuda.is_available()


def of_this_lane(gpu):
    return [pytest.mark.needs("gpu")] if gpu else []


@pytest.fixture
def device():
    torch.manual_seed(1)
    if not ON_CPU:
        torch.cuda.init()
        with torch.cuda.stream(torch.cuda.Stream()):
            yield "cuda"
        return
    from torch_cpu.framework import taking_part

    with taking_part(), ag.Stream(backend="cpu"):
        yield "cpu"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=of_this_lane(gpu)) for name, (_, _, gpu) in programs.FAULTS.items()]
)
def test_a_planted_fault_is_named(device, name):
    make, cause, _ = programs.FAULTS[name]
    assert accusation(make, device).report.cause == cause


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=of_this_lane(gpu)) for name, (_, gpu) in programs.RIGHT.items()]
)
def test_a_right_program_is_not_accused(device, name):
    args, how = programs.RIGHT[name][0](device)
    report = ag.verify(*args, **how)
    assert report.verdict == "right", report


class ScaledByHost(torch.nn.Module):
    """Takes its factor from the argument, on the host, except in a capture."""

    factor = 1.0

    def forward(self, x):
        if not ag.is_current_stream_capturing():
            self.factor = float(x.detach().sum())
        return x * self.factor


@pytest.mark.parametrize("compiled", [False, True])
def test_the_first_wrong_module_is_named(device, compiled):
    first = torch.compile(torch.nn.Linear(4, 4), backend="eager") if compiled else torch.nn.Linear(4, 4)
    net = torch.nn.Sequential(first, ScaledByHost(), torch.nn.Linear(4, 4)).to(device)
    with torch.no_grad(), pytest.raises(ag.VerificationError) as raised:
        ag.verify(net, torch.randn(2, 4, device=device))
    assert raised.value.report.where == "the output of module '1'"
