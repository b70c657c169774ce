"""Drawing a graph, listing its nodes, and giving its executable the work of another one."""

from functools import partial
from time import perf_counter_ns

from _measure import loop
from _peers import peers, scratch
from _scene import scene_of

import accelerator_graph as ag

SIZES = (1, 10, 100, 1000)
BARE = "the binding's calls"


def measure(plan):
    scene = scene_of(plan.backend)
    stream = scene.stream()
    path = scratch()
    graphs = {n: scene.captured(n, stream) for n in SIZES}
    other = {n: scene.captured(n, stream) for n in SIZES}
    for n, graph in graphs.items():
        plan.compare("describe", n, _describe(plan, scene, graph), BARE, seconds=1.5)
        plan.compare("update", n, _update(plan, scene, graph, other[n]), BARE, seconds=1.5)
    found = peers(plan, scene, frameworks=False) + peers(plan, scene, frameworks=True)
    for n, graph in graphs.items():
        native = scene.driver.CUgraph(graph.raw_graph())
        variants = {
            BARE: loop(partial(scene.call, "cuGraphDebugDotPrint", native, path.encode(), 1)),
            "accelerator_graph": loop(graph.debug_dump, path),
        }
        for peer in found:
            dumps = plan.tried(f"dump by {peer.name}", peer.dumps, n, path) or {}
            variants |= {name: loop(call) for name, call in dumps.items()}
        plan.compare("dump", n, variants, BARE, seconds=1.5)


def _describe(plan, scene, graph):
    native = scene.driver.CUgraph(graph.raw_graph())

    def bare():
        _, count = scene.call("cuGraphGetNodes", native, 0)
        nodes, _ = scene.call("cuGraphGetNodes", native, count)
        for node in nodes:
            scene.call("cuGraphNodeGetType", node)

    variants = {BARE: loop(bare)}
    if hasattr(graph, "describe"):
        variants["accelerator_graph: describe()"] = loop(graph.describe)
    backend, captured = ag.backends.get("cuda"), graph._captured.value
    variants["accelerator_graph: the backend's nodes()"] = loop(backend.nodes, captured)
    return variants


def _update(plan, scene, graph, other):
    native = scene.driver.CUgraph(other.raw_graph())
    executable = scene.driver.CUgraphExec(graph.raw_executable())

    def bare(calls):
        begin = perf_counter_ns()
        for _ in range(calls):
            scene.call("cuGraphExecUpdate", executable, native)
        return perf_counter_ns() - begin

    variants = {BARE: bare}
    backend = ag.backends.get("cuda")
    owned, captured = graph._runner.executable.value, other._captured.value
    variants["accelerator_graph: the backend's update()"] = loop(backend.update, owned, captured)
    if hasattr(graph, "update"):
        variants["accelerator_graph: update()"] = loop(graph.update, other)
    else:
        plan.skip("Graph.update", "the library does not have it yet")
    return variants
