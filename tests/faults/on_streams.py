"""The operations on streams and events."""

from __future__ import annotations

from ctypes import addressof, c_uint32, c_uint64

import accelerator_graph as ag
from accelerator_graph._core import ownership
from accelerator_graph.backends import registry
from accelerator_graph.backends.base import Capability

from .bench import CELL, A, B, Bench
from .calls import Phase, no_phase
from .operation import Operation
from .vendor import BACKEND, vendor


def make_stream(bench: Bench, phase: Phase = no_phase) -> None:
    bench.kept = ag.Stream(0, backend=BACKEND, priority=-1)


def make_stream_like(bench: Bench, phase: Phase) -> None:
    bench.kept = ag.Stream(like=bench.stream)


def adopt(bench: Bench, phase: Phase) -> None:
    bench.kept = ag.Graph(stream=bench.stream.handle, backend=BACKEND).device


def enter(bench: Bench, phase: Phase) -> None:
    with bench.stream, bench.fork:
        phase("body")
        assert ag.current_stream() is bench.fork
        phase("after")


def is_capturing(bench: Bench, phase: Phase) -> None:
    with bench.stream:
        assert not ag.is_current_stream_capturing()


def fill(bench: Bench, phase: Phase) -> None:
    bench.stream.fill(A, 3)


def copy(bench: Bench, phase: Phase) -> None:
    bench.stream.copy(B, A)


def launch(bench: Bench, phase: Phase) -> None:
    arguments = (c_uint64(addressof(CELL)), c_uint32(0), c_uint32(1), c_uint64(0))
    bench.stream.launch(vendor.kernel(), *arguments, grid=1, block=1)


def record(bench: Bench, phase: Phase = no_phase) -> None:
    bench.kept = bench.stream.record()


def record_external(bench: Bench, phase: Phase = no_phase) -> None:
    bench.kept = bench.stream.record(external=True)


def record_timed(bench: Bench, phase: Phase = no_phase) -> None:
    bench.kept = bench.stream.record(timing=True)


def record_two(bench: Bench) -> None:
    bench.kept = bench.stream.record(timing=True), bench.stream.record(timing=True)
    bench.stream.synchronize()


def elapsed(bench: Bench, phase: Phase) -> None:
    start, end = bench.kept
    assert start.elapsed_time(end) >= 0


def drop(bench: Bench, phase: Phase) -> None:
    bench.kept = None
    ownership.drain()


def host_memory(bench: Bench, phase: Phase) -> None:
    bench.kept = bench.stream._backend.host_memory(bench.stream.native, 2)


def free_host_memory(bench: Bench, error: Exception | None) -> None:
    if bench.kept:
        vendor.free_host(bench.kept)


WRITES_HOST_MEMORY = Capability.PROGRESS in registry.get(BACKEND).capabilities(0)
"""False on AMD's runtime 6.4."""

STREAMS = (
    Operation("stream", make_stream),
    *([Operation("stream-first-on-device", make_stream, vendor.FIRST_USE)] if vendor.FIRST_USE else []),
    Operation("stream-like", make_stream_like),
    Operation("stream-of-handle", adopt),
    Operation("stream-entered-nested", enter),
    Operation("stream-is-capturing", is_capturing),
    Operation("stream-record", record),
    Operation("stream-wait-event", lambda b, _: b.fork.wait(b.kept), record),
    Operation("stream-record-external", record_external),
    Operation("stream-wait-external-event", lambda b, _: b.fork.wait(b.kept), record_external),
    Operation("stream-wait-stream", lambda b, _: b.fork.wait(b.stream)),
    Operation("stream-record-timed", record_timed),
    Operation("event-query", lambda b, _: b.kept.query(), record),
    Operation("event-synchronize", lambda b, _: b.kept.synchronize(), record_timed),
    Operation("event-elapsed-time", elapsed, record_two),
    Operation("stream-query", lambda b, _: b.stream.query()),
    Operation("stream-synchronize", lambda b, _: b.stream.synchronize()),
    Operation("stream-fill", fill),
    Operation("stream-copy", copy),
    Operation("stream-launch", launch),
    *([Operation("stream-host-memory", host_memory, check=free_host_memory)] if WRITES_HOST_MEMORY else []),
    Operation("stream-close", lambda b, _: b.kept.close(), make_stream),
    Operation("stream-dropped", drop, make_stream),
    Operation("event-dropped", drop, record),
)
