"""What the capture transaction adds to the driver's bare begin and end, by the number of nodes.

Usage: python benchmarks/transaction_cuda.py [--rounds N]. Needs an NVIDIA GPU and cuda-python. No
framework takes part.
"""

import argparse
import statistics

from _measure import interleave
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
    print("| nodes | bare us | by hand adds us | `with graph` adds us |\n| --- | --- | --- | --- |")
    for nodes in (1, 100, 10000):

        def work(nodes=nodes):
            for _ in range(nodes):
                driver.cuMemsetD8Async(cell, 1, 64, native)

        def bare(work=work):
            driver.cuStreamBeginCapture(native, mode)
            work()
            _, graph = driver.cuStreamEndCapture(native)
            driver.cuGraphDestroy(graph)

        kept = ag.Graph(keep_graph=True, stream=stream)

        def by_hand(work=work, kept=kept):
            kept.capture_begin()
            work()
            kept.capture_end()
            kept.reset()

        def in_with(work=work, kept=kept):
            with kept:
                work()
            kept.reset()

        variants = {"bare": bare, "by hand": by_hand, "with": in_with}
        count = rounds if nodes < 10000 else max(10, rounds // 10)
        for call in variants.values():
            call()
        times = interleave(variants, count, 1, stream.synchronize)

        def added(name, times=times):
            gaps = [(a - b) / 1e3 for a, b in zip(times[name], times["bare"], strict=True)]
            low, mid, high = statistics.quantiles(gaps, n=4)
            return f"{mid:.1f} ({low:.1f} to {high:.1f})"

        bare_us = statistics.median(times["bare"]) / 1e3
        print(f"| {nodes} | {bare_us:.1f} | {added('by hand')} | {added('with')} |")


if __name__ == "__main__":
    main()
