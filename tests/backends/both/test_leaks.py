"""The kit's works of CUDA and HIP count what the backend makes and destroys, and so find leaks."""

from importlib import import_module

import pytest

import accelerator_graph as ag
from accelerator_graph.testing import BackendConformance

NOTHING = {"streams": 0, "events": 0, "graphs": 0, "executables": 0}


@pytest.fixture
def work(backend):
    module = import_module(f"accelerator_graph.testing.works.{backend.name}")
    return (module.CudaWork if backend.name == "cuda" else module.HipWork)()


@pytest.fixture
def rules(work):
    class Rules(BackendConformance):
        def work(self):
            return work

    return Rules()


def test_objects_are_counted_by_kind(backend, work, stream, block):
    backend = ag.backends.get(backend.name)  # whose calls the work counts
    with work.counting():
        own = backend.create_stream(0)
        event = backend.record_event(stream)
        token = backend.capture_begin(own, "relaxed")
        backend.fill(own, block, 1, 8)
        graph = backend.capture_end(token)
        executables = [backend.instantiate(graph)]
        timed, events = backend.instantiate_timed(graph, [0], [0])
        assert dict(work.live_objects()) == {"streams": 1, "events": 3, "graphs": 1, "executables": 2}
        for each in (timed, *executables):
            backend.destroy_executable(each)
        backend.destroy_graph(graph)
        for each in (event, *events):
            backend.destroy_event(each)
        backend.destroy_stream(own)
        assert dict(work.live_objects()) == NOTHING
    before = backend.create_stream(0)
    assert dict(work.live_objects()) == NOTHING
    backend.destroy_stream(before)


def test_calls_that_fail_are_not_counted(backend, work, stream):
    backend = ag.backends.get(backend.name)
    with work.counting():
        token = backend.capture_begin(stream, "relaxed")
        with pytest.raises(ag.DriverError):
            backend.synchronize(stream)
        with pytest.raises(ag.DriverError):
            backend.capture_end(token)
        backend.capture_abandon(token)
        assert not any(work.live_objects().values())


RULES = [name for name in dir(BackendConformance) if name.endswith("_leave_nothing_alive")]


@pytest.mark.parametrize("rule", RULES)
def test_the_backend_leaks_nothing(rules, rule):
    getattr(rules, rule)()


@pytest.mark.parametrize(
    ("method", "kind", "rule"),
    [
        ("destroy_stream", "streams", "test_streams_and_events_leave_nothing_alive"),
        ("destroy_event", "events", "test_streams_and_events_leave_nothing_alive"),
        ("destroy_graph", "graphs", "test_captures_and_replays_leave_nothing_alive"),
        ("destroy_executable", "executables", "test_captures_and_replays_leave_nothing_alive"),
    ],
)
def test_what_is_never_destroyed_is_found(backend, rules, monkeypatch, method, kind, rule):
    left = []
    with monkeypatch.context() as planted:
        planted.setattr(type(backend), method, lambda self, value: left.append(value))
        with pytest.raises(AssertionError, match=rf"so many more are alive: .*'{kind}': [2-9]\d"):
            getattr(rules, rule)()
    for each in left:
        getattr(backend, method)(each)


def test_a_graph_that_is_lost_when_its_capture_is_abandoned_is_found(backend, rules, monkeypatch):
    driver = import_module(f"accelerator_graph.backends._{backend.name}.driver").Driver
    call = driver.call

    def forgets(self, function, *args):
        return None if function.endswith("GraphDestroy") else call(self, function, *args)

    monkeypatch.setattr(driver, "call", forgets)
    with pytest.raises(AssertionError, match=r"so many more are alive: .*'graphs': [2-9]\d"):
        rules.test_captures_that_fail_leave_nothing_alive()
