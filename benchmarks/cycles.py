"""10,000 cycles of capture, replay and reset: check that memory stays constant and no handle is left.

Usage: python benchmarks/cycles.py [--backend NAME] [--cycles N].
"""

import argparse
import gc
import os
import threading

import accelerator_graph as ag
from accelerator_graph._core import ownership


def resident_kib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def work_of(backend):
    """Return the work of each cycle; on cuda and hip, a memset of device memory."""
    if backend == "cpu":
        cell = bytearray(64)
        return lambda stream: stream.fill(cell, 1)
    if backend == "hip":
        from hip import hip

        code, cell = hip.hipMalloc(64)
        assert int(code) == 0
        return lambda stream: stream.fill(cell, 1)
    runtime = ag.backends.get(backend).driver
    with runtime.current(runtime.place(0)):
        cell = int(runtime.call("cuMemAlloc", 64))
    return lambda stream: stream.fill(cell, 1, 64)


def device_free(backend):
    if backend == "cpu":
        return 0
    if backend == "hip":
        from hip import hip

        return hip.hipMemGetInfo()[1] // 1024
    runtime = ag.backends.get(backend).driver
    with runtime.current(runtime.place(0)):
        return runtime.call("cuMemGetInfo")[0] // 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--cycles", type=int, default=10_000)
    options = parser.parse_args()
    stream = ag.Stream(backend=options.backend)
    graph = ag.Graph(stream=stream)
    enqueue = work_of(options.backend)

    def cycle():
        with graph:
            for _ in range(4):
                enqueue(stream)
        graph.replay()
        stream.synchronize()
        graph.reset()

    print("| cycles | resident KiB | device free KiB | owners alive | queued | threads |")
    print("| --- | --- | --- | --- | --- | --- |")
    for n in range(options.cycles + 1):
        if n in (0, options.cycles // 10) or n % (options.cycles // 4) == 0:
            gc.collect()
            owners = sum(issubclass(type(each), ownership.Owned) for each in gc.get_objects())
            print(
                f"| {n} | {resident_kib()} | {device_free(options.backend)} | {owners} "
                f"| {len(ownership._queue)} | {threading.active_count()} |"
            )
        cycle()


if __name__ == "__main__":
    main()
