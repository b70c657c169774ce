"""One replay: a burst of launches, and a launch with a wait, of graphs of 1 to 1000 nodes."""

import importlib.util
import os
from contextlib import ExitStack
from time import perf_counter_ns

from _measure import above, loop
from _peer_torch import TORCH_CURRENT
from _peers import peers
from _scene import BIND, REPLAY, burst, in_c, replays, scene_of

C_LOOP = "C loop"
MINIMAL = "minimal callable in C"
SIZES = (1, 10, 100, 1000)


def measure(plan):
    scene = scene_of(plan.backend)
    cases = {n: _without_frameworks(plan, scene, n) for n in SIZES}
    with ExitStack() as stack:
        if plan.backend == "cuda":
            others = peers(plan, scene, frameworks=False)
            others += peers(plan, scene, frameworks=True, always=True)
            for peer in others:
                stack.enter_context(peer.current())
            for n, (launches, waits) in cases.items():
                for peer in others:
                    theirs = plan.tried(f"{peer.name}, {n}", peer.replays, n) or {}
                    for name, (call, wait) in theirs.items():
                        launches[name] = loop(*call)
                        waits[name] = _waited(*call, wait=wait)
        for n, (launches, waits) in cases.items():
            times = plan.compare("burst", n, launches, C_LOOP, calls=burst(n), seconds=5, between=scene.wait)
            if n <= 100:
                _goals(plan, scene, n, times)
            plan.compare("launch and synchronise", n, waits, C_LOOP, calls=5, seconds=2, between=scene.wait)


def measure_pure_python(plan):
    """Measure the same without the C extension and without peers."""
    if os.environ.get("ACCELERATOR_GRAPH_PURE_PYTHON") != "1":
        raise RuntimeError("ACCELERATOR_GRAPH_PURE_PYTHON=1 has to be set from the start.")
    if importlib.util.find_spec("accelerator_graph._core._fast") is None:
        plan.skip("pure Python", "there is no C extension here, so the section before is pure Python already")
        return
    scene = scene_of(plan.backend)
    for n in SIZES[:3]:
        launches, _ = _without_frameworks(plan, scene, n)
        if plan.facts["bind() is the C extension's"]:
            plan.skip("pure Python", "the C extension is used in spite of ACCELERATOR_GRAPH_PURE_PYTHON=1")
            return
        times = plan.compare("burst", n, launches, C_LOOP, calls=burst(n), between=scene.wait)
        _goal_without_extension(plan, scene, n, times)


def _goal_without_extension(plan, scene, nodes, times):
    over = above(times, BIND, scene.bare, C_LOOP)
    plan.goal(f"pure Python: bind() above {scene.bare}, nodes: {nodes}", over, 0.15)


def _goals(plan, scene, nodes, times):
    if not plan.facts["bind() is the C extension's"]:
        _goal_without_extension(plan, scene, nodes, times)
    for name, other, limit in ((BIND, MINIMAL, 0.05), (REPLAY, BIND, 0.03), (TORCH_CURRENT, BIND, 0.12)):
        over = above(times, name, other, C_LOOP)
        plan.goal(f"{name} above {other}, nodes: {nodes}", over, limit)


def _without_frameworks(plan, scene, nodes):
    stream = scene.stream()
    graph = scene.captured(nodes, stream)
    launches = replays(scene, graph, stream)
    bound = graph.bind(stream)
    plan.facts["bind() is the C extension's"] = in_c(bound)
    launch, executable, native = scene.typed(graph, stream)
    wait = scene.bare_synchronize(stream)
    waits = {
        C_LOOP: scene.in_c_synchronized(graph, stream),
        f"{BIND}, and the binding's synchronise": _waited(bound, wait=wait),
        f"{BIND} and Stream.synchronize()": _waited(bound, wait=stream.synchronize),
        scene.bare: _waited(launch, executable, native, wait=wait),
    }
    call = plan.tried(MINIMAL, scene.minimal, graph, stream)
    if call is not None:
        launches[MINIMAL] = loop(call)
        waits[MINIMAL] = _waited(call, wait=wait)
    return launches, waits


def _waited(call, *args, wait):
    """Return a variant that waits for each launch."""

    def run(calls):
        begin = perf_counter_ns()
        for _ in range(calls):
            call(*args)
            wait()
        return perf_counter_ns() - begin

    return run
