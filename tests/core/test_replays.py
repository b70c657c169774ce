"""Replays and what they are bound to, on a backend that says which executable runs and what is destroyed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership
from accelerator_graph.backends.base import NativeCalls
from accelerator_graph.backends.cpu import CpuBackend
from threads import in_thread

NAME = "watched"
LIMIT = 120


class Watched(CpuBackend):
    """Keeps the order of what was called."""

    def open(self) -> None:
        super().open()
        self.ran: list[Any] = []
        self.made: list[Any] = []
        self.destroyed: list[Any] = []
        self.while_binding: Callable[[], object] = int

    def instantiate(self, graph: Any) -> Any:
        self.made.append(super().instantiate(graph))
        return self.made[-1]

    def replay(self, executable: Any, stream: Any) -> None:
        self.ran.append(executable)
        super().replay(executable, stream)

    def native_calls(self, stream: Any) -> Any:
        return WatchedCalls(self, stream)

    def destroy_executable(self, executable: Any) -> None:
        self.destroyed.append(executable)
        super().destroy_executable(executable)

    def destroy_stream(self, stream: Any) -> None:
        self.destroyed.append(stream)
        super().destroy_stream(stream)


class WatchedCalls(NativeCalls):
    def __init__(self, backend: Watched, stream: Any) -> None:
        self.backend, self.stream = backend, stream

    def bind(self, executable: Any) -> Callable[[], None]:
        self.backend.while_binding()
        return lambda: self.backend.replay(executable, self.stream)


@pytest.fixture(name="backend")
def backend_fixture() -> Any:
    ag.backends.register(NAME, Watched)
    yield ag.backends.get(NAME)
    ag.backends.unregister(NAME)


@pytest.fixture(name="kept")
def kept_fixture(backend: Watched) -> ag.Graph:
    stream = ag.Stream(backend=NAME)
    graph = ag.Graph(keep_graph=True, stream=stream)
    with graph:
        stream.launch(int)
    graph.instantiate()
    return graph


def test_no_first_replay_is_lost_while_another_thread_makes_the_graph_ready(backend: Watched) -> None:
    stream = ag.Stream(backend=NAME)
    with ag.Graph(keep_graph=True, stream=stream) as graph:
        stream.launch(int)
    other = threading.Thread(target=graph.replay)

    def replay_meanwhile() -> None:
        backend.while_binding = int
        other.start()
        other.join(0.2)  # it waits for this thread

    backend.while_binding = replay_meanwhile
    graph.replay()
    other.join(LIMIT)
    assert backend.ran == backend.made * 2


def test_graph_that_an_interrupt_left_half_ready_replays(backend: Watched) -> None:
    stream = ag.Stream(backend=NAME)
    with ag.Graph(keep_graph=True, stream=stream) as graph:
        stream.launch(int)

    def interrupt() -> None:
        backend.while_binding = int
        raise KeyboardInterrupt

    backend.while_binding = interrupt
    with pytest.raises(KeyboardInterrupt):
        graph.replay()
    graph.replay()
    assert backend.ran == backend.made


def test_a_graph_that_another_thread_resets_gets_no_executable(
    backend: Watched, kept: ag.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = kept.bind()
    instantiate = backend.instantiate

    def reset_meanwhile(graph: Any) -> Any:
        in_thread(kept.reset)
        return instantiate(graph)

    monkeypatch.setattr(backend, "instantiate", reset_meanwhile)
    with pytest.raises(ag.GraphStateError, match="the graph was reset"):
        kept.instantiate()
    with pytest.raises(ag.GraphStateError, match="the graph was reset"):
        launch()
    monkeypatch.undo()
    ownership.drain()
    assert backend.destroyed == backend.made
    assert kept.state == "empty"
    with kept:
        kept.stream.launch(int)
    kept.replay()
    assert backend.ran == backend.made[-1:]


def test_a_graph_that_another_thread_resets_after_the_check_of_its_state_is_a_state_error(
    kept: ag.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = type(kept)._check

    def reset_afterwards(self: ag.Graph, what: str) -> None:
        check(self, what)
        if not what.startswith("capture_"):
            self.reset()

    monkeypatch.setattr(type(kept), "_check", reset_afterwards)
    for use in (kept.instantiate, kept.replay, kept.bind):
        with pytest.raises(ag.GraphStateError, match="reset"):
            use()
        with kept:
            kept.stream.launch(int)


def test_instantiate_in_another_thread_reaches_what_is_being_bound(backend: Watched, kept: ag.Graph) -> None:
    def instantiate() -> None:
        backend.while_binding = int
        in_thread(kept.instantiate)
        assert len(backend.made) == 2

    backend.while_binding = instantiate
    launch = kept.bind(ag.Stream(backend=NAME))
    launch()
    assert backend.ran == [backend.made[1]]
    ownership.drain()
    assert backend.destroyed == [backend.made[0]]


def test_stream_of_the_latest_run_lives_until_the_next_run(backend: Watched, kept: ag.Graph) -> None:
    """A backend may have to order the next run behind it."""
    first, second = ag.Stream(backend=NAME), ag.Stream(backend=NAME)
    natives = [first.native, second.native]
    kept.replay(first)
    del first
    gc.collect()
    ownership.drain()
    assert backend.destroyed == []
    kept.replay(second)
    ownership.drain()
    assert backend.destroyed == natives[:1]
    second.close()
    assert backend.destroyed == natives[:1]
    kept.bind()()
    ownership.drain()
    assert backend.destroyed == natives
