"""The conjugate gradient method for Poisson's equation, written once for the CPU and for GPUs.

Shows a solver whose numbers all stay on the device. A graph has ten iterations, and the host replays it until
the residual is small; another one has that loop in it. The CPU runs NumPy's functions; a GPU, CuPy's.

Needs NumPy; on a GPU also CuPy; for the picture matplotlib.
Run with: python examples/conjugate_gradient.py [--backend cpu] [-o solution.svg]
"""

import argparse
import sys
from operator import call
from statistics import median
from time import perf_counter

import accelerator_graph as ag

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--backend", choices=("cpu", "cuda", "hip"), help="by default the best one available")
parser.add_argument("--size", type=int, help="unknowns along each side of the square")
parser.add_argument("-o", "--output", help="write a picture of the solution and the residual to this file")
options = parser.parse_args()
try:
    import numpy as np

    if options.output:
        from matplotlib import pyplot as plt
    stream = ag.Stream(backend=options.backend)
    run = stream.launch if stream.backend == "cpu" else call  # CuPy's functions enqueue their own work
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

size = options.size or (96 if xp is np else 256)
ITERATIONS = 10  # of a graph, and between two looks at the residual


def dot(a, b, result):
    """Enqueue a scalar product."""
    run(xp.multiply, a, b, out=scratch)
    run(xp.sum, scratch, out=result)


def iterate():
    """Enqueue some iterations for A x = b, where A is the five-point matrix."""
    for _ in range(ITERATIONS):
        run(xp.multiply, p, 4, out=q)  # q = A p
        for here, beside in (np.s_[1:], np.s_[:-1]), (np.s_[:-1], np.s_[1:]):
            run(xp.subtract, q[here], p[beside], out=q[here])
            run(xp.subtract, q[:, here], p[:, beside], out=q[:, here])
        dot(p, q, pq)
        run(xp.divide, rr, pq, out=ratio)
        run(xp.multiply, p, ratio, out=scratch)
        run(xp.add, x, scratch, out=x)
        run(xp.multiply, q, ratio, out=scratch)
        run(xp.subtract, r, scratch, out=r)
        ag.current_stream().copy(old, rr)
        dot(r, r, rr)
        run(xp.divide, rr, old, out=ratio)
        run(xp.multiply, p, ratio, out=p)
        run(xp.add, p, r, out=p)
    run(xp.greater, rr, target, out=going)


def solve(advance):
    """Solve several times; return the solution, its residuals, and the median time in us."""
    times = []
    for _ in range(5):
        stream.fill(x, 0)
        stream.copy(r, b)
        stream.copy(p, b)
        dot(r, r, rr)
        stream.fill(going, 1)
        stream.synchronize()
        residuals, begin = [float(rr) ** 0.5], perf_counter()
        while residuals[-1] > 1e-8 * residuals[0] and len(residuals) <= size:
            advance()
            stream.synchronize()
            residuals.append(float(rr) ** 0.5)
        times.append((perf_counter() - begin) * 1e6)
    return x.copy(), residuals, median(times)


with stream:  # also CuPy's current stream
    b, x, r, p, q, scratch = xp.zeros((6, size, size))
    rr, old, pq, ratio = (xp.zeros(()) for _ in range(4))
    b[size // 3, size // 4 : -(size // 4)] = 1  # two plates with opposite charges
    b[size - 1 - size // 3, size // 4 : -(size // 4)] = -1
    going, target = xp.ones((), bool), 1e-16 * (b * b).sum()
    expected, wanted, eager = solve(iterate)
    with ag.Graph() as graph:
        iterate()
    found, residuals, replayed = solve(graph.bind())
    with ag.Graph() as whole:
        ag.while_(going, iterate, limit=size)
    alone, _, once = solve(whole.replay)
    same = residuals == wanted and bool(((found == expected) & (alone == expected)).all())
print(f"problem     {size} x {size} unknowns, {(n := (len(residuals) - 1) * ITERATIONS)} iterations")
print(f"backend     {stream.backend}, device {stream.device}")
print(f"eager       {eager / n:.1f} us per iteration")
print(f"as a graph  {replayed / n:.1f} us per iteration in {n // ITERATIONS} replays, {once / n:.1f} in one")
print(f"gain        {eager / replayed:.2f} times as fast, {eager / once:.2f} with the loop in the graph")
print(f"results     {'equal, bit for bit' if same else 'DIFFERENT'}")
if options.output:
    names = ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color")
    plt.rcParams.update(dict.fromkeys(names, "gray"))  # legible on white and on black
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    left.imshow(potential := found if xp is np else found.get(), cmap="RdBu_r")
    left.contour(potential, levels=16, colors="gray", linewidths=0.6)
    left.set(title="the potential of two charged plates", xticks=[], yticks=[])
    done = range(0, n + 1, ITERATIONS)
    right.semilogy(done, wanted, color="tab:orange", linewidth=4, label="eager")
    right.semilogy(done, residuals, color="tab:blue", linestyle="", marker=".", label="as a graph")
    right.set(title="the residual", xlabel="iterations")
    right.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False)
    figure.savefig(options.output, transparent=True, dpi=90)
sys.exit(0 if same else 1)
