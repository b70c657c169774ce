"""Observers: which of their methods are called, when, and what stays with the work."""

import gc
import os
import sys
import threading
import weakref

import pytest

import accelerator_graph as ag
from accelerator_graph._core import capture_table
from accelerator_graph.interop.base import Collective

PACKAGE = os.path.dirname(ag.__file__)


class Log(ag.Observer):
    """Logs what one capture's object is told."""

    def __init__(self, *methods, made=None):
        self.log = []
        self.methods = methods
        self.made = made or {}

    def begin(self, capture):
        self.log.append(("begin", capture.stream.backend, capture.recorded()))
        log, made = self.log, self.made

        class Noting:
            def __getattr__(self, name):
                raise AttributeError(name)

        for name in self.methods:
            answer = made.get(name)
            setattr(
                Noting,
                name,
                lambda self, *args, name=name, answer=answer: (
                    log.append((name, *args)) or (answer(*args) if callable(answer) else answer)
                ),
            )
        if "own_nodes" in made:
            Noting.own_nodes = made["own_nodes"]
        return Noting()

    def names(self):
        return [each[0] for each in self.log]


@pytest.fixture
def stream():
    with ag.Stream(backend="cpu") as stream:
        yield stream


ALL = ("begun", "border", "used", "collective", "stop", "end", "succeeded", "explained", "hand_on", "check")


def test_every_method_is_called_in_order(stream):
    observer = Log(*ALL)
    with ag.Graph(observe=observer) as graph:
        stream.launch(int)
        with ag.label("outer"), ag.label("inner"):
            stream.launch(int)
            ag.note_collective("all_reduce", "float32", 3)
    [collective] = graph.collectives
    assert isinstance(collective, Collective)
    assert [each for each in observer.log if each[0] != "succeeded"] == [
        ("begin", "cpu", None),
        ("begun",),
        ("border", ["outer"]),
        ("border", ["outer", "inner"]),
        ("collective", collective),
        ("border", ["outer"]),
        ("border", []),
        ("stop",),
        ("end",),
        ("hand_on",),
    ]
    assert observer.names().index("succeeded") == observer.names().index("hand_on") - 1


def test_only_methods_that_are_there_are_called(stream):
    observer = Log("end")
    with ag.Graph(observe=[observer, observer]), ag.label("a"):
        stream.launch(int)
    assert observer.names() == ["begin", "begin", "end", "end"]


def test_none_leaves_a_capture_alone(stream):
    class Nobody(ag.Observer):
        def begin(self, capture):
            return None

    with ag.Graph(observe=Nobody()) as graph:
        stream.launch(int)
    assert graph._runner.observations == ()


@pytest.mark.promise("nobody-observes")
def test_a_capture_that_nobody_observes_calls_none(stream):
    seen = []

    def note(frame, event, arg):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            seen.append(f"{os.path.relpath(code.co_filename, PACKAGE)}:{code.co_name}")

    def capture():
        with ag.Graph() as graph:
            stream.launch(int)
        graph.replay()

    capture()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        capture()
    finally:
        sys.setprofile(before)
    assert len(seen) > 40
    tools = ("_core/observers", "_core/liveness", "_core/labels", "diagnosis/")
    assert [each for each in seen if each.startswith(tools) or each.endswith(("notify", "_observe"))] == []


@pytest.mark.promise("observer-that-raises")
@pytest.mark.parametrize("method", ["begin", "begun", "border", "stop", "end", "succeeded"])
def test_an_exception_leaves_no_trace(stream, method):
    class Fails(Log):
        def begin(self, capture):
            if method == "begin":
                raise LookupError(method)
            return super().begin(capture)

    observer = Fails(method, "stop", made={method: lambda *_: 1 // 0})
    graph, other = ag.Graph(observe=observer), Log("stop")
    with pytest.raises((LookupError, ZeroDivisionError)), graph, ag.label("a"):
        stream.launch(int)
    assert graph.state == "empty"
    assert not capture_table.live
    assert stream._backend.capture_status(stream.native) == "none"
    assert method == "begin" or "stop" in observer.names()
    with ag.Graph(observe=other):
        stream.launch(int)


def test_a_refusal_leaves_what_began_before_it(stream):
    first = Log("begun", "stop")

    class Refuses(ag.Observer):
        def begin(self, capture):
            raise LookupError

    with pytest.raises(LookupError), ag.Graph(observe=(first, Refuses())):
        pass
    assert first.names() == ["begin", "stop"]


def test_a_failure_can_be_explained(stream):
    better = ag.CaptureError("it was me", reason="illegal_call")
    observer = Log("explained", made={"explained": lambda error, cause: better})
    with pytest.raises(ag.CaptureError, match="it was me"), ag.Graph(observe=observer):
        stream.synchronize()
    [(_, error, cause)] = [each for each in observer.log if each[0] == "explained"]
    assert isinstance(error, ag.CaptureError)
    assert isinstance(cause, ag.DriverError)


@pytest.mark.promise("own-nodes-are-no-work")
@pytest.mark.parametrize("own", [0, 1])
def test_what_observers_record_is_no_work(stream, own):
    class Records(Log):
        def begin(self, capture):
            made = super().begin(capture)
            type(made).begun = lambda _: capture.stream.launch(int)
            return made

    graph = ag.Graph(observe=Records(made={"own_nodes": own}))
    if own:
        with pytest.warns(ag.EmptyGraphWarning), graph:
            pass
    else:
        with graph:
            pass
    assert graph.num_nodes == 1


class Stays:
    """Counts the checks, and refuses on request."""

    def __init__(self):
        self.checks, self.refuses = 0, False

    def hand_on(self):
        return self

    def check(self):
        self.checks += 1
        if self.refuses:
            raise ag.GraphStateError("refused")


class Staying(ag.Observer):
    def __init__(self):
        self.made = []

    def begin(self, capture):
        self.made.append(Stays())
        return self.made[-1]


@pytest.mark.promise("check-stays-with-the-work")
def test_what_stays_is_asked_ahead_of_every_replay(stream):
    observer, log = Staying(), []
    with ag.Graph(observe=observer) as graph:
        stream.launch(log.append, 1)
    launch = graph.bind()
    for replay in (graph.replay, launch, lambda: graph.replay(stream)):
        replay()
    [made] = observer.made
    assert made.checks == 3
    made.refuses = True
    for replay in (graph.replay, launch, lambda: graph.replay(stream)):
        with pytest.raises(ag.GraphStateError, match="refused"):
            replay()
    stream.synchronize()
    assert log == [1, 1, 1]


@pytest.mark.promise("check-stays-with-the-work")
def test_it_goes_with_the_work(stream):
    """To a graph that is updated and to a clone; the former work's is asked no more."""
    first, second = Staying(), Staying()
    graph, other = ag.Graph(keep_graph=True, observe=first), ag.Graph(keep_graph=True, observe=second)
    for each in (graph, other):
        with each:
            stream.launch(int)
    clone = other.clone()
    graph.update(other)
    graph.replay()
    clone.replay()
    assert [made.checks for made in first.made + second.made] == [0, 2]
    with graph.recapture():
        stream.launch(int)
    graph.replay()
    assert [made.checks for made in first.made + second.made] == [0, 1, 2]
    assert len(first.made) == 2, "a recapture is observed as the graph is"


@pytest.mark.promise("observer-of-several-captures")
def test_one_observer_of_two_captures_at_once():
    observer, barrier = Log("stop"), threading.Barrier(2)

    def capture():
        with ag.Stream(backend="cpu") as stream, ag.Graph(observe=observer):
            barrier.wait(60)
            stream.launch(int)
            barrier.wait(60)

    threads = [threading.Thread(target=capture) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert observer.names() == ["begin", "begin", "stop", "stop"]


def test_nothing_that_does_not_stay_is_kept(stream):
    seen = []

    class Here(ag.Observer):
        def begin(self, capture):
            made = type("Made", (), {})()
            made.capture = capture
            seen.append(weakref.ref(made))
            return made

    gc.collect()
    gc.disable()
    try:
        with ag.Graph(observe=Here()) as graph:
            stream.launch(int)
        assert seen[0]() is None
        graph.replay()
    finally:
        gc.enable()


@pytest.mark.parametrize("given", [1, "all", ag.Observer, [ag.progress(), 3], None])
def test_a_wrong_type_is_refused(given):
    with pytest.raises(
        TypeError, match=r"^observe must be an Observer, such as accelerator_graph\.progress\(\)"
    ):
        ag.Graph(observe=given)
