"""How costs grow: of a graph with its nodes, and of a replay with the number of graphs and streams in use."""

from itertools import cycle

import _native
from _lives import BARE, bare, ours
from _measure import each
from _scene import BIND, REPLAY, burst, replays, scene_of
from suite_replay import C_LOOP

NODES = 10  # of each graph, if there are many graphs


def measure(plan):
    scene = scene_of(plan.backend)
    nodes(plan, scene)
    graphs(plan, scene)
    streams(plan, scene)


def nodes(plan, scene):
    sizes = (1, 10, 100, 1000, 10_000, 100_000)
    for n in sizes[:-1] if plan.quick else sizes:
        stream = scene.stream()
        ways = ours(scene, stream, n)
        name = "accelerator_graph: with g"
        lives = {BARE: bare(scene, stream, n), name: ways[name]}
        plan.compare_lives("nodes:", n, lives, BARE, seconds=2, between=scene.wait)
        graph = scene.captured(n, stream)
        variants = replays(scene, graph, stream)
        plan.compare("nodes: replay", n, variants, C_LOOP, calls=burst(n), seconds=2, between=scene.wait)
        graph.reset()


def graphs(plan, scene):
    sizes = (1, 10, 100, 1000)
    stream = scene.stream()
    made = [scene.captured(NODES, stream) for _ in range(sizes[-2 if plan.quick else -1])]
    for count in sizes:
        if count <= len(made):
            _in_turn(plan, scene, "graphs", made[:count], [stream] * count)


def streams(plan, scene):
    made = [scene.stream() for _ in range(64)]
    captured = [scene.captured(NODES, stream) for stream in made]
    for count in (1, 4, 16, 64):
        _in_turn(plan, scene, "streams", captured[:count], made[:count])


def _in_turn(plan, scene, of, graphs, streams):
    count = len(graphs)
    executables = _native.pointers([graph.raw_executable() for graph in graphs])
    handles = _native.pointers([stream.handle for stream in streams])
    bound = cycle([graph.bind(stream) for graph, stream in zip(graphs, streams, strict=True)])
    replay = cycle([graph.replay for graph in graphs])
    typed = cycle([_bare(*scene.typed(*both)) for both in zip(graphs, streams, strict=True)])
    first = 0

    def in_c(calls):
        nonlocal first
        taken = _native.run("loop_over", scene.launch, executables, handles, count, first, calls)
        first = (first + calls) % count
        return taken

    variants = {C_LOOP: in_c, BIND: each(bound), REPLAY: each(replay), scene.bare: each(typed)}
    plan.compare(
        f"{of}: a replay of each in turn",
        count,
        variants,
        C_LOOP,
        calls=64,
        seconds=1,
        between=scene.wait,
        of=of,
    )


def _bare(launch, executable, native):
    return lambda: launch(executable, native)
