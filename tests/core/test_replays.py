"""Replays and what they are bound to, on a backend that says which executable runs and what is destroyed."""

from __future__ import annotations

import gc
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph._core import ownership
from accelerator_graph.backends.base import Capability, CaptureStatus, NativeCalls
from accelerator_graph.backends.cpu import CpuBackend
from threads import in_thread

NAME, FRAMEWORK = "watched", "watched_framework"
LIMIT = 120


class Watched(CpuBackend):
    """Keeps the order of what was called."""

    def open(self) -> None:
        super().open()
        self.ran: list[Any] = []
        self.made: list[Any] = []
        self.destroyed: list[Any] = []
        self.bound: list[Any] = []
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
        self.backend.bound.append(self.stream)
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


# ---- replay(stream), again and again ---------------------------------------------------------------


class Framework(interop.base.Framework):
    """Has streams that are objects of its own."""

    api_version = 1
    name = FRAMEWORK

    def backend(self) -> str:
        return NAME

    def as_stream(self, obj: object) -> int | None:
        return obj.handle if isinstance(obj, Foreign) else None


class Foreign:
    """A framework's stream."""

    def __init__(self, handle: int) -> None:
        self.handle = handle


class Closable(Foreign):
    """One that may be another stream, or none, later."""

    def close(self) -> None:
        self.handle = -1


class Handles(Watched):
    """Finds its streams by number."""

    def open(self) -> None:
        super().open()
        self.streams: list[Any] = []

    def create_stream(self, device: int, **how: Any) -> Any:
        self.streams.append(super().create_stream(device, **how))
        return self.streams[-1]

    def as_stream(self, obj: Any) -> Any:
        return self.streams[obj] if isinstance(obj, int) else None


@pytest.fixture(name="framework")
def framework_fixture(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, FRAMEWORK, types.ModuleType(FRAMEWORK))
    interop.register(FRAMEWORK, Framework)
    ag.backends.register(NAME, Handles)
    yield ag.backends.get(NAME)
    ag.backends.unregister(NAME)
    interop.unregister(FRAMEWORK)


def captured(backend: Watched) -> ag.Graph:
    with ag.Graph(keep_graph=True, stream=ag.Stream(backend=NAME)) as graph:
        graph.stream.launch(int)
    graph.instantiate()
    backend.bound.clear()
    return graph


def test_a_replay_on_the_stream_of_the_last_one_decides_nothing_anew(
    kept: ag.Graph, backend: Watched
) -> None:
    first, second = ag.Stream(backend=NAME), ag.Stream(backend=NAME)
    backend.bound.clear()
    for stream in (first, first, first, second, second, first):
        kept.replay(stream)
    assert backend.bound == [first.native, second.native, first.native]
    assert len(backend.ran) == 6


def test_the_same_with_the_stream_of_a_framework(framework: Handles) -> None:
    graph = captured(framework)
    first, second = ag.Stream(backend=NAME), ag.Stream(backend=NAME)
    streams = Foreign(framework.streams.index(first.native)), Foreign(framework.streams.index(second.native))
    for number in (0, 0, 0, 1, 1, 0):
        graph.replay(streams[number])
    assert framework.bound == [first.native, second.native, first.native]
    assert len(framework.ran) == 6


@pytest.mark.promise("streams-by-identity")
@pytest.mark.parametrize("kind", [Closable, int], ids=["may be closed", "a handle"])
def test_what_may_be_another_stream_by_now_is_looked_at_each_time(framework: Handles, kind: type) -> None:
    graph = captured(framework)
    first, second = ag.Stream(backend=NAME), ag.Stream(backend=NAME)
    numbers = [framework.streams.index(stream.native) for stream in (first, second)]
    stream = kind(numbers[0])
    graph.replay(stream)
    if kind is int:
        framework.streams[numbers[0]] = second.native
    else:
        stream.handle = numbers[1]
    graph.replay(stream)
    assert framework.bound == [first.native, second.native]


def test_a_stream_that_was_closed_after_the_replay_before_is_refused(kept: ag.Graph) -> None:
    stream = ag.Stream(backend=NAME)
    kept.replay(stream)
    stream.close()
    with pytest.raises(ag.GraphStateError, match="was closed"):
        kept.replay(stream)


def test_a_graph_that_was_reset_after_the_replay_before_is_refused(kept: ag.Graph, backend: Watched) -> None:
    stream = ag.Stream(backend=NAME)
    kept.replay(stream)
    kept.reset()
    with pytest.raises(ag.GraphStateError, match="nothing was captured"):
        kept.replay(stream)
    with kept:
        kept.stream.launch(int)
    kept.replay(stream)
    assert backend.ran == backend.made


def test_a_graph_whose_executable_is_gone_gets_another_one(
    kept: ag.Graph, backend: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = ag.Stream(backend=NAME)
    kept.replay(stream)
    monkeypatch.setattr(type(backend), "single_executable", lambda self, graph: True)
    with monkeypatch.context() as patch:
        patch.setattr(backend, "instantiate", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            kept.instantiate()
    assert kept.state == "captured"
    kept.replay(stream)
    assert backend.ran == backend.made
    assert len(backend.made) == 2


def test_a_stream_that_captures_by_now_is_refused(
    kept: ag.Graph, backend: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = ag.Stream(backend=NAME)
    without = backend.capabilities(0) - {Capability.CHILD_GRAPHS}
    monkeypatch.setattr(backend, "capabilities", lambda device: without)
    kept.replay(stream)
    monkeypatch.setattr(backend, "capture_status", lambda native: CaptureStatus.ACTIVE)
    with pytest.raises(ag.CaptureError, match="another library is capturing"):
        kept.replay(stream)
    assert len(backend.ran) == 1


def _interrupted(graph: Any) -> Any:
    raise KeyboardInterrupt
