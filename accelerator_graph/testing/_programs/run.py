"""Run a program, and say where it fails."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import accelerator_graph as ag

from .._case import Case
from .._tools import Thread
from .._work import Work


def crosses(work: Work, there: Work) -> bool:
    """Return True if a stream of device 1 can wait for one of device 0 and back, in captures as well."""
    try:
        with ag.Stream(0, backend=work.backend) as stream, ag.Stream(1, backend=work.backend) as other:
            cell, elsewhere = work.new(), there.new()
            other.wait(stream)
            stream.wait(other)
            with ag.Graph(stream=stream) as graph:
                work.enqueue(stream, cell, 1, 1)
                other.wait(stream)
                there.enqueue(other, elsewhere, 1, 1)
                stream.wait(other)
            graph.replay()
            stream.synchronize()
    except (ag.CaptureError, ag.DriverError, ag.UnsupportedError):
        return False  # the contract leaves that to the backend
    return True


FILE = "<random program>"
LIMIT = 20.0
"""Seconds that replays in threads may take."""


def run(case: Case, code: str) -> None:
    """Run the code of a program, inside a test of a case."""
    namespace: dict[str, Any] = {"work": case.used}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ag.EmptyGraphWarning)
            exec(compile(code, FILE, "exec"), namespace)
    finally:
        case.adopt(namespace.values())


def report(work: Work, code: str, error: Exception) -> str:
    """Return a message with the code, in which the lines that raised the error are marked."""
    marked = {int(number) for number in re.findall(rf"{FILE}, line (\d+)", str(error))}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            marked.add(trace.tb_lineno)
        trace = trace.tb_next
    kind = type(work)
    return "\n".join(
        (
            f"a program on backend {work.backend!r} fails with {type(error).__name__}: {error}",
            "",
            f"    # work is a {kind.__module__}.{kind.__qualname__}",
            "    # work.enqueue(stream, cell, a, b) does: cell = cell * a + b",
            *(
                f"{'->  ' if number in marked else '    '}{line}"
                for number, line in enumerate(code.splitlines(), 1)
            ),
        )
    )


def in_threads(*calls: Sequence[Callable[[], object]]) -> None:
    """Make calls in threads that begin together, each its own in order, and wait for all."""
    begin = threading.Barrier(len(calls))

    def make(each: Sequence[Callable[[], object]]) -> None:
        begin.wait(LIMIT)
        for call in each:
            call()

    threads = [Thread(partial(make, each), f"replay-{number}") for number, each in enumerate(calls)]
    for thread in threads:
        thread.result(LIMIT)
