"""What lives how long: handles of our own, and what runs in progress need."""

from __future__ import annotations

import gc
from typing import Any
from weakref import WeakSet

import pytest
from accelerator_graph_opencl import _commands, _executable, _kernel
from accelerator_graph_opencl._command_buffer import CommandBuffer
from accelerator_graph_opencl._commands import Command

import accelerator_graph as ag
from conftest import TURNS, Place


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> WeakSet[Any]:
    """The commands and command buffers that were made in this test and are alive."""
    alive: WeakSet[Any] = WeakSet()
    for kind in (Command, CommandBuffer):
        watched = type(kind.__name__, (kind,), {})  # so that it can be referenced weakly
        made = kind.__init__

        def make(self: Any, *arguments: Any, made: Any = made, **how: Any) -> None:
            alive.add(self)
            made(self, *arguments, **how)

        monkeypatch.setattr(watched, "__init__", make)
        for module in (_commands, _kernel, _executable):
            if hasattr(module, kind.__name__):
                monkeypatch.setattr(module, kind.__name__, watched)
    gc.collect()
    return alive


def test_nothing_is_left_alive(place: Place, alive: WeakSet[Any]) -> None:
    cell, other = place.buffer(), place.buffer()

    def work() -> None:
        place.launch("add", cell, 1)
        place.stream.fill(other, 1)
        place.stream.copy(cell, other)

    work()
    place.stream.synchronize()
    assert not alive
    for keep in (False, True):
        graph = ag.Graph(stream=place.stream, keep_graph=keep)
        for _ in range(10):
            with graph:
                work()
            graph.replay()
            if keep:
                graph.instantiate()
            graph.replay()
            place.stream.synchronize()
            assert alive
            graph.reset()
            assert not alive
    graph.capture_begin()
    work()
    graph.reset()
    gc.collect()
    ag.Graph().reset()
    assert not alive
    assert cell.reference_count == other.reference_count == 1


def test_a_run_in_progress_keeps_what_it_needs(place: Place, alive: WeakSet[Any]) -> None:
    cell = place.buffer()
    with ag.Graph(stream=place.stream) as graph:
        for _ in range(5):
            place.launch("slow", cell, TURNS)
    graph.replay()
    graph.reset()
    assert alive
    assert place.read(cell) == [31]
    with ag.Graph(stream=place.stream) as graph:
        place.launch("slow", cell, 1)
    graph.reset()
    assert not alive
