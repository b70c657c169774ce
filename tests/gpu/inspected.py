"""Graphs that are described, drawn and profiled on a GPU, for the record.

python tests/gpu/inspected.py block [-o FOLDER]    a transformer's block of torch, labelled by module
python tests/gpu/inspected.py solver [-o FOLDER]   the demo's solver, labelled by step
python tests/gpu/inspected.py costs                what labels and descriptions cost

With -o, the pages, the trace and the description are written into that folder, too; with --kernels, the
vendor's profiler times single kernels.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import accelerator_graph as ag


def block() -> ag.Graph:
    """Capture a transformer's block in bfloat16: 8 sequences of 512 tokens, 2048 wide."""
    import torch
    from torch import Tensor, nn
    from torch.nn.functional import scaled_dot_product_attention, silu

    def beside(work: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        """Enqueue work on a forked stream; return its result, and the join."""
        here, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            result = work()
        return result, lambda: here.wait_stream(side)

    class Attention(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
            self.heads = heads

        def forward(self, x: Tensor) -> Tensor:
            value, join = beside(lambda: self.value(x))
            query, key = self.query(x), self.key(x)
            join()
            split = [each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (query, key, value)]
            mixed = scaled_dot_product_attention(*split, is_causal=True)
            return self.out(mixed.transpose(1, 2).flatten(2))

    class Gated(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.gate, self.up = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, x: Tensor) -> Tensor:
            gate, join = beside(lambda: silu(self.gate(x)))
            up = self.up(x)
            join()
            return self.down(gate * up)

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention, self.mlp = Attention(width, heads), Gated(width)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    model = Block(2048, 16).to("cuda", torch.bfloat16).eval()
    x = torch.randn(8, 512, 2048, device="cuda", dtype=torch.bfloat16)
    graph = ag.Graph(keep_graph=True)
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()), ag.label_modules(model):
        for _ in range(3):
            model(x)
        torch.cuda.synchronize()
        with graph:
            graph.retain((model, x, model(x)))
    return graph


def solver() -> ag.Graph:
    """Capture the demo's solver on a plate of 4096 x 4096 points, each pair of steps labelled."""
    from accelerator_graph._demo import enqueue, initial_state
    from accelerator_graph._demo.cuda import CudaPlate

    size = 4096
    stream = ag.Stream(backend="cuda")
    side = ag.Stream(like=stream)
    plate = CudaPlate(stream, initial_state(size), size)
    enqueue(plate, size, 2, stream, side)
    graph = ag.Graph(keep_graph=True)
    with stream, graph:
        for pair in range(10):
            with ag.label(f"steps {2 * pair} and {2 * pair + 1}"):
                enqueue(plate, size, 2, stream, side)
    graph.retain((plate, side))
    return graph


def report(name: str, graph: ag.Graph, folder: Path | None, *, kernels: bool) -> None:
    """Print what is in a graph, and where its time goes."""
    description, profile = graph.describe(), graph.profile(100, kernels=kernels)
    assert profile.with_events is not None
    for title, text in (("What is in it", description), ("Where the time goes", profile)):
        print(f"# {title}\n\n```text\n{text}\n```\n")
    print(f"With events: {profile.with_events / profile.median:.1%} of a plain replay.\n")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.trace.json").write_text(profile.to_trace(), encoding="utf-8")
        graph.debug_dump(folder / f"{name}.json")
        graph.debug_dump(folder / f"{name}.html", profile=profile)


def costs() -> None:
    """Print what a label costs in a capture, with how many nodes it grows, and what a description costs."""
    import torch

    cell = torch.zeros(256, device="cuda")
    memory = cell.data_ptr()
    stream = ag.Stream(backend="cuda")
    print("| nodes | a label in the capture | the same outside | `describe()` | a node | `profile(1)` |")
    print("| --- | --- | --- | --- | --- | --- |")
    for count in (100, 1000, 10_000):
        with stream, ag.Graph(keep_graph=True) as graph:
            for _ in range(count):
                stream.fill(memory, 1, nbytes=64)
            labelled = median(_label(stream, memory) for _ in range(50))
            plain = median(_plain(stream, memory) for _ in range(50))
        outside = _outside()
        begin = perf_counter()
        nodes = len(graph.describe().nodes)
        described = perf_counter() - begin
        graph.instantiate()
        begin = perf_counter()
        graph.profile(1)
        profiled = perf_counter() - begin
        each = described / nodes
        cells = (f"{nodes:,}", _us(labelled - plain), _us(outside), _ms(described), _us(each), _ms(profiled))
        print(f"| {' | '.join(cells)} |")


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _label(stream: ag.Stream, memory: int) -> float:
    begin = perf_counter()
    with ag.label("x"):
        stream.fill(memory, 1, nbytes=64)
    return perf_counter() - begin


def _plain(stream: ag.Stream, memory: int) -> float:
    begin = perf_counter()
    stream.fill(memory, 1, nbytes=64)
    return perf_counter() - begin


def _outside(times: int = 10_000) -> float:
    label = ag.label("x")
    begin = perf_counter()
    for _ in range(times):
        with label:
            pass
    return (perf_counter() - begin) / times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["block", "solver", "costs"])
    parser.add_argument("-o", dest="folder", type=Path)
    parser.add_argument("--kernels", action="store_true")
    options: Any = parser.parse_args()
    if options.what == "costs":
        costs()
    else:
        graph = {"block": block, "solver": solver}[options.what]()
        report(options.what, graph, options.folder, kernels=options.kernels)


if __name__ == "__main__":
    main()
