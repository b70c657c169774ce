"""Programs for `verify` with torch: right ones, and planted faults. Each is given a device."""

import copy
import random
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional

import accelerator_graph as ag

FAULTS = {}
RIGHT = {}
WIDTH = 32


def fault(cause, *, gpu=False):
    return lambda make: FAULTS.setdefault(make.__name__, (make, cause, gpu))[0]


def right(make):
    RIGHT[make.__name__] = (make, False)
    return make


def right_on_a_gpu(make):
    RIGHT[make.__name__] = (make, True)
    return make


def x_of(device, *shape):
    torch.manual_seed(0)
    return torch.randn(*(shape or (4, WIDTH)), device=device)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.project(x).view(batch, length, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(found.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.before, self.attention, self.between = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


def without_grad(function):
    return torch.no_grad()(function)


# ---- right programs ------------------------------------------------------------------------------


@right
def a_transformer_block(device):
    return (without_grad(Block().to(device)), x_of(device, 2, 8, WIDTH)), {}


@right
def a_block_in_half_precision(device):
    return (without_grad(Block().to(device, torch.bfloat16)), x_of(device, 2, 8, WIDTH).bfloat16()), {}


@right
def dropout(device):
    return (without_grad(Block(0.3).to(device)), x_of(device, 2, 8, WIDTH)), {}


@right
def batch_norm_in_training(device):
    return (without_grad(nn.BatchNorm1d(WIDTH).to(device)), x_of(device)), {}


@right
def atomics(device):
    def f(index, values):
        return torch.zeros(16, device=device).scatter_add_(0, index, values)

    return (f, torch.randint(0, 16, (5000,), device=device), x_of(device, 5000)), {}


@right
def accumulating_with_indices(device):
    def f(index, values):
        return torch.zeros(16, device=device).index_put_((index,), values, accumulate=True)

    return (f, torch.randint(0, 16, (500,), device=device), x_of(device, 500)), {}


@right
def a_cache_with_its_position_on_the_device(device):
    cache, position = torch.zeros(4, 16, WIDTH, device=device), torch.tensor([3], device=device)

    def f(x):
        cache.index_copy_(1, position, x.unsqueeze(1))
        position.add_(1)
        return cache.sum(1)

    return (f, x_of(device)), {}


@right
def in_place_on_the_argument(device):
    def f(x):
        x.mul_(2).relu_()
        return x

    return (f, x_of(device)), {}


@right_on_a_gpu
def an_uninitialised_tail(device):
    def f(x):
        out = torch.empty(2 * x.numel(), device=device)
        out[: x.numel()] = x.flatten()
        return out

    return (f, x_of(device)), {}


@right
def an_embedding_and_a_loss(device):
    table, head = nn.Embedding(20, WIDTH).to(device), nn.Linear(WIDTH, 20).to(device)

    @without_grad
    def f(tokens, targets):
        return {"loss": functional.cross_entropy(head(table(tokens)), targets)}

    tokens = torch.randint(0, 20, (12,), device=device)
    return (f, tokens, tokens.flip(0)), {}


@right
def sorting_and_sums(device):
    def f(x):
        values, order = x.sort(dim=1)
        return values, order, x.cumsum(1), x.max(), x.softmax(1)

    return (f, x_of(device)), {}


@right
def a_masked_attention(device):
    def f(scores, mask):
        return scores.masked_fill(mask, float("-inf")).softmax(-1)

    mask = torch.ones(8, 8, dtype=torch.bool, device=device).triu(1)
    return (f, x_of(device, 8, 8), mask), {}


@right
def a_convolution(device):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU()).to(device)
    return (without_grad(net), x_of(device, 2, 3, 12, 12)), {}


@right
def views_as_results(device):
    return (lambda x: (x.t(), x[::2], (x * 2).T), x_of(device)), {}


@right
def a_generator_of_its_own(device):
    generator = torch.Generator(device)
    return (lambda x: x + torch.randn(x.shape, device=device, generator=generator), x_of(device)), {}


@right
def gradients(device):
    weight = x_of(device, WIDTH).requires_grad_()

    def f(x):
        return torch.autograd.grad((weight * x).tanh().sum(), weight)[0]

    return (f, x_of(device)), {}


@right
def a_step_of_training(device):
    net = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, 2)).to(device)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=True)

    def f(x):
        optimizer.zero_grad(set_to_none=False)
        loss = net(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return (f, x_of(device)), {}


@right_on_a_gpu
def a_step_of_adam(device):
    net = nn.Linear(WIDTH, 2).to(device)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, capturable=True)

    def f(x):
        optimizer.zero_grad(set_to_none=False)
        net(x).square().sum().backward()
        optimizer.step()

    return (f, x_of(device)), {}


@right_on_a_gpu
def a_step_of_a_recurrent_net_with_dropout(device):
    net = nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=0.3).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad(set_to_none=True)
        loss = net(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return (step, x_of(device, 5, 3, WIDTH)), {}


@right_on_a_gpu
def two_streams_that_are_joined(device):
    side = torch.cuda.Stream()

    def f(x):
        here = torch.cuda.current_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            y = x.square()
        z = x.neg()
        here.wait_stream(side)
        y.record_stream(here)
        return y + z

    return (f, x_of(device, 1 << 16)), {}


@right_on_a_gpu
def autocast(device):
    net = Block().to(device)

    @without_grad
    def f(x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return net(x)

    return (f, x_of(device, 2, 8, WIDTH)), {}


@right
def a_graph_of_the_callers(device):
    net, x = nn.Linear(WIDTH, WIDTH).to(device), x_of(device)
    with torch.no_grad():
        net(x)
        with ag.graph(ag.Graph()) as graph:
            y = net(x)
    return (graph, x), {"outputs": y, "reference": without_grad(net)}


# ---- faults --------------------------------------------------------------------------------------


@fault("frozen")
def a_counter_is_a_number(device):
    counter = SimpleNamespace(step=1)

    def f(x):
        counter.step += 1
        return x * counter.step

    return (f, x_of(device)), {}


@fault("frozen")
def the_learning_rate_is_a_number(device):
    net = nn.Linear(WIDTH, 2).to(device)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def f(x):
        optimizer.zero_grad(set_to_none=False)
        net(x).square().sum().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.5

    return (f, x_of(device)), {}


@fault("frozen")
def the_position_in_the_cache_is_a_number(device):
    cache, position = torch.zeros(4, 16, WIDTH, device=device), SimpleNamespace(at=0)

    def f(x):
        cache[:, position.at] = x
        position.at += 1
        return cache.sum(1)

    return (f, x_of(device)), {}


@fault("stale_address")
def the_cache_grows(device):
    cache = SimpleNamespace(rows=torch.ones(4, WIDTH, device=device))

    def f(x):
        cache.rows = cache.rows + x
        return cache.rows * 2

    return (f, x_of(device)), {}


@fault("stale_address")
def the_weight_was_moved(device):
    net, x = nn.Linear(WIDTH, WIDTH).to(device), x_of(device)
    with torch.no_grad():
        net(x)
        with ag.graph(ag.Graph()) as graph:
            y = net(x)
    graph.retain(net.weight.data)
    net.weight.data = net.weight.data.clone()
    return (graph, x), {"outputs": y, "reference": without_grad(net)}


@fault("stale_address")
def the_argument_is_another_tensor(device):
    net, x = nn.Linear(WIDTH, WIDTH).to(device), x_of(device)
    with torch.no_grad():
        net(x)
        with ag.graph(ag.Graph()) as graph:
            y = net(x)
    graph.retain(x)
    return (graph, x.clone()), {"outputs": y, "reference": without_grad(net)}


@fault("not_written")
def the_output_is_another_tensor(device):
    net, x = nn.Linear(WIDTH, WIDTH).to(device), x_of(device)
    with torch.no_grad():
        y = net(x)
        with ag.graph(ag.Graph()) as graph:
            graph.retain(net(x))
    return (graph, x), {"outputs": copy.deepcopy(y), "reference": without_grad(net)}


@fault("random_repeats")
def a_random_number_of_python(device):
    return (lambda x: x * random.random(), x_of(device)), {}


@contextmanager
def on_the_default_stream():
    """Work there, in order with the current stream's as long as that is not captured."""
    here, default = torch.cuda.current_stream(), torch.cuda.default_stream()
    eager = not torch.cuda.is_current_stream_capturing()
    if eager:
        default.wait_stream(here)
    with torch.cuda.stream(default):
        yield
    if eager:
        here.wait_stream(default)


@fault("not_written", gpu=True)
def the_default_stream_writes_the_output(device):
    def f(x):
        out, other = torch.empty_like(x), x + 1
        with on_the_default_stream():
            out.fill_(3)
        return out, other

    return (f, x_of(device)), {}


@fault("not_written", gpu=True)
def the_default_stream_clears_the_output(device):
    def f(x):
        out = torch.empty_like(x)
        with on_the_default_stream():
            out.zero_()
        return out.add_(x)

    return (f, x_of(device)), {}


@fault("not_written", gpu=True)
def the_default_stream_updates_the_state(device):
    mean = torch.zeros(WIDTH, device=device)

    def f(x):
        y = x * 2
        with on_the_default_stream():
            mean.add_(1)
        return y

    return (f, x_of(device)), {}


@fault("stale_address", gpu=True)
def what_the_graph_reads_was_freed(device):
    x = x_of(device)
    weight = x_of(device)
    with ag.graph(ag.Graph()) as graph:
        y = x * weight
    del weight
    torch.manual_seed(0)
    values = torch.randn(4, WIDTH, device=device).tolist()

    def reference(x):
        return x * torch.tensor(values, device=device)

    return (graph, x), {"outputs": y, "reference": reference}


@fault("race", gpu=True)
def a_stream_is_not_waited_for(device):
    side, shared = torch.cuda.Stream(), torch.zeros(1 << 10, device=device)

    def f(x):
        """Copy 64 times, beside kernels so small that the GPU runs them and the copies at once."""
        here = torch.cuda.current_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            for i in range(300):
                torch.mul(x, i + 1, out=shared)
        if not torch.cuda.is_current_stream_capturing():
            here.wait_stream(side)
        found = torch.stack([shared.clone() for _ in range(64)])
        here.wait_stream(side)
        return found

    return (f, x_of(device, 1 << 10)), {"rounds": 1}


@fault("beside_streams", gpu=True)
def a_workspace_belongs_to_a_stream(device):
    workspaces = {}

    def f(x):
        key = torch.cuda.current_stream().cuda_stream
        if key not in workspaces:
            workspaces[key] = torch.zeros_like(x)
        workspace = workspaces[key]
        workspace.zero_()
        for _ in range(40):
            workspace.add_(x)
        return workspace.clone()

    return (f, x_of(device, 1 << 20)), {"rounds": 1}
