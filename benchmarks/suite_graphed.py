"""Calls of a captured function with 20 operations on 4 small arrays, with torch."""

import _native
from _measure import loop
from _peers import torch_on_gpu
from _scene import scene_of

import accelerator_graph as ag

BY_HAND = "by hand: 4 copies and CUDAGraph.replay"
STATIC = "accelerator_graph: graphed, static outputs"
NODES = "accelerator_graph: graphed, static outputs, inputs as nodes that stay"
BOUND = "accelerator_graph: graphed, static outputs, inputs bound that stay"
NODES_MOVED = "accelerator_graph: graphed, static outputs, inputs as nodes, one of which moves"
BOUND_MOVED = "accelerator_graph: graphed, static outputs, inputs bound, one of which moves"
LAUNCH = "C loop: the launch of such a graph"
LAUNCH_MOVED = "C loop: one of its copies told to read elsewhere, and the launch"
TORCHS = "torch: make_graphed_callables"


def step(a, b, c, d):
    """Do 20 operations."""
    x = a * b + c
    for _ in range(9):
        x = x * b + d
    return x


def measure(plan):
    torch = torch_on_gpu(plan)
    if torch is None:
        return
    inputs = [torch.rand(64, 64, device="cuda") for _ in range(4)]
    torch.cuda.synchronize()
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        variants = _variants(plan, torch, inputs)
        expected = step(*inputs)
        for name, call in list(variants.items()):
            if (found := plan.tried(name, _settled, call, inputs)) is None:
                del variants[name]
            elif not torch.allclose(found, expected):
                raise RuntimeError(f"{name} gives another result")
        runs = {name: loop(lambda call=call: call(*inputs)) for name, call in variants.items()}
        runs |= plan.tried(LAUNCH_MOVED, _in_c, plan, inputs) or {}
        wait = torch.cuda.synchronize
        times = plan.compare("20 operations", None, runs, BY_HAND, calls=20, seconds=6, between=wait)
        if STATIC in times and TORCHS in times:
            rounds = list(zip(times[STATIC], times[TORCHS], times["eager"], strict=True))
            more = [(ours[""] - theirs[""]) / 1000 for ours, theirs, _ in rounds]
            plan.goal("graphed, static outputs, more than torch's make_graphed_callables", more, 2, unit="us")
            ratios = [ours[""] / eager[""] for ours, _, eager in rounds]
            plan.goal("graphed, static outputs, to eager", ratios, 0.334)
        if NODES in times:
            plan.goal(NODES, [each[""] / 1000 for each in times[NODES]], 12, unit="us")
        if BOUND in times:
            plan.goal(BOUND, [each[""] / 1000 for each in times[BOUND]], 12, unit="us")
        for stays, moves in ((NODES, NODES_MOVED), (BOUND, BOUND_MOVED)):
            if stays in times and moves in times:
                pairs = zip(times[moves], times[stays], strict=True)
                more = [(patched[""] - not_patched[""]) / 1000 for patched, not_patched in pairs]
                plan.goal(f"{moves}, more than if it stays", more, 1, unit="us")
                if LAUNCH in times and LAUNCH_MOVED in times:
                    floor = [
                        (moved[""] - stayed[""]) / 1000
                        for moved, stayed in zip(times[LAUNCH_MOVED], times[LAUNCH], strict=True)
                    ]
                    beyond = [ours - driver for ours, driver in zip(more, floor, strict=True)]
                    plan.goal(f"{moves}, more than if it stays, beyond the loop in C", beyond, 1, unit="us")


def _in_c(plan, inputs):
    """Return the driver's own part of the calls with nodes: its launch, alone and with a source set first."""
    graphed = ag.graphed(step, outputs="static", inputs="node")
    _settled(graphed, inputs)
    (recorded,) = graphed._cache.graphs.values()
    runner = recorded.graph._runner
    captured, executable = runner.captured, runner.executable
    setter = captured.backend.node_setter(captured.native, executable.native, 0)
    address, arguments = setter.function.address, setter.function.arguments
    launch, stream = scene_of(plan.backend).launch, ag.current_stream().handle
    handle, node, parameters, context = arguments
    two = inputs[0], inputs[0].clone()
    places = _native.pointers([each.data_ptr() for each in two])
    where = launch, address, handle, stream, node, parameters, context, setter.address_of(1, 0), places

    def launched(calls, _keeps=graphed):
        return _native.run("loop", launch, handle, stream, calls)

    def moved(calls, _keeps=(graphed, setter, two)):
        return _native.run("loop_set", *where, calls)

    return {LAUNCH: launched, LAUNCH_MOVED: moved}


def _in_turn(call, firsts):
    """Return a function that passes one array after another as the first, which one node reads."""

    def with_another(_, *rest):
        firsts.reverse()
        return call(firsts[0], *rest)

    return with_another


def _settled(call, inputs):
    """Call the function until it is captured; return the result of the last call."""
    for _ in range(5):
        result = call(*inputs)
    return result


def _variants(plan, torch, inputs):
    static = [each.clone() for each in inputs]
    graph = torch.cuda.CUDAGraph()
    step(*static)
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        output = step(*static)

    def by_hand(*args):
        for place, value in zip(static, args, strict=True):
            place.copy_(value)
        graph.replay()
        return output

    def by_hand_cloned(*args):
        return by_hand(*args).clone()

    variants = {
        BY_HAND: by_hand,
        "by hand, the output cloned": by_hand_cloned,
        "eager": step,
        STATIC: ag.graphed(step, outputs="static"),
        "accelerator_graph: graphed, copied outputs": ag.graphed(step, outputs="copy"),
    }
    two = inputs[0], inputs[0].clone()
    for stays, moves, way in ((NODES, NODES_MOVED, "node"), (BOUND, BOUND_MOVED, "bind")):
        for name, firsts in ((stays, [inputs[0]]), (moves, [*two])):
            variants[name] = _in_turn(ag.graphed(step, outputs="static", inputs=way), firsts)
    samples = tuple(each.clone() for each in inputs)
    for name, module in (("torch", torch.cuda), ("accelerator_graph", ag)):
        what = f"{name}: make_graphed_callables"
        if not hasattr(module, "make_graphed_callables"):
            plan.skip(what, "the library does not have it yet")
            continue
        made = plan.tried(what, module.make_graphed_callables, lambda *args: step(*args), samples)
        if made is not None:
            variants[what] = made
    return variants
