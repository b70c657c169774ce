"""The first capture of a process, step by step. Usage: python _first.py VARIANT, which prints JSON.

Each variant's framework is imported, and has run its work once, before the time begins.
"""

import json
import sys
from time import perf_counter_ns

OPERATIONS = 10


def torchs(how):
    """Capture with torch's own classes, this library's, or its stand-ins for torch's."""
    import torch

    x = torch.zeros(64, device="cuda")

    def work():
        for _ in range(OPERATIONS):
            x.add_(1)

    work()
    torch.cuda.synchronize()
    steps = {}
    with timed(steps, "import of the binding"):
        if how != "torch":
            import cuda.bindings.driver  # noqa: F401
    with timed(steps, "import of the library"):
        if how == "graph":
            from accelerator_graph import Graph, graph
        elif how == "compat":
            from accelerator_graph.compat import CUDAGraph as Graph
            from accelerator_graph.compat import graph
        else:
            Graph, graph = torch.cuda.CUDAGraph, torch.cuda.graph
    for step in ("first capture", "second capture"):
        with timed(steps, step):
            g = Graph()
            with graph(g):
                work()
    with timed(steps, "first replay"):
        g.replay()
    torch.cuda.synchronize()
    return steps


def cupys(how):
    """Capture with CuPy, or with this library on CuPy's stream."""
    import cupy

    x = cupy.zeros(64, dtype="float32")
    stream = cupy.cuda.Stream(non_blocking=True)

    def work():
        for _ in range(OPERATIONS):
            cupy.add(x, 1, out=x)

    work()
    cupy.cuda.Device().synchronize()
    steps = {}
    with timed(steps, "import of the binding"):
        if how != "cupy":
            import cuda.bindings.driver  # noqa: F401
    with timed(steps, "import of the library"):
        if how != "cupy":
            from accelerator_graph import Graph
    for step in ("first capture", "second capture"):
        with timed(steps, step), stream:
            if how == "cupy":
                stream.begin_capture()
                work()
                g = stream.end_capture()
            else:
                g = Graph()
                with g:
                    work()
    with timed(steps, "first replay"), stream:
        g.launch() if how == "cupy" else g.replay()
    stream.synchronize()
    return steps


def alone(how):
    """Capture without a framework."""
    steps = {}
    with timed(steps, "import of the binding"):
        from cuda.bindings import driver
    with timed(steps, "import of the library"):
        from accelerator_graph import Graph, Stream
    with timed(steps, "first stream"):
        stream = Stream(backend="cuda")
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    memory = driver.cuMemAlloc(64)[1]
    for step in ("first capture", "second capture"):
        with timed(steps, step), Graph(stream=stream) as g:
            for _ in range(OPERATIONS):
                driver.cuMemsetD8Async(memory, 1, 64, stream.native)
    with timed(steps, "first replay"):
        g.replay()
    stream.synchronize()
    return steps


class timed:
    """Notes how many ns a block takes."""

    def __init__(self, steps, name):
        self.steps, self.name = steps, name

    def __enter__(self):
        self.begin = perf_counter_ns()

    def __exit__(self, *exc):
        self.steps[self.name] = perf_counter_ns() - self.begin


if __name__ == "__main__":
    framework, _, how = sys.argv[1].partition(":")
    print(json.dumps({"torch": torchs, "cupy": cupys, "alone": alone}[framework](how)))
