"""Host time of one replay on HIP, as a ratio to hipGraphLaunch called directly in the same process.

Usage: python benchmarks/replay_hip.py [--rounds N]. Needs hip-python and a HIP runtime, if need be AMD's own
above a GPU in software: PYTHONPATH=tests python -m amd 7.2 -- python benchmarks/replay_hip.py
Straight-line graphs of fills.
"""

import argparse
import ctypes

from _measure import interleave, summary, table
from hip import hip

import accelerator_graph as ag

CALLS = 20
BARE = "ctypes"
TYPED = "hip-python, typed handles"


def measure(nodes, rounds):
    stream = ag.Stream(backend="hip")
    code, cell = hip.hipMalloc(64)
    assert int(code) == 0
    graph = ag.Graph(keep_graph=True)
    with stream, graph:
        for n in range(nodes):
            stream.fill(cell, n % 256)
    bound = graph.bind(stream)
    typed = hip.hipGraphExec_t(graph.raw_executable()), stream.native
    foreign = ag.backends.get("hip")._driver.function("hipGraphLaunch")
    handles = ctypes.c_void_p(graph.raw_executable()), ctypes.c_void_p(stream.handle)
    launch = hip.hipGraphLaunch

    def by_ctypes():
        for _ in range(CALLS):
            foreign(*handles)

    def by_binding():
        for _ in range(CALLS):
            launch(*typed)

    def through_bind():
        for _ in range(CALLS):
            bound()

    def through_replay():
        for _ in range(CALLS):
            graph.replay()

    variants = {
        BARE: by_ctypes,
        TYPED: by_binding,
        "Graph.bind": through_bind,
        "Graph.replay": through_replay,
    }
    for call in variants.values():
        call()
    rows = summary(interleave(variants, rounds, 1, stream.synchronize), BARE)
    for row in rows.values():
        row["median_ns"] = round(row["median_ns"] / CALLS, 1)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    for nodes in (1, 10, 100):
        rows = measure(nodes, options.rounds)
        print(table(f"replay of {nodes} node(s), ratio to the bare call by ctypes", rows))
        ratio, typed = rows["Graph.bind"]["ratio"], rows[TYPED]["ratio"]
        print(
            f"Graph.bind is {ratio / typed:.3f} of hip-python's call with typed handles and {ratio:.3f} of "
            "the bare one (to reach: at most 1.3)\n"
        )


if __name__ == "__main__":
    main()
