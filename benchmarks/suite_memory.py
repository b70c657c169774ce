"""Memory of graphs: of many small ones beside the driver's own, and of one by its nodes.

Each way is measured in a process of its own, since freed memory is used again.
Usage of that process: python benchmarks/suite_memory.py WAY COUNT
"""

import gc
import json
import subprocess
import sys
import tracemalloc
from statistics import median

from _measure import resident

import accelerator_graph as ag

OURS = "accelerator_graph"
BARE = "the driver's own"
BATCHES = 4
POOLED = [256 * (n + 1) for n in range(50)]


def measure(plan):
    count = 200 if plan.quick else 1000
    ways = {
        f"{BARE}: the executable": "bare",
        f"{OURS}: Graph()": "ours",
        f"{OURS}: Graph() and bind()": "bound",
        f"{BARE}: graph and executable": "bare_kept",
        f"{OURS}: Graph(keep_graph=True)": "kept",
        **{name: name for name in ("cuda.core", "torch", "CuPy", "Warp")},
        f"{OURS} beside torch": "ours_torch",
    }
    found = {}
    if plan.quick:
        plan.skip("other libraries", "left out of a quick run")
        ways = {name: way for name, way in ways.items() if name.startswith((BARE, f"{OURS}:"))}
    for name, way in ways.items():
        answer = plan.tried(name, _child, way, count)
        plan.save()
        if answer is None:
            continue
        found[way] = answer
        for case in ("host memory of a graph", "Python's part of it", "device memory of a graph"):
            if case in answer:
                plan.add(case, count, name, answer[case], unit="B", of="graphs")
    _goals(plan, found)
    for name, way in ((BARE, "bare_nodes"), (OURS, "kept_nodes")):
        sizes = 1000 if plan.quick else 100_000
        for n, (host, device) in (plan.tried(f"nodes, {name}", _child, way, sizes) or {}).items():
            plan.add("host memory by nodes, graph and executable", int(n), name, [host], unit="B")
            plan.add("device memory by nodes", int(n), name, [device], unit="B")
    pooled = {}
    for name, way in () if plan.quick else (("torch", "pool_torch"), (OURS, "pool_ours")):
        pooled[way] = plan.tried(f"pool, {name}", _child, way, len(POOLED)) or {}
        for case, value in pooled[way].items():
            plan.add(f"50 graphs in one pool: {case}", None, name, [value], unit="B")
    if all(pooled.values()) and pooled:
        ratio = pooled["pool_ours"]["device memory"] / pooled["pool_torch"]["device memory"]
        plan.goal("device memory of 50 graphs in one pool, to torch's", [ratio], 1.01)


def _goals(plan, found):
    case = "host memory of a graph"
    for way, base, name in (("ours", "bare", "Graph()"), ("kept", "bare_kept", "Graph(keep_graph=True)")):
        if way in found and base in found:
            beside = [(value - median(found[base][case])) / 1000 for value in found[way][case]]
            plan.goal(f"{case}, {name}, beside the driver's own", beside, 2, unit="kB")


def _child(way, count):
    command = [sys.executable, __file__, way, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def main(way, count):
    from _scene import scene_of

    scene = scene_of("cuda")
    if way.startswith("pool_"):
        answer = _pooled(way)
    elif way.endswith("_nodes"):
        answer = _by_nodes(scene, way, int(count))
    else:
        answer = _many(scene, _maker(scene, way), int(count))
    print(json.dumps(answer))


def _many(scene, make, count):
    held, answer = [make() for _ in range(20)], {"host memory of a graph": [], "device memory of a graph": []}
    for _ in range(BATCHES + 1):
        gc.collect()
        before = resident(), scene.free_memory()
        held += [make() for _ in range(count)]
        gc.collect()
        answer["host memory of a graph"].append((resident() - before[0]) / count)
        answer["device memory of a graph"].append((before[1] - scene.free_memory()) / count)
    for values in answer.values():
        del values[0]  # the first value includes one-time allocations
    tracemalloc.start()
    held += [make() for _ in range(count)]
    gc.collect()
    answer["Python's part of it"] = [tracemalloc.get_traced_memory()[0] / count]
    return answer


def _by_nodes(scene, way, most):
    make = {"bare_nodes": _bare, "kept_nodes": _ours}[way]
    held, answer = [make(scene, 1, keep=True)() for _ in range(20)], {}
    for nodes in (1000, 10_000, 100_000):
        if nodes <= most:
            before = resident(), scene.free_memory()
            held.append(make(scene, nodes, keep=True)())
            answer[nodes] = (resident() - before[0], before[1] - scene.free_memory())
    return answer


def _maker(scene, way):
    """Return a function that makes one graph of one node, replays it once, and returns the owner."""
    if way in ("bare", "bare_kept"):
        return _bare(scene, 1, keep=way == "bare_kept")
    if way in ("ours", "kept", "bound"):
        return _ours(scene, 1, keep=way == "kept", bind=way == "bound")
    from _peers import PEERS

    name = "torch" if way == "ours_torch" else way
    peer = next(each for each in PEERS if each.name == name)(scene)
    if way == "ours_torch":
        return _ours(scene, 1, keep=False)
    peer.current().__enter__()
    return peer.one


def _bare(scene, nodes, *, keep):
    stream = scene.stream()
    native, handle = stream.native, stream.handle

    def make():
        scene.begin(native)
        scene.enqueue(handle, nodes)
        graph = scene.end(native)
        executable = scene.instantiate(graph)
        scene.call("cuGraphLaunch", executable, native)
        if keep:
            return graph, executable
        scene.call("cuGraphDestroy", graph)
        return executable

    return make


def _ours(scene, nodes, *, keep, bind=False):
    stream = scene.stream()
    handle = stream.handle

    def make():
        graph = ag.Graph(keep_graph=keep, stream=stream)
        with graph:
            scene.enqueue(handle, nodes)
        graph.replay()
        return graph.bind() if bind else graph

    return make


def _pooled(way):
    """Capture fifty graphs of different shapes into one pool, with torch or this library, and check them."""
    import torch

    weight = torch.randn(1024, 1024, device="cuda")
    inputs = [torch.randn(size, 1024, device="cuda") for size in reversed(POOLED)]

    def step(x):
        return torch.relu(x @ weight) @ weight

    with torch.no_grad():
        for x in inputs:
            step(x)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        theirs = way == "pool_torch"
        pool = torch.cuda.graph_pool_handle() if theirs else ag.graph_pool_handle()
        before = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
        graphs, outputs = [], []
        for x in inputs:
            graphs.append(torch.cuda.CUDAGraph() if theirs else ag.Graph())
            with torch.cuda.graph(graphs[-1], pool=pool) if theirs else ag.graph(graphs[-1], pool):
                y = step(x)
            outputs.append(y[:1, :1])  # a view keeps the output's memory
        torch.cuda.synchronize()
        for g, x, y in zip(graphs, inputs, outputs, strict=True):
            g.replay()
            torch.cuda.synchronize()
            assert torch.allclose(y, step(x)[:1, :1], atol=1e-2), "a replay gives another result"
        torch.cuda.empty_cache()
        return {
            "device memory": before[0] - torch.cuda.mem_get_info()[0],
            "device memory, torch's part": torch.cuda.memory_reserved() - before[1],
        }


if __name__ == "__main__":
    main(*sys.argv[1:])
