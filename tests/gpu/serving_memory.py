"""Print the memory report of a serving set: a transformer at 35 batch sizes, captured into one pool.

Checks the report against what else is known: the free memory of the device before and after the captures,
what torch says of the whole pool, and the tensors that torch made in each capture. The status is 1 if it is
wrong.

Usage: python tests/gpu/serving_memory.py [--keep]
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import accelerator_graph as ag

SIZES = sorted({1, 2, 4, *range(8, 264, 8)}, reverse=True)  # the largest first
LAYERS, WIDTH, HEADS, TOKENS = 4, 1024, 16, 16
MIB = 2**20


class Tensors(TorchDispatchMode):
    """Notes where the tensors lie that torch's operators return."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: set[int] = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        found = (each for each in tree_leaves(result) if isinstance(each, torch.Tensor) and each.is_cuda)
        self.addresses.update(each.untyped_storage().data_ptr() for each in found)
        return result


def free() -> int:
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", help="keep the graphs")
    keep = parser.parse_args().keep
    layer = torch.nn.TransformerEncoderLayer(
        WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True, device="cuda", dtype=torch.bfloat16
    )
    model = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    x = torch.randn(max(SIZES), TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)
    pool = ag.graph_pool_handle()
    graphs, outputs, made = {}, {}, {}
    with torch.no_grad():
        for size in SIZES:
            model(x[:size])
        torch.cuda.empty_cache()
        before, reserved = free(), torch.cuda.memory_reserved()
        with ag.measure_memory():
            for size in SIZES:
                graph = ag.Graph(keep_graph=keep, pool=pool)
                with ag.graph(graph), Tensors() as tensors:
                    outputs[size] = model(x[:size])
                if keep:
                    graph.instantiate()
                graphs[f"batch {size}"], made[f"batch {size}"] = graph, tensors.addresses
    torch.cuda.empty_cache()
    taken, held = before - free(), torch.cuda.memory_reserved() - reserved
    report = ag.memory_report(graphs)
    print(report)
    print()
    print(graphs["batch 8"].memory())
    print()

    beside = held - (report.pools[0].held.nbytes or 0)  # the states of random generators, for example
    wrong = not 0 <= beside <= 4 * MIB
    missing = 0
    for each in report.graphs:
        for segment in each.pool.segments:
            end = segment.address + segment.nbytes
            used = any(segment.address <= address < end for address in made[each.name])
            missing += used and segment.address not in (each.touched_segments or ())
    print(f"The device's free memory fell by {taken / MIB:.1f} MiB during the captures; ", end="")
    print(f"the report accounts for {report.on_devices / MIB:.1f} MiB.")
    print(f"torch reserved {held / MIB:.1f} MiB during them, {beside / MIB:.1f} MiB of it beside the pool.")
    print(f"Segments with a tensor of a capture that the graph's row lacks: {missing}.")
    wrong |= missing > 0
    wrong |= report.on_devices > taken + 4 * MIB or report.on_devices < 0.9 * taken - 4 * MIB
    before = free()
    last = graphs.pop(f"batch {SIZES[-1]}")
    for graph in graphs.values():
        graph.reset()
    del outputs
    torch.cuda.empty_cache()
    print(f"Without all graphs but the smallest, {(free() - before) / MIB:.1f} MiB came back; ", end="")
    last.reset()
    torch.cuda.empty_cache()
    print(f"without that one as well, {(free() - before) / MIB:.1f} MiB.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
