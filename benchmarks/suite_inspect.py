"""Drawing a graph, and listing its nodes."""

from functools import partial

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
    for n, graph in graphs.items():
        plan.compare("describe", n, _describe(scene, graph), BARE, seconds=1.5)
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


def _describe(scene, graph):
    native = scene.driver.CUgraph(graph.raw_graph())

    def bare():
        _, count = scene.call("cuGraphGetNodes", native, 0)
        nodes, _ = scene.call("cuGraphGetNodes", native, count)
        for node in nodes:
            scene.call("cuGraphNodeGetType", node)

    variants = {BARE: loop(bare)}
    if hasattr(graph, "describe"):
        variants["accelerator_graph: describe()"] = loop(graph.describe)
    backend, captured = ag.backends.get("cuda"), graph._runner.captured.value
    variants["accelerator_graph: the backend's nodes()"] = loop(backend.nodes, captured)
    return variants
