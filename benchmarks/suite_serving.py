"""Many graphs in one pool, as servers capture them: one for each batch size, or for each piece of a model."""

from __future__ import annotations

from functools import partial
from time import perf_counter_ns

from _peers import torch_on_gpu

import accelerator_graph as ag

OURS = "accelerator_graph"
THEIRS = "torch.cuda.graph"
OPERATIONS = 10
EXTRA = 40  # us that a later capture of so many operations may take longer than torch's
RATIO = 1.15
LAYERS, WIDTH, HEADS = 4, 1024, 16
SIZES = range(1, 36)
PIECES = 6


def measure(plan):
    torch = torch_on_gpu(plan)
    if torch is None:
        return
    from accelerator_graph import compat

    ways = {
        THEIRS: (torch.cuda.CUDAGraph, torch.cuda.graph),
        f"{OURS}.graph": (ag.Graph, ag.graph),
        f"{OURS}.compat": (compat.CUDAGraph, compat.graph),
    }
    _later(plan, torch, ways)
    with torch.no_grad():
        _serving(plan, torch, ways)


def _later(plan, torch, ways):
    """Capture one graph after another into a pool, and keep them all."""
    x = torch.zeros(64, device="cuda")

    def work():
        for _ in range(OPERATIONS):
            x.add_(1)

    work()
    lives = {}
    for name, (graph_type, capturing) in ways.items():
        pool, kept = torch.cuda.graph_pool_handle(), []
        lives[name] = partial(_capture, graph_type, capturing, pool, work, kept)
    case = "one more graph in a pool"
    wait = torch.cuda.synchronize
    times = plan.compare_lives(case, OPERATIONS, lives, THEIRS, seconds=4, between=wait, of="operations")
    for name in lives:
        if name != THEIRS and name in times:
            more = [
                (ours["capture"] - theirs["capture"]) / 1000
                for ours, theirs in zip(times[name], times[THEIRS], strict=True)
            ]
            what = f"one more graph of {OPERATIONS} operations in a pool, {name}, more than {THEIRS}"
            plan.goal(what, more, EXTRA, unit="us")


def _capture(graph_type, capturing, pool, work, kept):
    begin = perf_counter_ns()
    graph = graph_type()
    with capturing(graph, pool=pool):
        work()
    taken = perf_counter_ns() - begin
    kept.append(graph)
    return {"capture": taken}


def _serving(plan, torch, ways):
    """Capture a transformer for every batch size: whole, and in pieces."""
    layers = [_Layer(torch) for _ in range(LAYERS)]
    sizes = SIZES[:4] if plan.quick else SIZES
    inputs = {size: torch.randn(size, 16, WIDTH, device="cuda", dtype=torch.bfloat16) for size in sizes}

    def whole(size):
        y = inputs[size]
        for layer in layers:
            y = layer.feed(layer.attend(y))

    halves = [half for layer in layers for half in (layer.attend, layer.feed)][:PIECES]
    works = {
        "a graph for each batch size": [partial(whole, size) for size in sizes],
        "a graph for each piece of a model": [
            partial(half, inputs[size]) for size in sizes for half in halves
        ],
    }
    for case, many in works.items():
        for work in many:
            work()
        torch.cuda.synchronize()
        lives = {name: partial(_capture_all, torch, *way, many) for name, way in ways.items()}
        wait = torch.cuda.synchronize
        times = plan.compare_lives(case, len(many), lives, THEIRS, seconds=8, between=wait, of="graphs")
        for name in lives:
            if name != THEIRS and name in times:
                rounds = zip(times[name], times[THEIRS], strict=True)
                ratios = [ours["captures"] / theirs["captures"] for ours, theirs in rounds]
                plan.goal(f"{len(many)} graphs, {case}, {name}, to {THEIRS}", ratios, RATIO)


def _capture_all(torch, graph_type, capturing, works):
    pool = torch.cuda.graph_pool_handle()
    kept = []
    begin = perf_counter_ns()
    for work in works:
        graph = graph_type()
        with capturing(graph, pool=pool):
            work()
        kept.append(graph)
    taken = perf_counter_ns() - begin
    for graph in kept:
        graph.reset()
    return {"captures": taken}


class _Layer:
    """Half of a transformer's layer and the other half, in bf16."""

    def __init__(self, torch):
        def made(*shape):
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / WIDTH**0.5

        self.torch = torch
        self.qkv, self.out = made(3 * WIDTH, WIDTH), made(WIDTH, WIDTH)
        self.up, self.down = made(4 * WIDTH, WIDTH), made(WIDTH, 4 * WIDTH)

    def attend(self, x):
        """Add the attention."""
        functional = self.torch.nn.functional
        batch, length, width = x.shape
        heads = functional.linear(functional.layer_norm(x, (width,)), self.qkv)
        q, k, v = heads.view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + functional.linear(y.transpose(1, 2).reshape(batch, length, width), self.out)

    def feed(self, x):
        """Add the feed-forward network."""
        functional = self.torch.nn.functional
        y = functional.linear(functional.layer_norm(x, x.shape[-1:]), self.up)
        return x + functional.linear(functional.gelu(y), self.down)
