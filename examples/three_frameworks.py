"""One graph over torch, CuPy and Triton: a model with dropout, a CuPy step and a Triton kernel.

Shows that the frameworks take part in one capture, and that torch draws the same random numbers as eagerly.

Needs an NVIDIA GPU with torch, CuPy and Triton.
Run with: python examples/three_frameworks.py
"""

import sys
from statistics import median
from time import perf_counter

import accelerator_graph as ag

try:
    import cupy
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    sys.exit(f"This example needs {error.name}, which is not installed.")
if not (torch.cuda.is_available() and ag.is_graph_available()):
    sys.exit("This example needs a GPU that torch can use; see accelerator-graph info.")


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


def measure(advance):
    """Advance many times; return the median time in us."""
    times = []
    for _ in range(201):
        torch.cuda.synchronize()
        begin = perf_counter()
        advance()
        torch.cuda.synchronize()
        times.append((perf_counter() - begin) * 1e6)
    return median(times)


step()  # once eagerly: a capture can't compile or load what is used for the first time
torch.cuda.manual_seed(7)
expected = [step().clone() for _ in range(3)]

graph = ag.Graph()
with ag.graph(graph):
    y = step()
torch.cuda.manual_seed(7)
same = 0
for wanted in expected:
    graph.replay()
    same += torch.equal(y, wanted)
eager, replayed = measure(step), measure(graph.replay)

print(f"problem     {graph.num_nodes} nodes of three frameworks in one graph")
print(f"backend     {graph.backend}, device {graph.device}")
print(f"eager       {eager:.1f} us per step")
print(f"as a graph  {replayed:.1f} us per step")
print(f"gain        {eager / replayed:.2f} times as fast")
print(f"results     {'equal, bit for bit' if same == 3 else f'DIFFERENT in {3 - same} of 3 replays'}")
sys.exit(0 if same == 3 else 1)
