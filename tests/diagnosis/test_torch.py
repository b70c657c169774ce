"""`verify` with torch: on a GPU, and on torch's CPU build."""

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


@pytest.mark.promise("no-wrong-accusation")
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


class Moving(torch.nn.Module):
    """Gives its weight other memory in every call, and keeps all losses."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("scale", torch.ones(4))
        self.losses = []

    def forward(self, x):
        self.weight.data = self.weight.data * 0.5
        self.scale.data = self.scale.data * 0.5
        y = (x * self.weight * self.scale).sum()
        self.losses.append(y)
        return y


@pytest.mark.promise("verify-puts-everything-back")
@pytest.mark.parametrize("production", [False, True])
def test_the_memory_of_tensors_is_put_back(device, production):
    model, x = Moving().to(device), torch.ones(4, device=device)
    memory = model.weight.data_ptr(), model.scale.data_ptr()
    if production:
        model.weight.requires_grad_(False)
        f = ag.graphed(model, verify="first", warmup=0)
        with torch.no_grad(), pytest.raises(ag.VerificationError) as raised:
            f(x)
        assert len(model.losses) == 1  # of the capture
    else:
        with torch.no_grad(), pytest.raises(ag.VerificationError) as raised:
            ag.verify(model, x)
        assert model.losses == []
        assert (model.weight.data_ptr(), model.scale.data_ptr()) == memory
        assert model.weight.tolist() == model.scale.tolist() == [1.0] * 4
    assert raised.value.report.cause == "stale_address"


def test_gradients_are_put_back(device):
    net, x = torch.nn.Linear(4, 2).to(device), torch.ones(3, 4, device=device)

    def f(x):
        net.zero_grad(set_to_none=True)
        net(x).square().sum().backward()
        return net.weight.grad + 0

    assert ag.verify(f, x).verdict == "right"
    assert net.weight.grad is net.bias.grad is None
