"""A KeyboardInterrupt at any line of a change of a graph leaves one of two states, whole."""

import sys
from contextlib import nullcontext

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership, pools
from accelerator_graph.backends.cpu import CpuBackend
from core.test_interrupts import Interrupter, framework, nothing_is_captured  # noqa: F401
from lanes import sample, step

CELL = bytearray(1)


def captured(stream, log, *words, keep_graph=True):
    with ag.Graph(keep_graph=keep_graph, stream=stream) as graph:
        stream.fill(CELL, ord(words[-1]))
        for word in words:
            stream.launch(log.append, word)
    return graph


def in_place(graph, stream, log):
    graph.update(captured(stream, log, "b"))


def anew(graph, stream, log):
    graph.update(captured(stream, log, "b", "c"))


def recapture(graph, stream, log):
    with graph.recapture():
        stream.fill(CELL, ord("b"))
        stream.launch(log.append, "b")


def set_node(graph, stream, log):
    graph.set_node(0, value=7)


def reset(graph, stream, log):
    graph.reset()


def instantiate(graph, stream, log):
    graph.instantiate()


class Array:
    """Can be watched."""


ARRAYS = []


def watch(graph, stream, log):
    graph.watch(ARRAYS[-1])


class LaunchesAtOnce(CpuBackend):
    """Several threads may launch one executable at once, as on CUDA."""

    serialises_replays = True


@pytest.fixture(params=["cpu", "at_once"])
def backend(request):
    ag.backends.register("at_once", LaunchesAtOnce)
    yield request.param
    ag.backends.unregister("at_once")


def attempt(way, keep, at, backend="cpu"):
    log, stream = [], ag.Stream(backend=backend)
    graph = captured(stream, log, "a", keep_graph=keep)
    bound, interrupter = graph.bind(), Interrupter(at, KeyboardInterrupt)
    if keep and way is not set_node and backend == "cpu":
        graph.set_node(0, value=7)
    before = sys.gettrace()
    raised = False
    try:
        sys.settrace(interrupter)
        way(graph, stream, log)
    except KeyboardInterrupt:
        raised = True
    finally:
        sys.settrace(before)
    return graph, bound, stream, log, interrupter, raised


@pytest.mark.promise("update-that-fails")
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "not kept"])
@pytest.mark.parametrize("way", [in_place, anew, recapture])
def test_an_interrupt_at_any_line_leaves_either_work(way, keep, backend, capsys):
    lines = attempt(way, keep, 0, backend)[4].lines
    assert lines > 100
    dropped = set()
    for at in sample("lines", lines):
        graph, bound, stream, log, interrupter, raised = attempt(way, keep, at, backend)
        where = f"interrupted at line {at} of {lines}, {interrupter.where}"
        assert raised or not interrupter.where, where
        nothing_is_captured(where)
        assert graph.state in (("ready", "captured") if keep else ("ready",)), where
        if graph.state == "captured":
            dropped.add(interrupter.where)
            with pytest.raises(ag.GraphStateError, match="an update of the graph has failed"):
                bound()
        graph.replay()
        stream.synchronize()
        first, log[:] = "".join(log), []
        assert first in ("a", "b", "bc"), where
        if keep:
            assert graph.describe().nodes[0].value == CELL[0], where
        bound()
        stream.synchronize()
        assert "".join(log) == first, where
        graph.reset()
        ownership.drain()
    assert keep or not dropped
    assert dropped or not keep or step("lines") > 1
    assert capsys.readouterr().err == ""


def test_a_reset_that_was_interrupted_twice_can_be_called_again(monkeypatch):
    log, stream = [], ag.Stream(backend="cpu")
    graph = captured(stream, log, "a")
    bound, release, interrupts = graph.bind(), pools.Lease.release, [KeyboardInterrupt] * 2

    def interrupted(lease):
        if interrupts:
            raise interrupts.pop()
        release(lease)

    monkeypatch.setattr(pools.Lease, "release", interrupted)
    with pytest.raises(KeyboardInterrupt):
        graph.reset()
    assert interrupts == []
    with pytest.raises(ag.GraphStateError, match="was reset"):
        bound()
    graph.reset()
    assert graph.state == "empty"
    with graph:
        stream.launch(log.append, "b")
    graph.replay()
    stream.synchronize()
    assert log == ["b"]


def test_an_interrupt_at_any_line_of_a_reset():
    lines = attempt(reset, True, 0)[4].lines
    for at in range(1, lines + 1):
        graph, bound, stream, log, interrupter, _ = attempt(reset, True, at)
        where = f"interrupted at line {at} of {lines}, {interrupter.where}"
        calls = bound, graph.bind() if graph.state == "ready" else graph.replay
        assert graph.state in ("ready", "empty"), where
        for call in calls:
            with nullcontext() if graph.state == "ready" else pytest.raises(ag.GraphStateError):
                call()
        stream.synchronize()
        assert log == (["a"] * 2 if graph.state == "ready" else []), where


def test_an_interrupt_at_any_line_of_instantiate():
    """All callables launch one executable, and the next change reaches all of them."""
    lines = attempt(instantiate, True, 0)[4].lines
    assert lines > 20
    seen = set()
    for at in range(1, lines + 1):
        graph, bound, stream, log, interrupter, raised = attempt(instantiate, True, at)
        where = f"interrupted at line {at} of {lines}, {interrupter.where}"
        assert raised or not interrupter.where, where
        assert graph.state == "ready", where
        calls, filled = (bound, graph.replay, graph.bind()), []
        for call in calls:
            CELL[0] = 0
            call()
            stream.synchronize()
            filled.append(CELL[0])
        assert filled == [graph.describe().nodes[0].value] * 3, where
        seen.add(filled[0])
        graph.set_node(0, value=9)
        assert graph.update(captured(stream, log, "b")).in_place, where
        log.clear()
        for call in calls:
            call()
        stream.synchronize()
        assert (log, CELL[0]) == (["b"] * 3, ord("b")), where
    assert seen == {7, ord("a")}


def test_an_interrupt_at_any_line_of_the_first_change_of_a_node(backend):
    lines = attempt(set_node, True, 0, backend)[4].lines
    assert lines > 50
    seen = set()
    for at in range(1, lines + 1):
        graph, bound, stream, log, interrupter, _ = attempt(set_node, True, at, backend)
        where = f"interrupted at line {at} of {lines}, {interrupter.where}"
        ownership.drain()
        for call in (bound, graph.replay):
            CELL[0] = 0
            call()
            stream.synchronize()
            assert CELL[0] == graph.describe().nodes[0].value, where
        assert log == ["a"] * 2, where
        seen.add(CELL[0])
    assert seen == {7, ord("a")}


def test_an_interrupt_at_any_line_of_a_watch():
    """All callables have the check or none, and the next watch reaches all of them."""
    ARRAYS[:] = [Array()]
    lines = attempt(watch, True, 0)[4].lines
    assert lines > 10
    seen = set()
    for at in range(1, lines + 1):
        ARRAYS[:] = [Array()]
        graph, bound, stream, _, interrupter, raised = attempt(watch, True, at)
        where = f"interrupted at line {at} of {lines}, {interrupter.where}"
        ARRAYS.clear()
        refused = [refuses(call) for call in (bound, graph.replay, graph.bind())]
        assert len(set(refused)) == 1, where
        assert raised or refused[0], where
        seen.add(refused[0])
        if not refused[0]:
            array = graph.watch(Array())
            assert not any(map(refuses, (bound, graph.replay))), where
            del array
            assert all(map(refuses, (bound, graph.replay))), where
        stream.synchronize()
    assert seen == {False, True}


def refuses(call):
    try:
        call()
    except ag.GraphStateError as error:
        return "is gone" in str(error)
    return False
