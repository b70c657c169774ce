"""What the runtime creates is released: its own trace is counted, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

PROGRAM = """
import gc, sys
from contextlib import suppress
import accelerator_graph as ag
from accelerator_graph_sycl.conformance import SyclWork

work = SyclWork()
cell = work.new()
for _ in range(int(sys.argv[1])):
    stream, side = ag.Stream(backend="sycl"), ag.Stream(backend="sycl")
    inner = ag.Graph(stream=side)
    with inner:
        work.enqueue(side, cell, 1, 1)
    graph = ag.Graph(stream=stream, keep_graph=True)
    with graph:
        work.enqueue(stream, cell, 1, 1)
        side.wait(stream)
        work.enqueue(side, cell, 1, 1)
        stream.wait(side)
        inner.replay(stream)
    graph.instantiate()
    graph.replay()
    graph.bind(side)()
    graph.instantiate()
    graph.replay()
    stream.wait(side.record())
    with suppress(ag.CaptureError), ag.Graph(stream=stream):  # unjoined
        side.wait(stream)
        work.enqueue(side, cell, 1, 1)
    with suppress(ZeroDivisionError), ag.Graph(stream=stream):
        work.enqueue(stream, cell, 1, 1)
        1 / 0
    abandoned = ag.Graph(stream=stream)
    abandoned.capture_begin()
    abandoned.reset()
    stream.synchronize()
    side.synchronize()
    graph.reset()
    inner.reset()
    del stream, side, graph, inner, abandoned
    gc.collect()
"""

CALL = re.compile(r"<--- ur(\w+)\((.*)")
KINDS = ("CommandBuffer", "Queue", "Event", "Kernel")


def balance(rounds: int) -> tuple[Counter[str], Counter[str]]:
    """Return how many objects were made, and how many of them were not released, by kind."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(rounds)],
        env={**os.environ, "SYCL_UR_TRACE": "2"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    made: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for call, arguments in CALL.findall(done.stdout + done.stderr):
        for kind in KINDS:
            if re.match(f"{kind}(Create|Retain)", call) or (kind == "Event" and ".phEvent = 0x" in arguments):
                made[kind] += 1
                left[kind] += 1
            elif re.match(f"{kind}Release", call):
                left[kind] -= 1
    return made, left


def test_nothing_is_left_over() -> None:
    (few, left_by_few), (many, left_by_many) = balance(1), balance(6)
    assert many["CommandBuffer"] - few["CommandBuffer"] == 5 * 3
    assert many["Queue"] - few["Queue"] >= 5 * 2
    assert many["Event"] - few["Event"] >= 5 * 3
    assert left_by_many == left_by_few
