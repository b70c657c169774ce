"""One of several processes with a process group of torch.distributed: arguments RANK, SIZE and FOLDER.

The collectives are captured on a group whose backend is torch's "fake", which communicates nothing; the ranks
compare their graphs over gloo's. Writes what `check_ranks` has found, by scenario.
"""

import io
import json
import sys
import threading
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.testing._internal.distributed.fake_pg  # which registers the backend "fake"

import accelerator_graph as ag

from .framework import taking_part


def equal(rank, x, groups):
    x.mul_(2)
    dist.all_reduce(x, group=groups["all"])
    dist.all_gather_into_tensor(torch.empty(x.numel() * 3), x, group=groups["all"])


def training(rank, x, groups):
    """The backward pass sums the gradients of all ranks, as soon as it has them."""
    weight = torch.ones(8, requires_grad=True)

    def sum_up(gradient):
        dist.all_reduce(gradient, group=groups["all"])
        return gradient

    weight.register_hook(sum_up)
    torch.autograd.grad((weight * x).sum(), weight)


def tensor_parallel(rank, x, groups):
    """Two ranks share a group that the third is not in, which has other work instead."""
    if rank < 2:
        functional.wait_tensor(functional.all_reduce(x, "sum", groups["pair"]))
    else:
        x.add_(1).mul_(3)
    dist.all_reduce(x, group=groups["all"])


def pipeline(rank, x, groups):
    if rank > 0:
        groups["all"].recv([x], rank - 1, 0)
    x.mul_(rank + 1)
    if rank < 2:
        groups["all"].send([x], rank + 1, 0)


def swapped(rank, x, groups):
    calls = [
        lambda: dist.broadcast(x, 0, group=groups["all"]),
        lambda: dist.all_reduce(x, group=groups["all"]),
    ]
    for call in reversed(calls) if rank == 2 else calls:
        call()


def another_type(rank, x, groups):
    dist.all_reduce(x.half() if rank == 1 else x * 1, group=groups["all"])


def another_count(rank, x, groups):
    functional.wait_tensor(functional.all_reduce(x[: 4 if rank == 1 else 8], "sum", groups["all"]))


def missing(rank, x, groups):
    x.add_(1)
    if rank != 0:
        dist.all_reduce(x, group=groups["all"])


def failed(rank, x, groups):
    dist.all_reduce(x, group=groups["all"])
    if rank == 2:
        x.sum().item()


SCENARIOS = (
    *(equal, training, tensor_parallel, pipeline),
    *(swapped, another_type, another_count, missing, failed),
)


def captured(rank, scenario, groups):
    graph = ag.Graph(keep_graph=True)
    try:
        with taking_part(), ag.Stream(backend="cpu"), graph:
            scenario(rank, torch.ones(8), groups)
    except ag.CaptureError as error:
        return error
    return graph


def found(graph, group):
    try:
        report, error = ag.check_ranks(graph, group, timeout=60), ""
    except ag.RanksDisagreeError as raised:
        report, error = raised.report, str(raised)
    return {"error": error, "report": json.loads(report.to_json())}


def watched(rank):
    """Wait for a replay that hangs on rank 1; return what each rank's watchdog has said."""
    begun, gate, file = threading.Event(), threading.Event(), io.StringIO()
    with ag.Stream(backend="cpu") as stream, ag.Graph(observe=ag.progress()) as graph:
        for number in range(2):
            with ag.label(f"layer {number}"):
                stream.launch(begun.set if number == 1 else str)
                stream.launch(gate.wait if rank == 1 and number == 1 else str)
    graph.replay()
    assert begun.wait(60)
    if rank != 1:
        stream.synchronize()
    dist.barrier()  # the watchdogs wait a few seconds for each other
    with ag.watchdog(graph, 1, file=file) as dog:
        while dog.report is None:
            time.sleep(0.01)
    gate.set()
    stream.synchronize()
    return file.getvalue()


def kinds(three):
    """Return what is noted of each way to ask for a collective, on one rank; `three` for one of them."""
    group, x, y = dist.new_group([0], backend="fake", use_local_synchronization=True), *torch.ones(2, 8)
    ways = {
        "all_reduce": lambda: dist.all_reduce(x, group=group),
        "asynchronous": lambda: dist.all_reduce(x, group=group, async_op=True).wait(),
        "method": lambda: group.allreduce([x]).wait(),
        "functional": lambda: functional.wait_tensor(functional.all_reduce(x, "sum", group)),
        "coalesced": lambda: dist.all_reduce_coalesced([x, y], group=group),
        "broadcast": lambda: dist.broadcast(x, 0, group=group),
        "reduce": lambda: dist.reduce(x, 0, group=group),
        "all_gather": lambda: dist.all_gather([y], x, group=group),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(y, x, group=group),
        "functional all_gather": lambda: functional.wait_tensor(functional.all_gather_tensor(x, 0, group)),
        "reduce_scatter": lambda: dist.reduce_scatter(y, [x], group=group),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(y, x, group=group),
        "gather": lambda: dist.gather(x, [y], 0, group=group),
        "scatter": lambda: dist.scatter(x, [y], 0, group=group),
        "all_to_all": lambda: dist.all_to_all([y], [x], group=group),
        "all_to_all_single": lambda: dist.all_to_all_single(y, x, group=group),
        "uneven": lambda: dist.all_to_all_single(y, x, [1, 2, 5], [1, 2, 5], group=three),
        "send": lambda: group.send([x], 0, 0),
        "recv": lambda: group.recv([x], 0, 0),
        "barrier": lambda: dist.barrier(group=group),
        "compiled": torch.compile(lambda: functional.all_reduce(x, "sum", group) + 1, backend="eager"),
    }
    ways["compiled"]()
    graphs = {name: captured(0, lambda *_, call=call: call(), {}) for name, call in ways.items()}
    return {
        name: [(each.kind, each.ranks, each.dtype, each.elements, each.peer) for each in graph.collectives]
        for name, graph in graphs.items()
    }


def main(rank, size, folder):
    warnings.simplefilter("ignore", FutureWarning)
    store = dist.FileStore(str(folder / "store"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    groups = {"all": dist.new_group(backend="fake"), "pair": dist.new_group([0, 1], backend="fake")}
    results = {each.__name__: found(captured(rank, each, groups), None) for each in SCENARIOS}
    results["watched"] = watched(rank)
    pair = dist.new_group([1, 2])
    if rank:
        results["subgroup"] = found(captured(rank, another_count, groups), pair)
    else:
        results["kinds"] = kinds(groups["all"])
    (folder / f"results-{rank}.json").write_text(json.dumps(results), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
