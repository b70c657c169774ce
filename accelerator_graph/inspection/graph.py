"""How `Graph.describe` and `Graph.profile` read a graph."""

from __future__ import annotations

from collections.abc import Iterable

from .._core import profiling
from .._core.lifecycle import Lifecycle
from .._core.marks import if_in_order
from .contents import Label
from .description import GraphDescription
from .profile import GraphProfile


def describe(graph: Lifecycle) -> GraphDescription:
    """Return what is in a graph."""
    captured, home = graph._kept("describe()"), graph._home
    assert home is not None
    runner = graph._runner_for("describe()")
    contents = runner.contents(captured)
    labelled = if_in_order(captured.labels, contents[1], captured.backend)
    pool = runner.lease.shown
    return GraphDescription.of(
        home.backend, home.device, contents, map(Label._make, labelled), captured.mode, (pool[0], pool[1])
    )


def profile(graph: Lifecycle, replays: int, state: Iterable[object] | None, kernels: bool) -> GraphProfile:
    """Return how long a graph's work takes; run it to find out."""
    runner = graph._runner_for("profile()")
    replays, arrays, kernels = profiling.checked(replays, state, kernels)
    traced = graph._kept("profile()") if kernels else None
    graph._make_ready(runner)
    stream, nodes, found, (times, spans, seen) = profiling.measure(runner, graph, replays, arrays, traced)
    labels = [Label._make(each) for each in found.labels]
    measured = GraphProfile.of(
        stream.backend, stream.device, nodes, times, labels, spans, found.cut, found.why_not
    )
    return measured if traced is None else measured.with_kernels(describe(graph).nodes, seen)
