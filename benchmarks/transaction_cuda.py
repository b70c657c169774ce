"""What the capture transaction adds to the driver's bare begin and end, by the number of nodes.

Usage: python benchmarks/transaction_cuda.py [--rounds N]. Needs an NVIDIA GPU and cuda-python. No
framework takes part. The enqueueing between begin and end is not counted.
"""

import argparse
import statistics
from time import perf_counter_ns

from cuda.bindings import driver

import accelerator_graph as ag


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    stream = ag.Stream(backend="cuda")
    calls = ag.backends.get("cuda")._driver
    context = calls.primary_context(0)
    calls.call("cuCtxSetCurrent", context)
    cell = calls.call("cuMemAlloc", 64)
    native = stream.native
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    print("| nodes | bare begin and end, us | by hand adds us | `with graph` adds us |")
    print("| --- | --- | --- | --- |")
    for nodes in (1, 100, 10000):

        def work(nodes=nodes):
            for _ in range(nodes):
                driver.cuMemsetD8Async(cell, 1, 64, native)

        graph = ag.Graph(keep_graph=True, stream=stream)

        def bare(work=work):
            a = perf_counter_ns()
            driver.cuStreamBeginCapture(native, mode)
            b = perf_counter_ns()
            work()
            c = perf_counter_ns()
            _, captured = driver.cuStreamEndCapture(native)
            d = perf_counter_ns()
            driver.cuGraphDestroy(captured)
            return b - a + d - c

        def by_hand(work=work, graph=graph):
            a = perf_counter_ns()
            graph.capture_begin()
            b = perf_counter_ns()
            work()
            c = perf_counter_ns()
            graph.capture_end()
            d = perf_counter_ns()
            graph.reset()
            return b - a + d - c

        def in_with(work=work, graph=graph):
            a = perf_counter_ns()
            with graph:
                b = perf_counter_ns()
                work()
                c = perf_counter_ns()
            d = perf_counter_ns()
            graph.reset()
            return b - a + d - c

        ways = (bare, by_hand, in_with)
        times = [[way() / 1e3 for way in ways] for _ in range(rounds if nodes < 10000 else rounds // 5)]

        def added(column, times=times):
            low, mid, high = statistics.quantiles([row[column] - row[0] for row in times], n=4)
            return f"{mid:.1f} ({low:.1f} to {high:.1f})"

        print(f"| {nodes} | {statistics.median(row[0] for row in times):.1f} | {added(1)} | {added(2)} |")


if __name__ == "__main__":
    main()
