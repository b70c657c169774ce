"""Threads that each replay their own graph, compared with as many threads of a C program."""

import sys
import threading
from itertools import repeat
from time import perf_counter_ns

import _native
from _scene import BIND, scene_of
from suite_replay import C_LOOP, MINIMAL

NODES = 1


def measure(plan):
    scene = scene_of(plan.backend)
    launches = 100 if plan.quick or plan.backend == "hip" else 500
    sizes = (1, 2, 4, 8)
    streams = [scene.stream() for _ in range(sizes[-1])]
    graphs = [scene.captured(NODES, stream) for stream in streams]
    executables = _native.pointers([graph.raw_executable() for graph in graphs])
    handles = _native.pointers([stream.handle for stream in streams])
    bound = [graph.bind(stream) for graph, stream in zip(graphs, streams, strict=True)]
    calls = {BIND: bound, scene.bare: [_bare(scene, *both) for both in zip(graphs, streams, strict=True)]}
    least = plan.tried(MINIMAL, lambda: [scene.minimal(*both) for both in zip(graphs, streams, strict=True)])
    if least is not None:
        calls[MINIMAL] = least
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    plan.facts["the GIL"] = "on" if locked else "off"
    for count in sizes:

        def in_c(launches, count=count):
            return _native.run("loop_in_threads", scene.launch, executables, handles, count, launches) / count

        variants = {C_LOOP: in_c} | {name: _in_threads(each[:count]) for name, each in calls.items()}
        times = plan.compare(
            "a launch, all threads together",
            count,
            variants,
            C_LOOP,
            calls=launches,
            between=scene.wait,
            of="threads",
        )
        if count == 8:
            share = [b[""] / a[""] for a, b in zip(times[BIND], times[C_LOOP], strict=True)]
            what = f"8 threads, bind(), speed of the C program's, GIL {plan.facts['the GIL']}"
            plan.goal(what, share, 0.85, least=True)


def _bare(scene, graph, stream):
    launch, executable, native = scene.typed(graph, stream)
    return lambda: launch(executable, native)


def _in_threads(calls):
    """Return a variant that loops over each callable in its own thread; ns from first start to last end."""

    def run(launches):
        start = threading.Barrier(len(calls))
        times = []

        def work(call):
            start.wait(60)
            begin = perf_counter_ns()
            for _ in repeat(None, launches):
                call()
            times.append((begin, perf_counter_ns()))

        threads = [threading.Thread(target=work, args=(call,), daemon=True) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        if len(times) < len(calls):
            raise RuntimeError("a thread failed, or did not come to its end.")
        return (max(end for _, end in times) - min(begin for begin, _ in times)) / len(calls)

    return run
