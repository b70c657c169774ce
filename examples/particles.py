"""Particles around three stars, in CuPy's array expressions.

Shows that ordinary CuPy code can be captured as it stands: its thirty small kernels, its reductions, and its
temporary arrays, whose memory belongs to the graph.

Needs CuPy, and a GPU of NVIDIA's or AMD's.
Run with: python examples/particles.py
"""

import argparse
import sys
from statistics import median
from time import perf_counter

import accelerator_graph as ag

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--particles", type=int, default=50_000)
parser.add_argument("--steps", type=int, default=500)
options = parser.parse_args()
try:
    import cupy
except ImportError:
    sys.exit("This example needs CuPy, which is not installed.")
if not (cupy.is_available() and ag.is_graph_available()):
    sys.exit("This example needs a GPU that CuPy can use; see accelerator-graph info.")

DURATION = 0.002  # of a step
STARS = ((0.6, 0.0), (-0.4, 0.5), (-0.3, -0.6))


def step():
    """Enqueue a step: the pull of all stars, the motion, and the walls that turn particles back."""
    pull = 0
    for star in stars:
        way = star - place
        square = (way * way).sum(axis=1, keepdims=True) + 0.01
        pull += way / (square * cupy.sqrt(square))
    velocity[:] += DURATION * pull
    place[:] += DURATION * velocity
    velocity[:] = cupy.where(abs(place) > 1, -velocity, velocity)
    cupy.clip(place, -1, 1, out=place)


def simulate(advance):
    """Simulate several times; return all places and velocities, and the median time of a step in us."""
    times = []
    for _ in range(5):
        place[:] = first
        velocity[:] = 0
        stream.synchronize()
        begin = perf_counter()
        for _ in range(options.steps):
            advance()
        stream.synchronize()
        times.append((perf_counter() - begin) / options.steps * 1e6)
    return cupy.concatenate((place, velocity)), median(times)


with ag.Stream() as stream:  # also CuPy's current stream
    spread = cupy.arange(2 * options.particles, dtype="f8").reshape(-1, 2)
    first = (cupy.sin(spread * spread) * 0.9).astype("f4")
    place, velocity = cupy.empty_like(first), cupy.empty_like(first)
    stars = [cupy.asarray(star, dtype="f4") for star in STARS]

    expected, eager = simulate(step)  # also compiles all kernels, which a capture can't do
    with ag.Graph() as graph:
        step()
    found, replayed = simulate(graph.bind())
    same = bool((found == expected).all())

print(f"problem     {options.particles} particles, {options.steps} steps of {graph.num_nodes} nodes")
print(f"backend     {stream.backend}, device {stream.device}")
print(f"eager       {eager:.1f} us per step")
print(f"as a graph  {replayed:.1f} us per step")
print(f"gain        {eager / replayed:.2f} times as fast")
print(f"results     {'equal, bit for bit' if same else 'DIFFERENT'}")
sys.exit(0 if same else 1)
