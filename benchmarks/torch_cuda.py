"""Captures and graph memory beside torch's own, in one process. Needs torch on an NVIDIA GPU.

Usage: python benchmarks/torch_cuda.py [--rounds N]
"""

import argparse
import gc
import statistics
import subprocess
import sys
from time import perf_counter_ns

import torch

import accelerator_graph as ag

SIZES = [256 * (n + 1) for n in range(50)]


def ours():
    g = ag.Graph()
    return g, ag.graph(g)


def torchs():
    g = torch.cuda.CUDAGraph()
    return g, torch.cuda.graph(g)


def capture(make, x, ops):
    """Capture so many operations; return what the whole `with` took, in us."""
    g, context = make()
    torch.cuda.synchronize()
    begin = perf_counter_ns()
    with context:
        for _ in range(ops):
            x.add_(1)
    took = (perf_counter_ns() - begin) / 1e3
    g.reset()
    return took


def captures(rounds):
    """Print how long captures take, and the ratio round by round."""
    x = torch.zeros(64, device="cuda")
    print("| operations | torch.cuda.graph, us | accelerator_graph.graph, us | ratio | more, us |")
    print("| --- | --- | --- | --- | --- |")
    for ops in (1, 1000):
        for make in (torchs, ours):
            capture(make, x, ops)
        pairs = []
        gc.disable()
        for n in range(rounds):
            order = (torchs, ours) if n % 2 else (ours, torchs)
            took = {make: capture(make, x, ops) for make in order}
            pairs.append((took[torchs], took[ours]))
        gc.enable()
        theirs, mine = (statistics.median(column) for column in zip(*pairs, strict=True))
        low, ratio, high = statistics.quantiles([b / a for a, b in pairs], n=4)
        more = statistics.median(b - a for a, b in pairs)
        print(
            f"| {ops} | {theirs:.0f} | {mine:.0f} | {ratio:.3f} ({low:.3f} to {high:.3f}) | {more:.0f} |",
            flush=True,
        )


def memory(whose):
    """Capture fifty graphs of different shapes into one pool; print what the device lost, in bytes."""
    weight = torch.randn(1024, 1024, device="cuda")
    inputs = [torch.randn(size, 1024, device="cuda") for size in reversed(SIZES)]

    def step(x):
        return torch.relu(x @ weight) @ weight

    with torch.no_grad():
        for x in inputs:
            step(x)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        pool = torch.cuda.graph_pool_handle() if whose == "torch" else ag.graph_pool_handle()
        before = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
        graphs, outputs = [], []
        for x in inputs:
            if whose == "torch":
                graphs.append(torch.cuda.CUDAGraph())
                with torch.cuda.graph(graphs[-1], pool=pool):
                    y = step(x)
            else:
                graphs.append(ag.Graph())
                with ag.graph(graphs[-1], pool):
                    y = step(x)
            outputs.append(y[:1, :1])  # a view keeps the output's memory
        torch.cuda.synchronize()
        for g, x, y in zip(graphs, inputs, outputs, strict=True):
            g.replay()
            torch.cuda.synchronize()
            assert torch.allclose(y, step(x)[:1, :1], atol=1e-2)
        torch.cuda.empty_cache()
        after = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
    print(before[0] - after[0], after[1] - before[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--memory", choices=("torch", "ours"), help="only this, for one of the two")
    options = parser.parse_args()
    if options.memory:
        memory(options.memory)
        return
    captures(options.rounds)
    print("\n| 50 graphs in one pool | device memory, MiB | of it torch's, MiB |\n| --- | --- | --- |")
    for whose in ("torch", "ours"):
        command = [sys.executable, __file__, "--memory", whose]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        device, reserved = (int(part) / 2**20 for part in answer)
        print(f"| {whose} | {device:.1f} | {reserved:.1f} |")


if __name__ == "__main__":
    main()
