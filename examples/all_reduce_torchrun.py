"""Matrix products and all-reduces over several GPUs, in one graph for each process.

Shows that NCCL's collectives can be captured, while its watchdog thread queries events all the time: the
default capture mode leaves other threads alone.

Needs torch with NCCL, and a GPU for each process.
Run with: torchrun --nproc-per-node=2 examples/all_reduce_torchrun.py
"""

import os
import sys
from statistics import median
from time import perf_counter

import accelerator_graph as ag

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit("This example needs torch, which is not installed.")
if "LOCAL_RANK" not in os.environ:
    sys.exit("This example needs several processes; start it with torchrun --nproc-per-node=2.")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
if not (int(os.environ["LOCAL_WORLD_SIZE"]) <= torch.cuda.device_count() and ag.is_graph_available()):
    sys.exit("This example needs a GPU for each process; see accelerator-graph info.")

torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
rank, size = dist.get_rank(), dist.get_world_size()

LAYERS, WIDTH, BATCH = 16, 1024, 64
torch.manual_seed(rank)
weights = torch.randn(LAYERS, WIDTH, WIDTH, device=device) / (WIDTH * size) ** 0.5
x = torch.randn(BATCH, WIDTH, device=device)


def compute():
    """Enqueue the layers: each sums the products of all processes."""
    y = x
    for weight in weights:
        y = y @ weight
        dist.all_reduce(y)
    return y


def measure(enqueue):
    """Run the layers several times; return the median time in us."""
    times = []
    for _ in range(51):
        torch.cuda.synchronize()
        begin = perf_counter()
        enqueue()
        torch.cuda.synchronize()
        times.append((perf_counter() - begin) * 1e6)
    return median(times)


compute()  # once eagerly: a capture can't make NCCL's connections
graph = ag.Graph()
with ag.graph(graph):
    found = compute()
x.normal_()  # new input: the results must be of the replays
expected = compute()
eager, replayed = measure(compute), measure(graph.replay)
same = ((found - expected).abs().max() <= 1e-5 * expected.abs().max()).int()
dist.all_reduce(same)
if rank == 0:
    print(f"problem     {LAYERS} layers of width {WIDTH} on each of {size} GPUs, a sum over all after each")
    print(f"backend     {graph.backend}, devices 0 to {size - 1}")
    print(f"eager       {eager:.1f} us per round")
    print(f"as a graph  {replayed:.1f} us per round")
    print(f"gain        {eager / replayed:.2f} times as fast")
    print(f"results     {'equal to 1e-5' if same == size else f'DIFFERENT on {size - same.item()} GPUs'}")

status = 0 if same == size else 1
graph.reset()  # before the group: NCCL waits for graphs that hold its work
dist.destroy_process_group()
sys.exit(status)
