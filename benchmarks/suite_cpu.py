"""Replay on the CPU backend against a plain loop over the same callables, and calls of `graphed`."""

from time import perf_counter_ns

from _measure import loop

import accelerator_graph as ag

PLAIN = "plain loop"


def nothing():
    pass


def measure(plan):
    for n in (1, 1000):
        stream = ag.Stream(backend="cpu")
        with stream, ag.Graph() as graph:
            for _ in range(n):
                stream.launch(nothing)
        calls = [(nothing, (), {})] * n
        plan.compare("replay and synchronise", n, _variants(graph, stream, calls), PLAIN)
    _graphed(plan)


def _variants(graph, stream, calls):
    def plain(rounds):
        begin = perf_counter_ns()
        for _ in range(rounds):
            for fn, args, kwargs in calls:
                fn(*args, **kwargs)
        return perf_counter_ns() - begin

    def waited(launch):
        def once():
            launch()
            stream.synchronize()

        return loop(once)

    return {
        PLAIN: plain,
        "accelerator_graph: bind()": waited(graph.bind()),
        "accelerator_graph: replay()": waited(graph.replay),
    }


def _graphed(plan):
    try:
        import numpy as np
    except ImportError:
        plan.skip("graphed", "NumPy is not installed")
        return
    inputs = [np.random.default_rng(n).random(64) for n in range(4)]

    def step(a, b, c, d):
        launch = ag.current_stream().launch
        x = np.empty_like(a)
        launch(np.multiply, a, b, x)
        launch(np.add, x, c, x)
        for _ in range(9):
            launch(np.multiply, x, b, x)
            launch(np.add, x, d, x)
        return x

    stream = ag.Stream(backend="cpu")

    def waited(function):
        def once():
            function(*inputs)
            stream.synchronize()

        return loop(once)

    with stream:
        variants = {
            "eager": step,
            "accelerator_graph: graphed, static outputs": ag.graphed(step, outputs="static"),
            "accelerator_graph: graphed, copied outputs": ag.graphed(step, outputs="copy"),
        }
        for function in variants.values():
            for _ in range(5):
                function(*inputs)
        runs = {name: waited(function) for name, function in variants.items()}
        plan.compare("graphed, 20 operations", None, runs, "eager")
