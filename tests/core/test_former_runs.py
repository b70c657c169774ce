"""A new executable's first run comes after all runs of the former ones, wherever they are."""

import gc
import threading
import time

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership
from accelerator_graph.backends.base import Capability
from accelerator_graph.backends.cpu import CpuBackend

NAME = "slow"
LIMIT = 120
"""Seconds after which a test counts as hanging."""
SOON = 0.05
"""Seconds in which a run that waits for nothing would have begun."""


class Slow(CpuBackend):
    """The cpu backend."""


class WithoutEvents(CpuBackend):
    """Only the host can wait for a stream."""

    def capabilities(self, device):
        return super().capabilities(device) - {Capability.EVENTS}


class LaunchesAtOnce(CpuBackend):
    """Several threads may launch one executable at once."""

    serialises_replays = True
    guard = threading.RLock()

    def replay(self, executable, stream):
        with self.guard:
            super().replay(executable, stream)

    def native_calls(self, stream):
        return None


class Scene:
    """A graph whose runs wait until they are let go on, and streams."""

    def __init__(self, keep):
        self.log, self.go, self.begun = [], threading.Event(), threading.Semaphore(0)
        self.home, self.first, self.second = (ag.Stream(backend=NAME) for _ in range(3))
        self.graph = ag.Graph(keep_graph=keep, stream=self.home)
        self.record(self.graph, "former")

    def run(self, word):
        if word == "former":
            self.begun.release()
            assert self.go.wait(LIMIT)
        self.log.append(word)

    def record(self, capture, *words):
        with capture:
            for word in words:
                self.home.launch(self.run, word)

    def other(self, *words):
        graph = ag.Graph(keep_graph=True, stream=self.home)
        self.record(graph, *words)
        return graph

    def check(self, *streams, after=("former", "new", "run")):
        """Check that nothing has begun yet, and what has run once the former run went on."""
        assert self.begun.acquire(timeout=LIMIT)
        assert not self.begun.acquire(timeout=SOON)
        assert self.log == []
        self.go.set()
        for stream in streams:
            stream.synchronize()
        assert self.log == list(after)


@pytest.fixture(params=[Slow, LaunchesAtOnce])
def backend(request):
    ag.backends.register(NAME, request.param)
    yield ag.backends.get(NAME)
    ag.backends.unregister(NAME)


@pytest.fixture(params=[True, False], ids=["kept", "not kept"])
def scene(backend, request):
    scene = Scene(request.param)
    yield scene
    scene.go.set()


def update(scene):
    assert not scene.graph.update(scene.other("new", "run")).in_place


def recapture(scene):
    again = scene.graph.recapture()
    scene.record(again, "new", "run")
    assert not again.update.in_place


def twice(scene):
    update(scene)
    scene.graph.update(scene.other("new", "run", "more"))
    scene.graph.update(scene.other("new", "run"))


EXCHANGES = pytest.mark.parametrize("exchange", [update, recapture, twice])


@EXCHANGES
def test_a_run_that_was_bound(scene, exchange):
    scene.graph.bind(scene.first)()
    exchange(scene)
    scene.graph.bind(scene.second)()
    scene.check(scene.second)


@EXCHANGES
def test_a_run_that_was_not_bound(scene, exchange):
    scene.graph.replay(scene.first)
    exchange(scene)
    scene.graph.replay(scene.second)
    scene.check(scene.second)


@EXCHANGES
def test_a_stream_that_was_closed(scene, exchange):
    bound = scene.graph.bind(scene.first)
    bound()
    scene.first.close()
    exchange(scene)
    scene.graph.replay(scene.second)
    scene.check(scene.second)


@EXCHANGES
def test_a_stream_and_a_callable_that_are_gone(scene, exchange):
    scene.graph.bind(scene.first)()
    scene.first = None
    gc.collect()
    ownership.drain()
    exchange(scene)
    scene.graph.replay(scene.second)
    scene.check(scene.second)


@EXCHANGES
def test_a_stream_of_somebody_else(scene, exchange):
    foreign = scene.home._backend.create_stream(0)
    scene.graph.replay(foreign)
    exchange(scene)
    scene.graph.replay(scene.second)
    scene.check(scene.second)
    scene.home._backend.destroy_stream(foreign)


def test_only_the_first_run_waits(scene):
    """The others are behind it, and nothing is in the way of each replay."""
    scene.graph.replay(scene.first)
    update(scene)
    here, there = scene.graph.bind(scene.home), scene.graph.bind(scene.second)
    waits = []
    wait_event = type(scene.home._backend).wait_event
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(scene.home._backend),
            "wait_event",
            lambda self, stream, event: waits.append(stream) or wait_event(self, stream, event),
        )
        for call in (here, there, here):
            call()
    assert waits == [scene.home.native]
    scene.check(scene.home, scene.second, after=("former", *["new", "run"] * 3))


def test_a_second_executable(backend):
    scene = Scene(keep=True)
    scene.graph.replay(scene.first)
    scene.graph.instantiate()
    scene.graph.replay(scene.second)
    scene.check(scene.second, after=["former"] * 2)


def test_the_only_executable(backend, monkeypatch):
    """It goes before there is another one."""
    monkeypatch.setattr(type(backend), "single_executable", lambda self, graph: True)
    test_a_second_executable(backend)


@pytest.mark.promise("runs-stay-in-order")
def test_all_streams_are_waited_for(scene):
    newer = scene.other("newer")
    scene.graph.replay(scene.first)
    update(scene)
    scene.graph.replay(scene.home)
    scene.graph.update(newer)
    scene.graph.replay(scene.second)
    scene.check(scene.second, after=("former", "new", "run", "newer"))


def test_a_stream_that_captures_later(scene):
    """The mark stands before the capture."""
    scene.graph.replay(scene.first)
    update(scene)
    graph = ag.Graph(stream=scene.first, capture_error_mode="relaxed")
    graph.capture_begin()
    scene.graph.replay(scene.second)
    scene.check(scene.second)
    graph.reset()


def test_a_stream_that_captures(scene):
    """No stream can wait for it, so the run is refused until the capture has ended."""
    other = scene.other("new", "run")
    scene.graph.replay(scene.first)
    graph = ag.Graph(stream=scene.first, capture_error_mode="relaxed")
    graph.capture_begin()
    scene.first.launch(int)
    assert not scene.graph.update(other).in_place
    for _ in range(2):
        with pytest.raises(ag.CaptureError, match=r"former executable is on the .* captured now") as refused:
            scene.graph.replay(scene.second)
        assert refused.value.reason == "illegal_call"
    graph.capture_end()
    scene.graph.replay(scene.second)
    scene.check(scene.second)


def test_a_run_that_is_recorded_does_not_wait(scene):
    """It belongs to the other graph, and the order is kept for the first run."""
    scene.graph.replay(scene.first)
    update(scene)
    with ag.Graph(stream=scene.home) as graph:
        scene.graph.replay(scene.home)
    graph.replay()
    scene.home.synchronize()
    assert scene.log == ["new", "run"]
    scene.log.clear()
    scene.graph.replay(scene.second)
    scene.check(scene.second)


def test_a_first_run_that_fails(scene, monkeypatch):
    """The next one waits."""
    scene.graph.replay(scene.first)
    update(scene)
    backend = type(scene.home._backend)
    error = ag.errors.driver_error(backend=NAME, call="replay", code=None, code_name="BROKEN")

    def refuse(*args):
        raise error

    for name in ("wait_event", "native_calls"):
        with monkeypatch.context() as patch:
            patch.setattr(backend, name, refuse)
            with pytest.raises(ag.DriverError, match="BROKEN"):
                scene.graph.replay(scene.second)
    scene.graph.replay(scene.second)
    scene.check(scene.second)


@pytest.mark.promise("runs-stay-in-order")
def test_replays_that_race_the_exchange(backend):
    """None overlaps another one, whatever it runs and wherever."""
    home, streams = ag.Stream(backend=NAME), [ag.Stream(backend=NAME) for _ in range(3)]
    running, most, count = [], [0], [0]

    def enter():
        running.append(1)
        most[0] = max(most[0], len(running))
        time.sleep(1e-3)

    def leave():
        running.pop()
        count[0] += 1

    def record(capture, pieces):
        with capture:
            home.launch(enter)
            for _ in range(pieces):
                home.launch(int)
            home.launch(leave)
        return capture

    graph = record(ag.Graph(stream=home), 0)
    others = [record(ag.Graph(keep_graph=True, stream=home), pieces) for pieces in (1, 2)]
    end, runs = threading.Event(), [0] * len(streams)

    def replay(number):
        bound = graph.bind(streams[number])
        while not end.is_set():
            bound()
            runs[number] += 1
            if runs[number] % 20 == 0:
                streams[number].synchronize()

    threads = [threading.Thread(target=replay, args=(number,)) for number in range(len(streams))]
    for thread in threads:
        thread.start()
    for number in range(60):
        graph.update(others[number % 2])
        time.sleep(2e-3)
    end.set()
    for thread in threads:
        thread.join()
    for stream in streams:
        stream.synchronize()
    assert count == [sum(runs)]
    assert most == [1]


@pytest.mark.parametrize("backend", [WithoutEvents], indirect=True)
def test_a_backend_without_events(backend):
    """The host waits."""
    scene = Scene(keep=True)
    scene.graph.replay(scene.first)
    update(scene)
    replay = threading.Thread(target=scene.graph.replay, args=(scene.second,))
    replay.start()
    replay.join(SOON)
    assert replay.is_alive()
    assert scene.log == []
    scene.go.set()
    replay.join()
    scene.second.synchronize()
    assert scene.log == ["former", "new", "run"]
