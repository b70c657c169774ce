"""Matrix products and all-reduces over several GPUs, in one graph for each process, started by MPI.

Shows how to begin where MPI starts the processes and tells them apart. NCCL does the sums, inside the graphs.

Needs mpi4py, torch with NCCL, and a GPU for each process, on one machine.
Run with: mpiexec -n 2 python examples/all_reduce_mpi.py
"""

import socket
import sys
from statistics import median
from time import perf_counter

import accelerator_graph as ag

try:
    import torch
    import torch.distributed as dist
    from mpi4py import MPI
except ImportError as error:
    sys.exit(f"This example needs {error.name}, which is not installed.")
world = MPI.COMM_WORLD
rank, size = world.rank, world.size
device = torch.device("cuda", rank)
if not (size <= torch.cuda.device_count() and ag.is_graph_available()):
    sys.exit("This example needs a GPU for each process; see accelerator-graph info.")

torch.cuda.set_device(device)
with socket.socket() as free:  # a port that rank 0 finds free, where all processes meet
    free.bind(("localhost", 0))
    meeting = world.bcast(f"tcp://localhost:{free.getsockname()[1]}")
dist.init_process_group("nccl", init_method=meeting, rank=rank, world_size=size, device_id=device)

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
same = world.allreduce(bool((found - expected).abs().max() <= 1e-5 * expected.abs().max()))
if rank == 0:
    print(f"problem     {LAYERS} layers of width {WIDTH} on each of {size} GPUs, a sum over all after each")
    print(f"backend     {graph.backend}, devices 0 to {size - 1}")
    print(f"eager       {eager:.1f} us per round")
    print(f"as a graph  {replayed:.1f} us per round")
    print(f"gain        {eager / replayed:.2f} times as fast")
    print(f"results     {'equal to 1e-5' if same == size else f'DIFFERENT on {size - same} GPUs'}")

status = 0 if same == size else 1
graph.reset()  # before the group: NCCL waits for graphs that hold its work
dist.destroy_process_group()
sys.exit(status)
