"""The same without torch: MPI starts the processes, CuPy multiplies, NCCL sums, all in one graph each.

Run with: mpiexec -n 2 python examples/mpi_all_reduce.py
Needs mpi4py and CuPy with NCCL, and one GPU for each process.
"""

import cupy
from cupy.cuda import nccl
from mpi4py import MPI

import accelerator_graph as ag

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
cupy.cuda.Device(rank).use()
communicator = nccl.NcclCommunicator(size, world.bcast(nccl.get_unique_id() if rank == 0 else None), rank)

random = cupy.random.RandomState(rank)
weight = random.standard_normal((1024, 1024), dtype=cupy.float32)
x = cupy.empty_like(weight)
y = cupy.empty_like(weight)


def step():
    """Enqueue the product of this process and the sum of all processes' products."""
    cupy.matmul(x, weight, out=y)
    stream = cupy.cuda.get_current_stream().ptr
    communicator.allReduce(y.data.ptr, y.data.ptr, y.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream)


inputs = [random.standard_normal(x.shape, dtype=cupy.float32) for _ in range(3)]
eager = []
for values in inputs:
    x[...] = values
    step()
    eager.append(y.copy())

graph = ag.Graph()
with ag.graph(graph):
    step()

same = []
for values, wanted in zip(inputs, eager, strict=True):
    x[...] = values
    graph.replay()
    same.append(bool((y == wanted).all()))
print(f"rank {rank}: {sum(same)} of {len(same)} replays identical to eager", flush=True)

graph.reset()
communicator.destroy()
