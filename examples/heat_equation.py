"""The heat equation on a plate, over which a laser moves, with a kernel of one's own.

Shows how to launch a kernel on a stream, on the CPU and on a GPU of NVIDIA or AMD, and how a graph gets new
input: the kernel reads the laser's place from memory, and each frame copies a new place there.

Needs NumPy; on a GPU also CuPy; for the picture matplotlib.
Run with: python examples/heat_equation.py [--backend cpu] [-o heat.png]
"""

import argparse
import sys
from statistics import median
from time import perf_counter

import accelerator_graph as ag

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--backend", choices=("cpu", "cuda", "hip"), help="by default the best one available")
parser.add_argument("--size", type=int, help="points along each side of the plate")
parser.add_argument("--frames", type=int, help="places of the laser")
parser.add_argument("-o", "--output", help="write a picture of the temperature to this file")
options = parser.parse_args()
try:
    import numpy as np

    if options.output:
        from matplotlib import pyplot as plt
    stream = ag.Stream(backend=options.backend)
    if stream.backend == "cpu":
        xp = np
    else:
        import cupy as xp
except ImportError as error:
    sys.exit(f"This example needs {error.name}, which is not installed.")
except ag.BackendError as error:
    sys.exit(f"This example can't run here: {error}")
if stream.backend not in ("cpu", "cuda", "hip"):
    sys.exit(f"This example can't run on backend {stream.backend!r}; name another one with --backend.")

size = options.size or (64 if xp is np else 512)
frames = options.frames or 3 * size
STEPS = 10  # of a frame: an even number, so that each frame ends on the grid where it began
SOURCE = r"""
extern "C" __global__ void heat(const double *now, double *next, const double *laser, int size)
{
    int x = 1 + blockIdx.x * blockDim.x + threadIdx.x, y = 1 + blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= size - 1 || y >= size - 1) return;
    int i = y * size + x;
    double around = now[i - 1] + now[i + 1] + now[i - size] + now[i + size];
    double dx = x - laser[0], dy = y - laser[1];
    next[i] = 0.9999 * (now[i] + 0.05 * (around - 4 * now[i])) + exp(-(dx * dx + dy * dy) / 8);
}
"""


def heat(now, after, laser, size):
    """Do what the kernel does, with NumPy."""
    here, around = now[1:-1, 1:-1], now[1:-1, :-2] + now[1:-1, 2:] + now[:-2, 1:-1] + now[2:, 1:-1]
    x, y = np.exp(-((np.arange(1, size - 1) - laser[:, None]) ** 2) / 8)
    after[1:-1, 1:-1] = 0.9999 * (here + 0.05 * (around - 4 * here)) + y[:, None] * x


def steps():
    """Enqueue the steps of a frame."""
    for step in range(STEPS):
        now, after = grids[step % 2], grids[(step + 1) % 2]
        stream.launch(kernel, now, after, laser, np.int32(size), **geometry)


def solve(frame):
    """Solve the equation several times; return the temperature, and the median time of a step in us."""
    times = []
    for _ in range(5):
        stream.fill(grids, 0)
        stream.synchronize()
        begin = perf_counter()
        for place in path:
            stream.copy(laser, place)
            frame()
        stream.synchronize()
        times.append((perf_counter() - begin) / len(path) / STEPS * 1e6)
    return grids[0].copy(), median(times)


with stream:  # also CuPy's current stream
    kernel, geometry = heat, {}
    if xp is not np:
        compiled = xp.RawKernel(SOURCE, "heat")
        kernel, geometry = compiled.kernel.ptr, {"grid": (-(-size // 32), -(-size // 8)), "block": (32, 8)}
    turn = np.linspace(0, 2 * np.pi, frames)
    path = xp.asarray(size * (0.5 + 0.36 * np.stack([np.sin(3 * turn), np.sin(2 * turn)], axis=1)))
    grids, laser = xp.zeros((2, size, size)), xp.zeros(2)

    expected, eager = solve(steps)
    with ag.Graph() as graph:
        steps()
    found, replayed = solve(graph.bind())
    same = bool((found == expected).all())

print(f"problem     {size} x {size} points, {frames} frames of {STEPS} steps")
print(f"backend     {stream.backend}, device {stream.device}")
print(f"eager       {eager:.1f} us per step")
print(f"as a graph  {replayed:.1f} us per step")
print(f"gain        {eager / replayed:.2f} times as fast")
print(f"results     {'equal, bit for bit' if same else 'DIFFERENT'}")
if options.output:
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    shown = axes.imshow(found if xp is np else found.get(), cmap="inferno", norm="symlog", origin="lower")
    bar = figure.colorbar(shown, ticks=[0, 1, 3, 10, 30], format="%d")
    bar.set_label("temperature", color="gray")  # legible on white and on black
    bar.ax.tick_params(colors="gray")
    bar.outline.set_visible(False)
    axes.set_axis_off()
    figure.savefig(options.output, transparent=True, dpi=80)
sys.exit(0 if same else 1)
