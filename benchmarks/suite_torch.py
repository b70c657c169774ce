"""Captures of torch's operations, compared with torch's own graphs."""

from __future__ import annotations

from itertools import repeat

from _lives import OURS, life
from _peers import torch_on_gpu

import accelerator_graph as ag

SIZES = (1, 10, 100, 1000)
THEIRS = "torch.cuda.graph"
EXTRA = 100  # us that a capture may take longer than torch's


def measure(plan):
    torch = torch_on_gpu(plan)
    if torch is None:
        return
    x = torch.zeros(64, device="cuda")
    other = torch.cuda.CUDAGraph()
    x.add_(1)
    for alone in (True, False):
        if not alone:  # torch keeps the memory that all graphs share while one of them lives
            with torch.cuda.graph(other):
                x.add_(1)
        _measure(plan, torch, x, "alone" if alone else "beside another graph")


def _measure(plan, torch, x, where):
    for n in SIZES:
        lives = {
            THEIRS: _life(torch.cuda.CUDAGraph, torch.cuda.graph, x, n),
            f"{OURS}.graph": _life(ag.Graph, ag.graph, x, n),
        }
        wait = torch.cuda.synchronize
        times = plan.compare_lives(f"torch operations, {where}:", n, lives, THEIRS, seconds=2.5, between=wait)
        if f"{OURS}.graph" not in times:
            continue
        rounds = list(zip(times[f"{OURS}.graph"], times[THEIRS], strict=True))
        if n == 1:
            more = [(a["capture"] - b["capture"]) / 1000 for a, b in rounds]
            what = f"capture of one torch operation, {where}, more than {THEIRS}"
            plan.goal(what, more, EXTRA, unit="us")
        if n == 1000:
            ratios = [a["capture"] / b["capture"] for a, b in rounds]
            plan.goal(f"capture of 1000 torch operations, {where}, to {THEIRS}", ratios, 1.05)


def _life(graph_type, capturing, x, nodes):
    def work():
        for _ in repeat(None, nodes):
            x.add_(1)

    def capture(timed):
        graph = graph_type()
        with capturing(graph):
            timed()
        return graph

    return life(work, capture, release=lambda graph: graph.reset())
