"""One graph over torch, CuPy and Triton: a model with dropout, a CuPy step and a Triton kernel.

Needs an NVIDIA GPU with torch, CuPy and Triton. Prints what the graph holds, and compares with eager.
"""

import cupy
import torch
import triton
import triton.language as tl

import accelerator_graph as ag


@triton.jit
def squash(values, count, BLOCK: tl.constexpr):
    """Bring values between -1 and 1."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(values + at, mask=at < count)
    tl.store(values + at, x / (1 + tl.abs(x)), mask=at < count)


model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Dropout(0.1), torch.nn.Linear(256, 64)).cuda()
x = torch.randn(128, 256, device="cuda")


@torch.no_grad()
def step():
    """Enqueue one step of all three and return where its result will be."""
    y = model(x)  # torch, with random numbers
    values = cupy.from_dlpack(y)
    values -= values.mean(axis=1, keepdims=True)  # CuPy, on the same memory
    squash[(y.numel() // 256,)](y, y.numel(), BLOCK=256)  # Triton
    return y


step()  # once eagerly: what is compiled and loaded on first use would break a capture

torch.cuda.manual_seed(7)
eager = [step().clone() for _ in range(3)]

graph = ag.Graph(keep_graph=True)
with ag.graph(graph):
    y = step()

torch.cuda.manual_seed(7)
for number, wanted in enumerate(eager):
    graph.replay()
    same = torch.equal(y, wanted)
    print(f"replay {number}: {'identical to eager, bit for bit' if same else 'DIFFERENT from eager'}")
print(f"{graph.num_nodes} nodes in one graph")
