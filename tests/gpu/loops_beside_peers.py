"""Loops whose flags the device computes, beside cuda.core's graph builder, on a GPU, for the record.

python tests/gpu/loops_beside_peers.py

The same kernels run in the body of each: one step down from a number, and the test of it. Prints the time of
a replay with all of its work, for some numbers of iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np
from cuda.core import Device, LaunchConfig, ObjectCode, launch

import accelerator_graph as ag
from accelerator_graph.backends._cuda.conditions import PTX
from accelerator_graph.testing.works.cuda import KERNEL, CudaWork

ROUNDS, DOWN, NO_LIMIT = 150, 2**32 - 1, 2**64 - 1


def ours(work: CudaWork, cell: int, *, native: bool) -> Callable[[], object]:
    graph = ag.Graph()
    with graph:
        flag = (cell, "uint32")
        ag.while_(flag, lambda: work.enqueue(ag.current_stream(), cell, 1, DOWN), native=native)
    return graph.replay


def cuda_cores(cell: int, count: int) -> Callable[[], object]:
    device = Device()
    device.set_current()
    stream, one = device.create_stream(), LaunchConfig(grid=1, block=1)
    test = ObjectCode.from_ptx(PTX.rstrip(b"\0")).get_kernel("accelerator_graph_test_flag")
    step = ObjectCode.from_ptx(KERNEL.rstrip(b"\0")).get_kernel("step")
    builder = stream.create_graph_builder()
    builder.begin_building()
    condition = builder.create_condition()

    def check(where: object, first: int) -> None:
        words = np.uint64(int(condition.handle)), np.uint64(cell), np.uint32(4), np.uint64(count)
        launch(where, one, test, *words, np.uint64(NO_LIMIT), np.uint32(first))

    check(builder, 1)
    body = builder.while_loop(condition)
    body.begin_building()
    launch(body, one, step, np.uint64(cell), np.uint32(1), np.uint32(DOWN), np.uint64(0))
    check(body, 0)
    body.end_building()
    graph = builder.end_building().complete()

    def run() -> None:
        graph.launch(stream)
        stream.sync()

    return run


def main() -> None:
    work = CudaWork()
    cell, count, _ = work.new(), work.new(), work.new()  # the count takes two
    with ag.Stream(backend="cuda") as stream:
        runs = {
            "the device tests": ours(work, cell, native=True),
            "cuda.core": cuda_cores(cell, count // 8 * 8 + 8),
            "the host tests": ours(work, cell, native=False),
        }
        print("time of a replay, in us, medians of rounds in turns")
        print("iterations  " + "  ".join(f"{name:>16}" for name in runs))
        for iterations in (0, 1, 2, 10, 100):
            times: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(ROUNDS):
                for name, run in runs.items():
                    work.enqueue(stream, cell, 0, iterations)
                    stream.synchronize()
                    start = perf_counter()
                    run()
                    stream.synchronize()
                    times[name].append((perf_counter() - start) * 1e6)
            print(f"{iterations:>10}  " + "  ".join(f"{median(each):16.1f}" for each in times.values()))


if __name__ == "__main__":
    main()
