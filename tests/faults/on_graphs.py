"""The operations on a graph that was captured."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import addressof
from functools import partial
from typing import Any

import accelerator_graph as ag
from accelerator_graph._core import ownership, profiling
from accelerator_graph.backends.base import addresses_in

from .bench import NOTHING, A, Bench, C, faults, found, left
from .calls import Call, Phase
from .on_captures import replays
from .operation import Operation
from .vendor import vendor

KEPT = {"keep_graph": True}
SIXES = vendor.memory(8)
SIXES[:] = bytes([6] * 8)
ONLY_ONE_EXECUTABLE = 801
"""What the driver answers to a second executable of a graph that allocates."""


def captured(bench: Bench) -> None:
    bench.capture(5)


def ready(bench: Bench) -> None:
    captured(bench)
    bench.kept = bench.graph.bind()


def allocating(bench: Bench) -> None:
    with bench.graph:
        memory = vendor.allocate(bench.stream.native)
        bench.stream.fill(memory, 1, 16)
        vendor.free(bench.stream.native, memory)
        bench.work(bench.stream, 5)
    bench.kept = bench.graph.bind()


def gone(bench: Bench, error: Exception | None) -> None:
    (still_launches if bench.graph.state == "ready" else refused)(bench, error)


def refused(bench: Bench, error: Exception | None) -> None:
    with suppress(ag.errors.GraphStateError):
        bench.kept()
        raise AssertionError("the callable launched what is gone")


def still_launches(bench: Bench, error: Exception | None) -> None:
    assert bench.run(bench.kept) == left(5)
    replays(bench, error)


def gone_with_the_old_one(call: Call) -> str:
    destroying = next(name for name, kind in vendor.DESTROYS.items() if kind == "executables")
    return "captured" if call.role == "clean-up" or destroying in call.after else "ready"


def launches_or_says_so(bench: Bench, error: Exception | None) -> None:
    if bench.graph.state == "ready":
        still_launches(bench, error)
    else:
        refused(bench, error)
        if getattr(error, "code", None) != ONLY_ONE_EXECUTABLE:  # for the old one lives after all
            assert bench.run() == left(5)
            assert bench.run(bench.kept) == left(5)


def ran_at_most_once(bench: Bench, error: Exception | None) -> None:
    bench.stream.synchronize()
    bench.fork.synchronize()
    now = found()
    assert now == left(5) or (error and now == NOTHING)
    replays(bench, error)


def branching(bench: Bench) -> None:
    """Capture a graph with two first and two last nodes."""
    with bench.graph:
        bench.fork.wait(bench.stream)
        bench.stream.fill(A, 5)
        bench.fork.fill(C, 6)
        bench.stream.wait(bench.fork)


def ran_branching(bench: Bench, error: Exception | None) -> None:
    nodes = len(bench.graph.describe().nodes)
    assert nodes == 2 or bench.left_undone == vendor.DESTROY_NODE, "added nodes are left"
    bench.graph.replay()
    bench.stream.synchronize()
    assert found() == (bytes([5] * 8), bytes(8), bytes([6] * 8), bytes(4))


def replayed_elsewhere(bench: Bench) -> None:
    captured(bench)
    bench.graph.replay(bench.fork)


def ran_and_still_waits(bench: Bench, error: Exception | None) -> None:
    if error and vendor.WAITS_FOR_LAST_RUN and vendor.LAUNCH not in str(error):
        before = faults.calls()[vendor.WAIT]
        bench.graph.replay()
        assert faults.calls()[vendor.WAIT] == before + 1, "the run on the other stream was forgotten"
        vendor.quiesce()
        found()
    else:
        ran_at_most_once(bench, error)


def in_its_context(bench: Bench) -> None:
    captured(bench)
    vendor.enter_device()


def unless_instantiated(call: Call) -> str:
    return "ready" if vendor.INSTANTIATE in call.after else "captured"


def dump(bench: Bench, phase: Phase) -> None:
    bench.graph.debug_dump(bench.kept.name)


def for_dump(bench: Bench) -> None:
    captured(bench)
    bench.kept = tempfile.NamedTemporaryFile("w+", prefix="step", suffix=".dot")  # noqa: SIM115
    bench.kept.write("before")
    bench.kept.flush()


def whole_or_as_before(bench: Bench, error: Exception | None) -> None:
    folder, name = os.path.split(bench.kept.name)
    assert [each for each in os.listdir(folder) if each.startswith(name)] == [name]
    with open(bench.kept.name, encoding="utf-8") as file:
        text = file.read()
    assert text == "before" if error else text.startswith("digraph")


def instantiated(bench: Bench) -> None:
    captured(bench)
    bench.graph.instantiate()


def nodes(bench: Bench, phase: Phase) -> None:
    backend = bench.stream._backend
    listed, edges = backend.nodes(bench.graph._runner.captured.value)
    assert len(listed) == 4
    assert len(edges) == 4


def with_nodes(bench: Bench) -> None:
    """Keep changes after which the graph leaves 6 behind."""
    instantiated(bench)
    nodes = bench.graph.describe().nodes
    fills = {node.id: {"value": node.value + 1} for node in nodes if node.kind == "memset"}
    copies = {node.id: {"source": SIXES, "enabled": True} for node in nodes if node.kind == "memcpy"}
    kernels = {node.id: {"arguments": {2: 6}, "enabled": True} for node in nodes if node.kind == "kernel"}
    bench.kept = fills | copies | kernels


def set_nodes(bench: Bench, phase: Phase) -> None:
    if vendor.SETS_NODES:
        bench.graph.set_nodes(bench.kept)
        return
    with suppress(ag.UnsupportedError):
        bench.graph.set_nodes(bench.kept)
        raise AssertionError("nodes were changed")


def all_set_or_none(bench: Bench, error: Exception | None) -> None:
    changed = vendor.SETS_NODES and error is None
    assert bench.run() == left(6 if changed else 5)
    bench.graph.instantiate()
    replays(bench, error)


def memory(bench: Bench, phase: Phase) -> None:
    backend = bench.stream._backend
    captured = bench.graph._runner.captured
    assert captured is not None
    told = backend.device_memory(captured.value)
    assert told is not None
    assert 0 < told.free <= told.total
    backend.host_bytes(captured.value)
    assert "gone" not in backend.memory_at(captured.value, [addressof(A)])
    parameters = backend.parameters(captured.value)
    known = None if parameters is None else addresses_in(parameters)
    assert known is None or {addressof(A), addressof(C)} <= known


def handles(bench: Bench, phase: Phase) -> None:
    graph = bench.graph
    assert len({graph.raw_graph(), graph.raw_executable(), bench.stream.handle}) == 3
    assert graph.raw_cuda_graph() == graph.raw_graph()
    assert graph.raw_cuda_graph_exec() == graph.raw_executable()


def with_another(bench: Bench) -> None:
    """Have an executable of a fill, which has a lock, and another graph of a fill."""
    bench.kept = ag.Graph(stream=bench.stream, **KEPT)
    for graph, value in ((bench.graph, 5), (bench.kept, 6)):
        with bench.stream, graph:
            bench.stream.fill(A, value)
    bench.graph.instantiate()
    bench.graph.update(bench.graph.clone())


def with_a_shorter_one(bench: Bench) -> None:
    instantiated(bench)
    bench.graph.update(bench.graph.clone())
    bench.kept = ag.Graph(stream=bench.stream, **KEPT)
    with bench.stream, bench.kept:
        bench.stream.fill(A, 6)


@contextmanager
def told_when_updating(bench: Bench, phase: Phase) -> Iterator[None]:
    """Tell which calls are made to update an executable: instead of it there can be a new one."""
    kind = type(bench.stream._backend)
    own = kind.update

    def update(*args: Any) -> Any:
        phase("updating")
        try:
            return own(*args)
        finally:
            phase("")

    kind.update = update
    try:
        yield
    finally:
        kind.update = own


def update(bench: Bench, phase: Phase) -> None:
    with told_when_updating(bench, phase):
        bench.graph.update(bench.kept)


def recapture(bench: Bench, phase: Phase) -> None:
    with told_when_updating(bench, phase), bench.stream, bench.graph.recapture():
        bench.work(bench.stream, 6)


def clone(bench: Bench, phase: Phase) -> None:
    bench.kept = bench.graph.clone()


def filled(value: int) -> tuple[bytes, ...]:
    return (bytes([value] * 8), *NOTHING[1:])


def does_either_work(bench: Bench, error: Exception | None) -> None:
    now = bench.run()
    assert now in ((left(5), filled(5)) if error else (left(6), filled(6)))
    assert bench.run() == now


def cloned(bench: Bench, error: Exception | None) -> None:
    replays(bench, error)
    if error is None:
        assert bench.run(bench.kept.replay) == left(5)


class Unsettled:
    """Stays with a graph, and asks to be asked ahead of each replay."""

    def check(self) -> bool:
        return False


def checked(bench: Bench) -> None:
    """Capture a graph that C never launches, so that every call can be noted."""
    captured(bench)
    bench.graph._runner.observe(Unsettled())


def profile(bench: Bench, phase: Phase) -> None:
    assert bench.graph.profile(1, state=[A, C]).nodes == 4


def parts(bench: Bench, phase: Phase) -> None:
    captured = bench.graph._runner.captured
    contents = captured.backend.nodes(captured.native)
    places = profiling.borders([(0, 4), (1, 2)], contents)
    copy = profiling.Sections(bench.stream, captured, places)
    try:
        copy.launch()
        bench.stream.synchronize()
    except BaseException:  # the run has to be over before the copy goes, as in `profile`
        with suppress(ag.DriverError):
            bench.stream.synchronize()
        raise
    assert len(copy.spans() or ()) == 2


def put_back(bench: Bench, error: Exception | None) -> None:
    vendor.quiesce()  # if the last wait has failed, the copies are still under way
    now = found()
    struck = error and not isinstance(error, ag.DriverError)
    if not error or struck or re.search("GraphLaunch|Event|StreamSynchronize", str(error)):
        assert (now[0], now[2]) == (NOTHING[0], NOTHING[2]), "what was given as state has changed"
    replays(bench, error)


def drop(bench: Bench, phase: Phase) -> None:
    bench.graph = bench.kept = None
    ownership.drain()


def capturing(bench: Bench) -> None:
    bench.graph.capture_begin()
    bench.stream.fill(A, 1)


def instantiate(bench: Bench, phase: Phase) -> None:
    bench.graph.instantiate()


def replay(bench: Bench, phase: Phase) -> None:
    bench.graph.replay()


def reset(bench: Bench, phase: Phase) -> None:
    bench.graph.reset()


kept = partial(Operation, prepare=captured, options=KEPT)
made = partial(kept, done="ready", check=replays)
updated = partial(made, failed="ready", interrupted=("captured",), check=does_either_work)
asked = partial(kept, done="captured", failed="captured", check=replays)
run = partial(Operation, prepare=captured, done="ready", failed="ready", check=ran_at_most_once)

allocating_again = partial(made, "instantiate-allocating-again", instantiate, prepare=allocating)
if vendor.INSTANTIATES_ALLOCATIONS_AGAIN:
    allocating_again = allocating_again(
        failed=gone_with_the_old_one, check=launches_or_says_so, consequence=ONLY_ONE_EXECUTABLE
    )
else:
    allocating_again = allocating_again(ends=ag.DriverError, failed="ready", check=still_launches)

GRAPHS = (
    made("instantiate", instantiate, failed="captured"),
    made("instantiate-again", instantiate, prepare=ready, failed="ready", check=still_launches),
    allocating_again,
    made("instantiate-branching", instantiate, prepare=branching, failed="captured", check=ran_branching),
    run("replay", replay),
    run("replay-after-another-stream", replay, prepare=replayed_elsewhere, check=ran_and_still_waits),
    run("replay-first", replay, options=KEPT, failed=unless_instantiated),
    run("replay-on-stream", lambda bench, _: bench.graph.replay(bench.fork)),
    run("replay-on-handle", lambda bench, _: bench.graph.replay(bench.fork.handle)),
    run(
        "replay-on-per-thread-stream",
        lambda bench, _: bench.graph.replay(2),
        prepare=in_its_context,
        check=replays,
    ),
    run("bind", lambda bench, _: bench.graph.bind(bench.fork), check=replays),
    made("bind-first", lambda bench, _: bench.graph.bind(), failed=unless_instantiated),
    run("bound", lambda bench, _: bench.kept(), prepare=ready),
    run("profile", profile, prepare=checked, check=put_back),
    asked("time-parts", parts, ignores=vendor.TELLING, made=5),
    asked("debug-dump", dump, prepare=for_dump, check=whole_or_as_before),
    asked("num-nodes", lambda bench, _: bench.graph.num_nodes),
    asked("nodes", nodes, ignores=vendor.TELLING),
    made("set-nodes", set_nodes, prepare=with_nodes, failed="ready", check=all_set_or_none),
    updated("update", update, prepare=with_another),
    updated("update-anew", update, prepare=with_a_shorter_one),
    updated("recapture", recapture, prepare=with_a_shorter_one),
    asked("clone", clone, check=cloned),
    asked("memory", memory, ignores=vendor.KNOWING),
    made("raw-handles", handles, prepare=instantiated),
    kept("reset", reset, prepare=ready, interrupted=("ready",), check=gone),
    Operation("reset-capturing", reset, capturing),
    kept("graph-dropped", drop, prepare=ready),
)
