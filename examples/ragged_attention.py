"""A model whose attention reads the lengths of its sequences on the host, which no graph can hold.

Shows a capture with breaks: the attention is marked with `eager`, so each replay calls it between two
segments, and everything else is in the graph. It writes into an array of the program, so nothing is copied.
The lengths differ from step to step. On the CPU, the stream runs NumPy's functions; on a GPU, CuPy enqueues
its own.

Needs NumPy; on a GPU also CuPy.
Run with: python examples/ragged_attention.py [--backend cpu]
"""

import argparse
import sys
from operator import call
from statistics import median
from time import perf_counter

import accelerator_graph as ag

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--backend", choices=("cpu", "cuda", "hip"), help="by default the best one available")
parser.add_argument("--size", type=int, default=64, help="the width of the model")
options = parser.parse_args()
try:
    import numpy as np

    stream = ag.Stream(backend=options.backend)
    if stream.backend == "cpu":
        xp, run = np, stream.launch
    else:
        import cupy as xp

        run = call  # CuPy's functions enqueue their work themselves
except ImportError as error:
    sys.exit(f"This example needs {error.name}, which is not installed.")
except ag.BackendError as error:
    sys.exit(f"This example can't run here: {error}")
if stream.backend not in ("cpu", "cuda", "hip"):
    sys.exit(f"This example can't run on backend {stream.backend!r}; name another one with --backend.")

SEQUENCES, TOKENS, LAYERS, STEPS = 8, 16, 6, 20
width = options.size


@ag.eager
def attention(h, lengths, out):
    """Let the tokens of each sequence attend to each other, as many as it has."""
    stream.synchronize()  # the host reads the lengths
    out[...] = 0
    for i, length in enumerate(lengths.tolist()):
        tokens = h[i, :length]
        scores = xp.exp((tokens[:, None] * tokens).sum(2) / width)
        out[i, :length] = (scores[:, :, None] * tokens).sum(1) / scores.sum(1, keepdims=True)
    return out


def forward():
    """Enqueue all layers."""
    for weight, h, attended in zip(weights, hidden, attentions, strict=True):
        run(xp.multiply, x, weight, out=h)
        run(xp.tanh, h, out=h)
        run(xp.add, x, attention(h, lengths, attended), out=x)
        run(xp.multiply, x, 0.5, out=x)


def steps(advance):
    """Make some steps with other lengths each; return the results, and the median time of a step in us."""
    found, times = [], []
    for step in range(STEPS):
        stream.copy(x, start)
        lengths[...] = xp.asarray((np.arange(SEQUENCES) * 5 + step) % TOKENS + 1)
        stream.synchronize()
        begin = perf_counter()
        advance()
        stream.synchronize()
        times.append((perf_counter() - begin) * 1e6)
        found.append(x.copy())
    return found, median(times)


with stream:  # also CuPy's current stream
    numbers = np.random.default_rng(0)
    start = xp.asarray(numbers.standard_normal((SEQUENCES, TOKENS, width)))
    weights = xp.asarray(numbers.standard_normal((LAYERS, TOKENS, width)))
    x, lengths = xp.empty_like(start), xp.ones(SEQUENCES, "i8")
    hidden, attentions = xp.empty((2, LAYERS, *start.shape))

    expected, eager = steps(forward)
    graph = ag.Graph(stream=stream)
    with ag.graph(graph, breaks=True):  # the first run, of which only the memory is needed
        forward()
    found, replayed = steps(graph.replay)
    same = all(bool((one == other).all()) for one, other in zip(found, expected, strict=True))

print(f"problem     {SEQUENCES} sequences of 1 to {TOKENS} tokens, {LAYERS} layers of width {width}")
print(f"backend     {stream.backend}, device {stream.device}")
print(f"eager       {eager:.1f} us per step")
print(f"as a graph  {replayed:.1f} us per step, with {LAYERS} calls of the attention")
print(f"gain        {eager / replayed:.2f} times as fast")
print(f"results     {'equal, bit for bit' if same else 'DIFFERENT'}")
sys.exit(0 if same else 1)
