"""A matrix product and an all-reduce over several GPUs in one graph for each process.

Run with: torchrun --nproc-per-node=2 examples/torchrun_all_reduce.py
Needs torch with NCCL and one GPU for each process. NCCL's watchdog thread is alive all the time and queries
events while the capture goes on: the default capture mode leaves other threads alone.
"""

import os

import torch
import torch.distributed as dist

import accelerator_graph as ag

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
rank = dist.get_rank()

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
    eager.append(step().clone())  # NCCL makes its connections on first use, outside of the capture

graph = ag.Graph()
with ag.graph(graph):
    y = step()

same = 0
for values, wanted in zip(inputs, eager, strict=True):
    x.copy_(values)
    graph.replay()
    same += torch.equal(y, wanted)
answers = [""] * dist.get_world_size()
dist.all_gather_object(answers, f"rank {rank}: {same} of {len(inputs)} replays identical to eager")
if rank == 0:
    print("\n".join(answers))

graph.reset()  # before the group: NCCL waits for graphs that hold its work
dist.destroy_process_group()
