"""torch's work on the CPU, recorded: what this lane stands on, and `graphed` over it."""

import copy
import sys
from types import SimpleNamespace

import pytest
import torch

import accelerator_graph as ag
from accelerator_graph.interop._torch.verifying import random_state
from processes import execute

from .forks import popen

pytestmark = [pytest.mark.needs("torch"), pytest.mark.usefixtures("stream")]


def captured(work):
    g = ag.Graph()
    with g:
        result = work()
    return g, result


def test_a_capture_records_and_does_nothing():
    x = torch.ones(4)
    g, y = captured(lambda: x.add_(1) * 2)
    assert x.tolist() == [1.0] * 4
    for i in range(1, 4):
        g.replay()
        assert x.tolist() == [1.0 + i] * 4
        assert y.tolist() == [2.0 + 2 * i] * 4
    assert g.num_nodes == 2


class Generator:
    """As torch's of a device: a change of one makes cuDNN's dropout state stale, not that of an alias."""

    def __init__(self, shared=None):
        self.shared, self.stale = shared or [torch.tensor(7)], True

    def get_state(self):
        return self.shared[0].clone()

    def set_state(self, state):
        self.shared[0], self.stale = state.clone(), True

    def graphsafe_get_state(self):
        return Generator(self.shared)


class Cudnn:
    """torch with cuDNN's recurrent layers, whose operators are torch's own."""

    def __init__(self):
        self.generator, self.state = Generator(), None
        self.cuda, self.version = (
            SimpleNamespace(default_generators=[self.generator]),
            SimpleNamespace(hip=None),
        )

    def __getattr__(self, name):
        return getattr(torch, name)

    def zeros(self, *shape, device):
        return torch.zeros(*shape)

    def lstm(self, x, hidden, weights, *rest):
        torch.ops.aten._cudnn_rnn(
            *(x, weights, 2, None, *hidden, 2, 1, 0, 1, False, 0.5, True, False, []), self.dropout_state()
        )

    def dropout_state(self):
        if self.state is None or self.generator.stale:
            self.generator.stale = False
            torch.empty((), dtype=torch.long).random_()
            self.state = torch.full((4,), float(self.generator.shared[0]))
        return self.state

    def draw(self):
        drawn = [*self.dropout_state().tolist(), int(self.generator.shared[0])]
        self.state += 1
        self.generator.shared[0] += 4
        return drawn


def test_the_dropout_of_recurrent_layers_is_set_back_in_its_place():
    cudnn = Cudnn()
    restore = random_state(cudnn, 0, ())
    assert (cudnn.state, cudnn.generator.stale) == (None, True)  # to look has made none
    first = cudnn.draw()
    restore()
    assert cudnn.generator.stale
    assert cudnn.draw() == first
    restore, state = random_state(cudnn, 0, ()), cudnn.state
    following = [cudnn.draw() for _ in range(3)]
    restore()
    assert not cudnn.generator.stale
    assert [cudnn.draw() for _ in range(3)] == following
    assert cudnn.state is state  # which graphs go on using
    cudnn.generator.set_state(torch.tensor(9))
    restore = random_state(cudnn, 0, ())
    assert cudnn.generator.stale
    restore()
    assert cudnn.generator.stale
    assert cudnn.draw()[0] == 9


def test_without_cudnn_or_on_another_vendors_device_the_generator_is_set_back():
    cudnn = Cudnn()
    cudnn.draw()
    cudnn.version.hip = "7.2"
    restore = random_state(cudnn, 0, ())
    following = cudnn.draw()[-1]
    restore()
    assert cudnn.generator.stale
    assert cudnn.draw()[-1] == following
    cudnn.version.hip, cudnn.lstm = None, lambda *args: None
    random_state(cudnn, 0, ())()
    assert cudnn.generator.stale


def test_views_and_what_is_written_through_them():
    x = torch.zeros(2, 3)

    def work():
        y = x.t()
        y[1:].fill_(5)
        x.view(6)[:1] += 1
        return y.reshape(6)

    g, y = captured(work)
    assert x.eq(0).all()
    g.replay()
    assert x.tolist() == [[1.0, 5.0, 5.0], [0.0, 5.0, 5.0]]
    assert y.tolist() == x.t().reshape(6).tolist()


def test_results_that_are_given_and_lists():
    out, xs = torch.zeros(3), [torch.ones(3), torch.ones(3)]

    def work():
        torch.add(xs[0], xs[1], out=out)
        torch._foreach_mul_(xs, 3.0)

    g, _ = captured(work)
    assert out.eq(0).all()
    assert xs[1].eq(1).all()
    g.replay()
    g.replay()
    assert out.tolist() == [6.0] * 3
    assert xs[1].tolist() == [9.0] * 3


def test_new_memory_is_the_same_in_every_replay():
    g, (x, y) = captured(lambda: (torch.zeros(3), torch.arange(3)))
    place = x.data_ptr()
    x.fill_(9)
    g.replay()
    assert x.tolist() == [0.0] * 3
    assert y.tolist() == [0, 1, 2]
    assert x.data_ptr() == place


def test_random_numbers_go_on_at_replays_and_not_in_the_capture():
    state = torch.get_rng_state()
    g, x = captured(lambda: torch.rand(5))
    assert torch.equal(torch.get_rng_state(), state)
    found = []
    for _ in range(3):
        g.replay()
        found.append(x.tolist())
    torch.set_rng_state(state)
    assert found == [torch.rand(5).tolist() for _ in range(3)]


def test_what_waits_breaks_the_capture():
    x = torch.ones(3)
    g = ag.Graph()
    with pytest.raises(ag.CaptureError) as raised, g:
        x.sum().item()
    assert raised.value.reason == "illegal_call"
    assert x.sum().item() == 3  # nothing is recorded any more
    assert x.add_(1).tolist() == [2.0] * 3
    assert g.state == "empty"


def test_a_body_that_raises_leaves_nothing():
    x, g = torch.ones(3), ag.Graph()
    with pytest.raises(ZeroDivisionError), g:
        x.add_(1).add_(1 // 0)
    assert x.tolist() == [1.0] * 3
    assert x.add_(1).tolist() == [2.0] * 3
    assert g.state == "empty"


def test_autograd_in_a_capture():
    w = torch.tensor([2.0, 3.0], requires_grad=True)
    x = torch.ones(2)

    def work():
        [grad] = torch.autograd.grad((w * x * x).sum(), w)
        return grad

    g, grad = captured(work)
    for value in (1.0, 4.0):
        x.fill_(value)
        g.replay()
        assert grad.tolist() == [value**2] * 2
    assert w.grad is None


def test_a_training_step_in_one_graph():
    def made():
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        for p in module.parameters():
            p.grad = torch.zeros_like(p)
        return module, torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, foreach=True)

    def step(module, optimizer, x):
        optimizer.zero_grad(set_to_none=False)
        loss = module(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    (ours, optimizer), theirs = made(), made()
    x = torch.randn(3, 4)
    for both in ((ours, optimizer), theirs):  # the momentum is there before the capture
        step(*both, x)
    g, loss = captured(lambda: step(ours, optimizer, x))
    for _ in range(4):
        x.copy_(torch.randn(3, 4))
        g.replay()
        want = step(*theirs, x)
        torch.testing.assert_close(loss, want, rtol=0, atol=0)
    for one, other in zip(ours.parameters(), theirs[0].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_graphed_over_a_model(stream, outputs):
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    f = ag.graphed(copy.deepcopy(module), warmup=1, outputs=outputs)
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(3, 4)
            y = f(x)
            stream.synchronize()
            torch.testing.assert_close(y, module(x), rtol=0, atol=0)
    assert f.cache_info() == ag.CacheInfo(4, 1, 1, 0, 1, 16)


def test_graphed_draws_anew_and_writes_to_its_arguments(stream):
    @ag.graphed(warmup=0)
    def f(x, y):
        x.add_(y)
        return {"mask": torch.nn.functional.dropout(y, 0.5)}

    x, y, masks = torch.zeros(50), torch.ones(50), []
    for i in range(4):
        masks.append(f(x, y)["mask"])
        stream.synchronize()
        assert x.tolist() == [i + 1.0] * 50
    assert not any(torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])


def test_graphed_with_a_step_of_autograd(stream):
    w = torch.ones(3, requires_grad=True)

    @ag.graphed(warmup=1)
    def f(x):
        return torch.autograd.grad((w * x**2).sum(), w)[0]

    for i in range(4):
        grad = f(torch.full((3,), float(i)))
        stream.synchronize()
        assert grad.tolist() == [float(i * i)] * 3


def test_with_torch_but_no_gpu_nothing_changes():
    code = (
        "import torch, accelerator_graph as ag\n"
        "from accelerator_graph import interop\n"
        "assert not torch.cuda.is_available()\n"
        "assert [each.backend() for each in interop.loaded()] == [None]\n"
        "assert ag.current_stream(required=False) is None\n"
        "log = []\n"
        "with ag.Stream(backend='cpu') as s, ag.Graph() as g:\n"
        "    s.launch(log.append, 1)\n"
        "g.replay(); s.synchronize(); assert log == [1]\n"
        "for obj in (object(), torch.zeros(1)):\n"
        "    try: ag.Graph(stream=obj)\n"
        "    except TypeError: pass\n"
        "    else: raise AssertionError\n"
        "assert not torch.cuda.is_initialized()\n"
        "print('same')"
    )
    gone = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''; os.environ['HIP_VISIBLE_DEVICES'] = ''\n"
    done = execute([sys.executable, "-c", gone + code], timeout=120, start=popen())
    assert done.stdout.strip() == "same", done.stderr
