"""Which call breaks a capture of torch's own work, by torch's CPU build."""

import contextlib
import inspect

import pytest
import torch

import accelerator_graph as ag
from accelerator_graph.diagnosis._tracing import places
from diagnosis.planted import broken_by, marked
from torch_cpu.framework import taking_part

pytestmark = [pytest.mark.needs("torch"), pytest.mark.usefixtures("answered")]


@pytest.fixture(autouse=True)
def stream(monkeypatch):
    monkeypatch.setattr(places, "_INSTALLED", places._INSTALLED | {"torch_cpu"})  # as if it were installed
    with taking_part(), ag.Stream(backend="cpu") as stream:
        yield stream


def reads_a_number(x):
    x.sum().item()  # breaks


def decides(x):
    if x.sum() > 0:  # breaks
        x.add_(1)


def formats(x):
    return f"the loss is {x.sum()}"  # breaks


def finds_what_is_not_zero(x):
    return torch.nonzero(x)  # breaks


def compares(x):
    return torch.equal(x, x + 1)  # breaks


def in_a_module(x):
    class Model(torch.nn.Module):
        def forward(self, x):
            if x.max() > 1:  # breaks
                x = x / 2
            return x

    return torch.nn.Sequential(torch.nn.ReLU(), Model())(x)


def in_the_backward_pass(x):
    def hook(grad):
        grad.sum().item()  # breaks

    w = torch.ones(3, requires_grad=True)
    w.register_hook(hook)
    torch.autograd.grad((w * x).sum(), w)


FAULTS = (
    reads_a_number,
    decides,
    formats,
    finds_what_is_not_zero,
    compares,
    in_a_module,
    in_the_backward_pass,
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault):
    error = broken_by(fault, ag.Graph(observe=ag.diagnose()), torch.ones(3))
    assert [(each.file, each.line) for each in error.calls] == [marked(fault)], error
    assert "waits for work that is only being recorded" in str(error)


def reads_five_numbers(x):
    total = x.sum().item()  # 1
    assert total == 3
    if (x * 2).sum() > 4:  # 2
        x = x + 1
    rows = torch.nonzero(x - 2)  # 3
    assert len(rows) == 0
    numbers = [f"{each.sum()}" for each in (x, x)]  # 4
    assert numbers == ["6.0", "6.0"]
    return x * x.mean().item()  # 5


def test_every_call_of_a_model_is_named_in_one_run():
    with pytest.raises(ag.CaptureError) as raised, ag.diagnose(all=True), ag.Graph() as graph:
        reads_five_numbers(torch.ones(3))
    lines, first = inspect.getsourcelines(reads_five_numbers)
    marks = [number for number, line in enumerate(lines, first) if "# " in line]
    assert [each.line for each in raised.value.calls] == marks, raised.value
    assert "5 calls of its code can't be captured" in str(raised.value)
    assert "The list ends" not in str(raised.value)
    assert graph.state == "empty"


def test_a_model_without_such_calls_becomes_a_graph():
    x = torch.ones(3)
    with ag.diagnose(all=True), ag.Graph() as graph:
        y = x * 2
    graph.replay()
    assert y.tolist() == [2, 2, 2]


def test_a_training_step_is_not_accused():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)

    def step():
        optimizer.zero_grad(set_to_none=False)
        model(x).square().sum().backward()
        optimizer.step()

    x = torch.randn(3, 4)
    step()
    graph = ag.Graph(observe=ag.diagnose())
    with graph:
        step()
    assert graph.num_nodes > 10
    graph.replay()


@pytest.mark.parametrize("on", [True, False], ids=["on", "by a second capture"])
def test_a_graphed_function_says_which_line(on):
    @ag.graphed(warmup=1)
    def step(x):
        y = x * 2
        if y.sum() > 3:  # breaks
            y = y + 1
        return y

    step(torch.ones(3))
    with ag.diagnose() if on else contextlib.nullcontext(), pytest.raises(ag.CaptureError) as raised:
        step(torch.ones(3))
    assert [(each.file, each.line) for each in raised.value.calls] == [marked(step.__wrapped__)]
