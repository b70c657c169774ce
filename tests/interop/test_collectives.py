"""Collectives that a framework's interop module sees in captures, on the cpu backend."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph.interop.base import Collective, Framework

NAME = "standin_with_collectives"
log: list[str] = []
current = None


class Standin(Framework):
    api_version = 1

    def backend(self):
        return "cpu"

    def observe_collectives(self, note):
        global current
        current = note
        log.append("observe")
        return lambda: log.append("undo")


@pytest.fixture(autouse=True)
def standin(monkeypatch):
    monkeypatch.setitem(sys.modules, NAME, ModuleType(NAME))
    log.clear()
    interop.register(NAME, Standin)
    yield
    interop.unregister(NAME)


def test_what_a_framework_notes_is_the_graphs():
    one, two = Collective("all_reduce", "0", (0, 1), "float32", 4), Collective("barrier", "0", (0, 1))
    with ag.Stream(backend="cpu") as stream, ag.Graph() as graph:
        stream.launch(str)
        current(one)
        ag.note_collective("broadcast", "int8", 1, peer=0)
        current(two)
        assert log == ["observe"]
    assert [each.kind for each in graph.collectives] == ["all_reduce", "broadcast", "barrier"]
    assert graph.collectives[0] is one
    assert log == ["observe", "undo"]


def test_it_ends_with_a_capture_that_fails():
    graph = ag.Graph()

    def fail():
        current(Collective("all_reduce"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), ag.Stream(backend="cpu"), graph:
        fail()
    assert log == ["observe", "undo"]
    assert graph.collectives == ()


def test_an_error_in_it_leaves_no_trace(monkeypatch):
    monkeypatch.setattr(Standin, "observe_collectives", lambda *_: 1 // 0)
    graph = ag.Graph()
    with pytest.raises(ZeroDivisionError), ag.Stream(backend="cpu"), graph:
        pass
    assert graph.state == "empty"
    assert not ag.is_current_stream_capturing()
    monkeypatch.setattr(Standin, "observe_collectives", Framework.observe_collectives)
    with ag.Stream(backend="cpu") as stream, graph:
        stream.launch(str)
    assert graph.collectives == ()


def test_captures_in_captures_have_their_own():
    with ag.Graph(stream=ag.Stream(backend="cpu")) as outer:
        outer.stream.launch(str)
        ag.note_collective("all_reduce", "float32", 1)
        with ag.Graph(stream=ag.Stream(backend="cpu")) as inner:
            inner.stream.launch(str)
            ag.note_collective("all_gather", "float32", 2)
        ag.note_collective("barrier", "", 0)
    assert [each.kind for each in inner.collectives] == ["all_gather"]
    assert [each.kind for each in outer.collectives] == ["all_reduce", "barrier"]
