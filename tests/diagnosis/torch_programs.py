"""Programs for `verify` with torch: right ones, and planted faults. Each is given a device."""

import copy
import random
from contextlib import contextmanager
from queue import SimpleQueue
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


def right_model(make):
    """Note a small model, which is given a device and returns a module and its input."""

    def program(device):
        torch.manual_seed(3)
        net, x = make(device)
        return (without_grad(net.to(device).eval()), x.to(device)), {}

    program.__name__ = make.__name__
    return right(program)


@right_model
def a_perceptron(device):
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, 8), nn.Softmax(-1)), x_of(device)


@right_model
def a_convolutional_network(device):
    block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU6())
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), block, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    return net, x_of(device, 2, 3, 16, 16)


@right_model
def an_autoencoder(device):
    net = nn.Sequential(nn.Conv2d(3, 8, 2, stride=2), nn.SiLU(), nn.ConvTranspose2d(8, 3, 2, stride=2))
    return net, x_of(device, 2, 3, 8, 8)


@right_model
def a_transformer_encoder(device):
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), x_of(device, 2, 8, WIDTH)


@right_model
def multi_head_attention(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x)

    return Net(), x_of(device, 2, 8, WIDTH)


@right_model
def a_state_space(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.decay, self.gate = nn.Parameter(torch.rand(WIDTH)), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            state, found = torch.zeros_like(x[:, 0]), []
            for step in x.unbind(1):
                state = torch.exp(-self.decay) * state + step
                found.append(state)
            return torch.stack(found, 1) * functional.silu(self.gate(x))

    return Net(), x_of(device, 2, 8, WIDTH)


@right_model
def patches_of_a_picture(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.block = nn.Conv2d(3, WIDTH, 4, stride=4), Block()
            self.place = nn.Parameter(torch.randn(16, WIDTH))

        def forward(self, x):
            return self.block(self.patches(x).flatten(2).transpose(1, 2) + self.place).mean(1)

    return Net(), x_of(device, 2, 3, 16, 16)


@right_model
def a_mixture_of_experts(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(WIDTH, 4)
            self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

        def forward(self, x):
            weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
            every = torch.stack([expert(x) for expert in self.experts], 1)
            picked = every.gather(1, chosen.unsqueeze(-1).expand(-1, -1, WIDTH))
            return (picked * weights.unsqueeze(-1)).sum(1), chosen

    return Net(), x_of(device)


@right_model
def a_recurrent_cell(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(WIDTH, 16)

        def forward(self, x):
            state = x.new_zeros(x.shape[0], 16), x.new_zeros(x.shape[0], 16)
            for _ in range(3):
                state = self.cell(x, state)
            return state

    return Net(), x_of(device)


@right
def a_step_of_training_with_new_gradients(device):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(WIDTH, 16), nn.LayerNorm(16), nn.Linear(16, 2)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def f(x):
        loss = functional.mse_loss(net(x), x[:, :2])
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return (f, x_of(device)), {}


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


@fault("not_written", gpu=True)
def the_default_stream_writes_beside_a_busy_stream(device):
    default = torch.cuda.default_stream()

    def f(x):
        torch.cuda._sleep(20_000_000)
        out = torch.empty_like(x)  # which verify fills behind the sleep
        with torch.cuda.stream(default):
            torch.mul(x, 2, out=out)
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream().wait_stream(default)
        return out

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


@fault("stale_address")
def the_weight_gets_other_memory(device):
    net = nn.Linear(WIDTH, 2).to(device)

    @without_grad
    def f(x):
        net.weight.data = net.weight.data * 0.5
        return net(x)

    return (f, x_of(device)), {}


@fault("stale_address")
def a_buffer_gets_other_memory(device):
    mean = torch.ones(WIDTH, device=device)

    def f(x):
        mean.data = mean.data * 0.5
        return x * mean

    return (f, x_of(device)), {}


@fault("frozen")
def a_learning_rate_follows_a_schedule(device):
    net = nn.Linear(WIDTH, 2).to(device)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def f(x):
        optimizer.zero_grad(set_to_none=False)
        net(x).square().sum().backward()
        optimizer.step()
        schedule.step()

    return (f, x_of(device)), {}


@fault("frozen")
def a_layer_is_left_out_every_second_time(device):
    class Skipping(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other, self.calls = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), [0]

        def forward(self, x):
            self.calls.append(0)
            return self.one(x) if len(self.calls) % 2 else self.other(self.one(x))

    return (without_grad(Skipping().to(device)), x_of(device)), {}


@fault("frozen")
def a_cache_grows_in_a_list(device):
    keys = []

    def f(x):
        keys.append(1)
        return x * len(keys)

    return (f, x_of(device)), {}


@fault("random_repeats")
def a_generator_of_pythons_own_class(device):
    generator = random.Random(1)
    return (lambda x: x * generator.random(), x_of(device)), {}


@fault("not_written", gpu=True)
def a_pinned_buffer_out_of_sight_is_filled_at_once(device):
    buffers = SimpleQueue()
    buffers.put(torch.zeros(WIDTH).pin_memory())

    def f(x):
        staging = buffers.get()
        buffers.put(staging)
        staging.copy_(x)
        return staging.to(device, non_blocking=True) * 2

    torch.manual_seed(0)
    return (f, torch.randn(WIDTH)), {}
