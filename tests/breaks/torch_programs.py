"""Programs of torch that can't be captured as they stand, since they read the device on the host."""

import itertools
import warnings

import numpy as np
import torch
from torch.nn import functional

import accelerator_graph as ag

WIDTH = 16


def items(tensor):
    return [each.item() for each in tensor]


class Attention(torch.nn.Module):
    """Attends to as much of each row as its length says, which it reads on the host."""

    breaks = ("Attention.attend",)

    def __init__(self, read):
        super().__init__()
        self.read = read
        self.project = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)

    def attend(self, packed, lengths):
        rows = torch.zeros_like(packed[..., :WIDTH])
        for i, length in enumerate(self.read(lengths)):
            q, k, v = packed[i, :length].chunk(3, -1)
            rows[i, :length] = torch.softmax(q @ k.T, -1) @ v
        return rows

    def inputs(self, draw):
        return draw(3, 6, WIDTH), (draw(3).abs() * 2).long().clamp(1, 6)

    @torch.no_grad()
    def step(self, x, lengths):
        return self.out(self.attend(self.project(x), lengths)).relu()


class Experts(torch.nn.Module):
    """Sends each row to the expert that it chooses: shapes depend on the data."""

    breaks = ("Experts.dispatch",)

    def __init__(self, read):
        super().__init__()
        self.gate = torch.nn.Linear(WIDTH, 4)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def rows_of(self, chosen, i):
        return (chosen == i).nonzero()[:, 0]

    def dispatch(self, x, chosen):
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = self.rows_of(chosen, i)
            y.index_add_(0, rows, expert(x[rows]))
        return y

    def inputs(self, draw):
        return (draw(12, WIDTH),)

    @torch.no_grad()
    def step(self, x):
        return self.dispatch(x.tanh(), self.gate(x).argmax(-1)) + x


class Host(torch.nn.Module):
    """Does a part of its work in NumPy, and writes an argument there now and then."""

    breaks = ("Host.summed",)

    def __init__(self, read):
        super().__init__()
        self.read = read

    def summed(self, x, count):
        values = np.array(self.read(x)).cumsum()
        if values[-1] > 0:
            count.add_(1)
        return torch.from_numpy(values.astype("f4")).to(x.device)

    def inputs(self, draw):
        return draw(WIDTH), draw(2)

    def step(self, x, count):
        return self.summed(x * 2, count) + 1


class Training(torch.nn.Module):
    """Trains, and logs the loss on the host, once behind the backward pass and once ahead of it."""

    breaks = ("Training.log",)

    def __init__(self, read):
        super().__init__()
        layers = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1)
        self.model = torch.nn.Sequential(*layers)
        self.losses = []

    def log(self, loss):
        self.losses.append(loss.item())

    def inputs(self, draw):
        return draw(5, WIDTH), draw(5)

    def step(self, x, y):
        for each in self.parameters():
            each.grad.zero_()
        loss = functional.mse_loss(self.model(x)[:, 0], y)
        self.log(loss.detach())
        loss.backward()
        self.log(loss.detach())
        with torch.no_grad():
            for each in self.parameters():
                each.sub_(each.grad, alpha=0.1)
        return loss.detach()


PROGRAMS = (Attention, Experts, Host, Training)


def check(program, device, settle, read=items):
    """Compare calls of a program, which is captured with breaks, with eager calls of another one."""
    draw = torch.Generator().manual_seed(1)
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append(program(read).to(device))
        for each in made[-1].parameters():
            each.grad = torch.zeros_like(each)
    eager, captured = made
    f = ag.graphed(captured.step, warmup=1, on_capture_error="break")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(8):
            inputs = eager.inputs(lambda *shape: torch.randn(*shape, generator=draw).to(device))
            others = [each.clone() for each in inputs]
            pairs = [(f(*inputs), eager.step(*others)), *zip(inputs, others, strict=True)]
            settle()
            assert all(itertools.starmap(torch.equal, pairs))
            for x, y in zip(captured.parameters(), eager.parameters(), strict=True):
                assert torch.equal(x, y)
    assert getattr(captured, "losses", None) == getattr(eager, "losses", None)
    assert f.cache_info() == ag.CacheInfo(5, 3, 1, 0, 1, 16)
    (message,) = [str(each.message) for each in found if "is captured with breaks" in str(each.message)]
    for name in program.breaks:
        assert name in message, message
    (recorded,) = f._cache.graphs.values()
    assert {each.name for each in recorded.graph._runner.calls} == set(program.breaks)


@torch.library.custom_op("tests_of_breaks::summed", mutates_args=())
def summed(x: torch.Tensor) -> torch.Tensor:
    """Return the sums so far, taken on the host."""
    return torch.tensor(np.array(items(x)).cumsum().astype("f4"), device=x.device)


OPERATORS = {
    "tests_of_breaks::summed": 1,
    "aten::add": 3,
    "aten::add.Tensor": 3,
    "aten::add.Scalar": 0,
    "aten::mm": 1,
}
"""How often the steps of `check_operator` call an operator."""


def check_operator(name, device, settle, observe=()):
    """Compare replays in which an operator is called with eager runs of it."""
    modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack
    x, y = (torch.arange(4.0, device=device) for _ in range(2))

    def step(x):
        x.add_(torch.relu(x) + 1)
        with torch.autocast(device, torch.bfloat16):
            z = torch.mm(x[:, None], x[None])
        return (summed(x) if "summed" in name else x * 3) + torch.add(z[0], x, alpha=2)

    before = modes()
    graph = ag.Graph(keep_graph=True, observe=observe)
    with torch.no_grad(), ag.graph(graph, breaks=[name]):
        found = step(x)
    for _ in range(4):
        settle()
        with torch.no_grad():
            assert torch.equal(found, step(y))
        x.mul_(-0.5), y.mul_(-0.5)
        graph.replay()
    kinds = [node.kind for node in graph.describe().nodes]
    assert kinds.count("eager") == OPERATORS[name]
    assert modes() == before
