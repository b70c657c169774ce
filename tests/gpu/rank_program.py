"""One of two processes, each with a GPU, that capture NCCL's collectives: arguments RANK, SIZE, FOLDER."""

import io
import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import accelerator_graph as ag


def equal(rank, x, y):
    x.mul_(2)
    with ag.label("reduce"):
        dist.all_reduce(x)
    with ag.label("gather"):
        dist.all_gather_into_tensor(y, x)


def swapped(rank, x, y):
    calls = [lambda: dist.all_reduce(x), lambda: dist.all_gather_into_tensor(y, x)]
    for call in reversed(calls) if rank else calls:
        call()


def another_count(rank, x, y):
    dist.all_reduce(x[: 8 if rank else 16])


def missing(rank, x, y):
    x.add_(1)
    if not rank:
        dist.all_reduce(x)


def failed(rank, x, y):
    dist.all_reduce(x)
    if rank:
        x.sum().item()


def unseen(rank, x, y):
    """The method of the group's backend goes past the operators."""
    dist.group.WORLD._get_backend(x.device).allreduce([x]).wait()


def captured(rank, scenario):
    x, y = torch.full((16,), rank + 1.0, device="cuda"), torch.empty(32, device="cuda")
    graph = ag.Graph(keep_graph=True, observe=ag.progress())
    try:
        with ag.graph(graph):
            scenario(rank, x, y)
    except ag.CaptureError as error:
        return error, x, y
    return graph, x, y


def found(graph):
    try:
        report, error = ag.check_ranks(graph, timeout=60), ""
    except ag.RanksDisagreeError as raised:
        report, error = raised.report, str(raised)
    return {"error": error, "report": json.loads(report.to_json()), "text": str(report)}


def replays(rank, graph, x, y):
    """Return what two replays on both ranks have left in the arrays."""
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    return [x.tolist(), y.tolist()]


def hangs(rank, graph):
    """Rank 1 replays only after the watchdogs have spoken."""
    file = io.StringIO()
    if rank == 0:
        graph.replay()
    with ag.watchdog(graph, 3, file=file) as dog:
        if rank == 0:
            torch.cuda.current_stream().synchronize()
        else:
            while dog.report is None:
                time.sleep(0.01)
            graph.replay()
            torch.cuda.current_stream().synchronize()
    dog._thread.join(30)
    return {"places": [*dog.report.places.values()], "text": file.getvalue()}


def main(rank, size, folder):
    torch.cuda.set_device(rank)
    store = dist.FileStore(str(folder / "store"), size)
    dist.init_process_group(
        "nccl",
        store=store,
        rank=rank,
        world_size=size,
        device_id=torch.device("cuda", rank),
        timeout=timedelta(seconds=120),
    )
    equal(rank, torch.ones(16, device="cuda"), torch.empty(32, device="cuda"))
    torch.cuda.synchronize()
    results, graphs = {}, []
    for scenario in (swapped, another_count, missing, failed, unseen, equal):
        graph, x, y = captured(rank, scenario)
        results[scenario.__name__] = found(graph)
        graphs.append(graph)
    results["replays"] = replays(rank, graph, x, y)
    results["hang"] = hangs(rank, graph)
    for each in graphs:
        if isinstance(each, ag.Graph):
            each.reset()
    (folder / f"results-{rank}.json").write_text(json.dumps(results), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
