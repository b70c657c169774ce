"""The steps before a replay: capturing and instantiating, with the bare binding and with this library."""

from __future__ import annotations

from time import perf_counter_ns

import accelerator_graph as ag

OURS = "accelerator_graph"
BARE = "the bare begin and end"


def life(work, capture, instantiate=None, release=lambda _: None):
    """Return a function that captures, instantiates and releases, and returns the ns of each step.

    `capture` takes the work, `instantiate` the result of `capture`, and `release` that of `instantiate`.
    """

    def run():
        inside = 0

        def timed():
            nonlocal inside
            begin = perf_counter_ns()
            work()
            inside = perf_counter_ns() - begin

        begin = perf_counter_ns()
        state = capture(timed)
        whole = perf_counter_ns() - begin
        steps = {"capture": whole, "begin and end alone": whole - inside}
        if instantiate is not None:
            begin = perf_counter_ns()
            state = instantiate(state)
            steps["instantiate"] = perf_counter_ns() - begin
        release(state)
        return steps

    return run


def bare(scene, stream, nodes):
    """Return the life of a graph that uses only calls of cuda.bindings."""
    native, handle = stream.native, stream.handle

    def capture(work):
        scene.begin(native)
        work()
        return scene.end(native)

    return life(
        lambda: scene.enqueue(handle, nodes),
        capture,
        lambda graph: (graph, scene.instantiate(graph)),
        lambda both: scene.destroy(*both),
    )


def ours(scene, stream, nodes):
    """Return the lives of this library's graphs, captured in each possible way."""
    handle = stream.handle
    graph = ag.Graph(keep_graph=True, stream=stream)

    def by_hand(work):
        graph.capture_begin()
        work()
        graph.capture_end()

    def in_with(work):
        with graph:
            work()

    def in_graph(work):
        with ag.graph(graph):
            work()

    return {
        f"{OURS}: {name}": life(
            lambda: scene.enqueue(handle, nodes),
            capture,
            lambda _: graph.instantiate(),
            lambda _: graph.reset(),
        )
        for name, capture in (
            ("capture_begin(), capture_end()", by_hand),
            ("with g", in_with),
            ("with graph(g)", in_graph),
        )
    }
