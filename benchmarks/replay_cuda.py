"""Host time of one replay on CUDA, as a ratio to a C loop over cuGraphLaunch in the same process.

Usage: python benchmarks/replay_cuda.py [--rounds N] [--json FILE]. Needs an NVIDIA GPU, cuda-python
and a C compiler. Straight-line graphs of empty kernels. Peers that are installed (torch, CuPy) are
measured beside it, on graphs of as many one-block kernels of their own.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile

from _measure import interleave, summary, table
from cuda.bindings import driver

import accelerator_graph as ag

CALLS = 20  # few enough that the launch queue never fills up, whatever the size of the graph

PTX = b"""
.version 6.4
.target sm_50
.address_size 64
.visible .entry nothing() { ret; }
"""


def c_loop():
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loop.c")
    folder = tempfile.mkdtemp()
    library = os.path.join(folder, "loop.so")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    loop = ctypes.CDLL(library).loop
    loop.restype = ctypes.c_double
    loop.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    return loop


def launch_address():
    code, address, _ = driver.cuGetProcAddress(b"cuGraphLaunch", 12090, 0)
    assert code == driver.CUresult.CUDA_SUCCESS
    return int(address)


def measure(nodes, rounds, loop):
    stream = ag.Stream(backend="cuda")
    calls = ag.backends.get("cuda")._driver
    with calls.current(calls.primary_context(0)):
        kernel = calls.call("cuModuleGetFunction", calls.call("cuModuleLoadData", PTX), b"nothing")
    graph = ag.Graph(keep_graph=True)
    with stream, graph:
        for _ in range(nodes):
            stream.launch(kernel, grid=1, block=1)
    bound = graph.bind(stream)
    executable = driver.CUgraphExec(graph.raw_executable())
    native, launch, success = stream.native, driver.cuGraphLaunch, driver.CUresult.CUDA_SUCCESS
    address = launch_address()
    pointers = (graph.raw_executable(), stream.handle)

    def in_c():
        assert loop(address, *pointers, CALLS) > 0

    def bare():
        for _ in range(CALLS):
            launch(executable, native)

    def checked():
        for _ in range(CALLS):
            (code,) = launch(executable, native)
            if code is not success:
                raise RuntimeError(code)

    def through_bind():
        for _ in range(CALLS):
            bound()

    def through_replay():
        for _ in range(CALLS):
            graph.replay()

    variants = {
        "C loop": in_c,
        "cuda.bindings, typed handles": bare,
        "the same, code checked": checked,
        "Graph.bind": through_bind,
        "Graph.replay": through_replay,
        **peers(nodes),
    }
    for call in variants.values():
        call()
    rows = summary(interleave(variants, rounds, 1, stream.synchronize), "C loop")
    for row in rows.values():
        row["median_ns"] = round(row["median_ns"] / CALLS, 1)
    return rows


def peers(nodes):
    found = {}
    try:
        import torch

        buffer = torch.zeros(64, dtype=torch.uint8, device="cuda")
        theirs = torch.cuda.CUDAGraph()
        with torch.cuda.graph(theirs):
            for _ in range(nodes):
                buffer.add_(1)

        def through_torch():
            for _ in range(CALLS):
                theirs.replay()

        found["torch.cuda.CUDAGraph.replay"] = through_torch
    except ImportError:
        pass
    try:
        import cupy

        array = cupy.zeros(64, dtype=cupy.uint8)
        side = cupy.cuda.Stream(non_blocking=True)
        with side:
            side.begin_capture()
            for _ in range(nodes):
                array += 1
            captured = side.end_capture()

        def through_cupy():
            for _ in range(CALLS):
                captured.launch(side)

        found["CuPy Graph.launch"] = through_cupy
    except ImportError:
        pass
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json")
    options = parser.parse_args()
    loop = c_loop()
    results = {}
    for nodes in (1, 10, 100):
        rows = results[str(nodes)] = measure(nodes, options.rounds, loop)
        print(table(f"replay of {nodes} node(s), ratio to the C loop", rows))
        over = rows["Graph.bind"]["ratio"] - rows["cuda.bindings, typed handles"]["ratio"]
        print(f"Graph.bind is {over:.3f} of the C loop above the bare call (to reach: at most 0.15)\n")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
