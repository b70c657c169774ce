"""The same with MPI: it starts the processes and tells them apart, NCCL sums inside the graphs.

Run with: mpiexec -n 2 python examples/mpi_all_reduce.py
Needs mpi4py, torch with NCCL, and one GPU for each process.
"""

import socket

import torch
import torch.distributed as dist
from mpi4py import MPI

import accelerator_graph as ag

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
device = torch.device("cuda", rank)
torch.cuda.set_device(device)

with socket.socket() as free:
    free.bind(("localhost", 0))
    meeting = world.bcast(f"tcp://localhost:{free.getsockname()[1]}")
dist.init_process_group("nccl", init_method=meeting, rank=rank, world_size=size, device_id=device)

torch.manual_seed(rank)
weight = torch.randn(1024, 1024, device=device)
x = torch.empty(1024, 1024, device=device)


def step():
    """Enqueue the product of this process and the sum of all processes' products."""
    y = x @ weight
    dist.all_reduce(y)
    return y


inputs = [torch.randn_like(x) for _ in range(3)]
eager = []
for values in inputs:
    x.copy_(values)
    eager.append(step().clone())

graph = ag.Graph()
with ag.graph(graph):
    y = step()

same = 0
for values, wanted in zip(inputs, eager, strict=True):
    x.copy_(values)
    graph.replay()
    same += torch.equal(y, wanted)
answers = world.gather(f"rank {rank}: {same} of {len(inputs)} replays identical to eager")
if rank == 0:
    print("\n".join(answers))

graph.reset()
dist.destroy_process_group()
