"""Captures: every way to make one, with every end that the body can come to."""

from __future__ import annotations

from functools import partial
from typing import Any

import accelerator_graph as ag

from .bench import A, Bench, left
from .calls import Call, Phase
from .operation import Operation, nothing
from .vendor import BACKEND, vendor


def body(bench: Bench, phase: Phase, end: str) -> None:
    phase("body")
    stream = ag.current_stream()
    assert stream is not None
    bench.work(stream, 5)
    if end == "breaks":
        phase("breaking")
        stream.synchronize()
    phase("after")
    if end == "raises":
        raise LookupError("the body's own")


def with_graph(bench: Bench, phase: Phase, end: str) -> None:
    phase("before")
    with bench.graph:
        body(bench, phase, end)


def with_stream_and_graph(bench: Bench, phase: Phase, end: str) -> None:
    phase("before")
    with bench.stream, bench.graph:
        body(bench, phase, end)


def on_side_stream(bench: Bench, phase: Phase, end: str) -> None:
    phase("before")
    with bench.stream, ag.graph(bench.graph):
        body(bench, phase, end)


def on_per_thread_stream(bench: Bench, phase: Phase, end: str) -> None:
    phase("before")
    with bench.graph:
        phase("body")
        bench.graph.stream.fill(A, 5)
        phase("after")
        if end == "raises":
            raise LookupError


def by_hand(bench: Bench, phase: Phase, end: str) -> None:
    phase("before")
    bench.graph.capture_begin()
    try:
        body(bench, phase, end)
        bench.graph.capture_end()
    finally:
        if bench.graph.state == "capturing":
            bench.graph.reset()


GRAPHS = 2 if BACKEND == "cuda" else 1
"""A graph with a child: the software driver counts both."""


def made_once() -> tuple[ag.Graph, ag.Event, ag.Stream]:
    """Return a kept graph that can be recorded in another one, and an event that crosses captures.

    They are there before all operations: what lives, and which pools are in use, is compared with before.
    """
    stream = ag.Stream(0, backend=BACKEND)
    graph = ag.Graph(stream=stream, keep_graph=True)
    with graph:
        stream.fill(A, 5)
    graph.instantiate()
    return graph, stream.record(external=True), stream


INNER, EVENT, STREAM = made_once()


def inner(bench: Bench) -> None:
    """Let no capture be the latest that has recorded the event."""
    STREAM.record(external=EVENT)
    STREAM.synchronize()
    bench.kept = INNER, EVENT


def with_a_child(bench: Bench, phase: Phase) -> None:
    phase("before")
    with bench.graph:
        phase("body")
        bench.kept[0].bind(bench.stream)()  # as `add` does, which remembers the stream
        phase("after")


def with_external_events(bench: Bench, phase: Phase) -> None:
    phase("before")
    with bench.graph:
        phase("body")
        bench.stream.wait(bench.kept[1])
        bench.stream.fill(A, 5)
        bench.stream.record(external=bench.kept[1])
        bench.stream.wait(bench.kept[1])
        phase("after")


WAYS = {
    "with": with_graph,
    "with-stream": with_stream_and_graph,
    "side-stream": on_side_stream,
    "by-hand": by_hand,
    "per-thread": on_per_thread_stream,
}
ENDS: dict[str, type[Exception] | None] = {"passes": None, "raises": LookupError, "breaks": ag.CaptureError}


def captures(way: str, end: str, done: str = "ready", **options: Any) -> Operation:
    name = "-".join(("capture", way, end, *map(str, options.values())))
    ends = ENDS[end]
    if way == "by-hand" and end == "breaks":
        ends = ag.DriverError
    run = partial(WAYS[way], end=end)
    done = "empty" if ends else done
    prepare, check = PREPARED.get(way, nothing), CHECKED.get(way, replays)
    return Operation(name, run, prepare, options, ends, done, check=check)


def homeless(bench: Bench) -> None:
    """Let the graph name no stream."""
    bench.graph = ag.Graph(pool=bench.pool)


def per_thread(bench: Bench) -> None:
    vendor.enter_device()
    bench.graph = ag.Graph(stream=2, backend=BACKEND, pool=bench.pool)


def fills(bench: Bench, error: Exception | None) -> None:
    if bench.graph.state == "ready":
        bench.graph.replay()
        bench.graph.stream.synchronize()
        assert bytes(A) == bytes([5] * 8)
    bench.graph = None


def fills_still(bench: Bench, error: Exception | None) -> None:
    if bench.graph.state == "ready":
        bench.graph.replay()
        bench.stream.synchronize()
        assert bytes(A) == bytes([5] * 8)
    bench.kept = None


def replays(bench: Bench, error: Exception | None) -> None:
    if bench.graph.state in ("captured", "ready"):
        assert bench.run() == left(5)


PREPARED = {"with-stream": homeless, "side-stream": homeless, "per-thread": per_thread}
CHECKED = {"per-thread": fills}


def kept_once_captured(call: Call) -> str:
    return "captured" if vendor.END in call.after else "empty"


CAPTURES = (
    *(captures(way, end) for way in WAYS for end in ENDS if (way, end) != ("per-thread", "breaks")),
    captures("with", "passes", "captured", keep_graph=True),
    Operation(
        "capture-debug",
        partial(with_graph, end="passes"),
        lambda bench: bench.graph.enable_debug_mode(),
        done="ready",
        failed=kept_once_captured,
        check=replays,
    ),
    captures("with", "passes", "ready", capture_error_mode="global"),
    captures("with", "passes", "ready", capture_error_mode="relaxed"),
    Operation(
        *("capture-with-a-child", with_a_child, inner),
        done="ready",
        check=fills_still,
        made=GRAPHS,
        graphs=GRAPHS,
    ),
    Operation("capture-with-external-events", with_external_events, inner, done="ready", check=fills_still),
)
