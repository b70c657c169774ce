"""Graph.update, Graph.recapture and Graph.clone, where a backend does not come into it or fails."""

import gc
import threading
import weakref

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership, update
from accelerator_graph.backends.base import Misfit
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.inspection.progress import markers_of

LIMIT = 120
"""Seconds after which a test counts as hanging."""


def failure(call):
    return ag.errors.driver_error(backend="fails", call=call, code=None, code_name="BROKEN")


class Fails(CpuBackend):
    """Updates and instantiations fail on demand."""

    updates = instantiates = True
    held = None

    def update(self, executable, former, graph):
        if not self.updates:
            executable.destroy()
            raise failure("update")
        return super().update(executable, former, graph)

    def instantiate(self, graph):
        if not self.instantiates:
            raise failure("instantiate")
        return super().instantiate(graph)


class LaunchesAtOnce(Fails):
    """Several threads may launch one executable at once, and a launch can take long."""

    serialises_replays = True
    guard = threading.RLock()
    launching = threading.Event()

    def replay(self, executable, stream):
        if self.held is not None:
            self.launching.set()
            assert self.held.wait(LIMIT)
        with self.guard:
            super().replay(executable, stream)

    def native_calls(self, stream):
        return None


@pytest.fixture(params=[Fails])
def backend(request):
    ag.backends.register("fails", request.param)
    yield ag.backends.get("fails")
    ag.backends.unregister("fails")


@pytest.fixture
def stream(backend):
    return ag.Stream(backend="fails")


@pytest.fixture
def log():
    return []


@pytest.fixture
def capture(stream, log):
    def capture(*words, keep_graph=True, **how):
        with ag.Graph(keep_graph=keep_graph, stream=stream, **how) as graph:
            for word in words:
                stream.launch(log.append, word)
        return graph

    return capture


@pytest.fixture
def ran(stream, log):
    def ran(call):
        log.clear()
        call()
        stream.synchronize()
        return "".join(log)

    return ran


def recapture(graph, stream, *calls):
    with graph.recapture() as again:
        stream.launch(print, end="")
        for call in calls:
            call()
    return again.update


class Thing:
    """Can be referenced weakly."""


@pytest.mark.promise("update-says-how")
def test_what_an_update_says(capture):
    graph, other = capture("a"), capture("b")
    assert str(graph.update(other)) == "A new executable was made: the graph had no executable."
    assert str(graph.update(other)) == "The executable was updated in place."
    assert graph.update(other) == ag.GraphUpdate(True)
    longer = graph.update(capture("c", "d"))
    assert longer == (False, "the graphs have 1 and 2 nodes", None)
    assert "at node 3, it is red." in str(ag.GraphUpdate(False, "it is red", 3))


def test_the_backend_says_which_node(capture, stream, ran):
    graph, cell = capture("a", "b"), bytearray(1)
    graph.instantiate()
    with graph.recapture() as again:
        stream.launch(print, end="")
        stream.fill(cell, 7)
    assert again.update == (False, "'host' has become 'memset'", 1)
    assert ran(graph.replay) == ""
    assert cell == b"\7"


def test_an_update_that_the_driver_breaks_off(backend, capture, ran, monkeypatch):
    graph, bound = capture("a"), None
    bound = graph.bind()
    monkeypatch.setattr(Fails, "updates", False)
    done = graph.update(capture("b"))
    assert not done.in_place
    assert "update" in done.reason
    assert "BROKEN" in str(done)
    assert ran(bound) == ran(graph.replay) == "b"


@pytest.mark.promise("update-without-executable")
def test_an_update_that_leaves_no_executable(backend, capture, ran, monkeypatch):
    graph, other = capture("a"), capture("b")
    bound = graph.bind()
    monkeypatch.setattr(Fails, "updates", False)
    monkeypatch.setattr(Fails, "instantiates", False)
    with pytest.raises(ag.DriverError, match="instantiate") as failed:
        graph.update(other)
    assert "the graph has none now" in failed.value.__notes__[0]
    assert graph.state == "captured"
    with pytest.raises(ag.GraphStateError, match="an update of the graph has failed"):
        bound()
    monkeypatch.undo()
    assert ran(graph.replay) == ran(bound) == "a"
    assert ran(other.replay) == "b"


@pytest.mark.promise("update-that-fails")
def test_a_new_executable_that_can_not_be_made(backend, capture, stream, ran, monkeypatch):
    graph, other = capture("a"), capture("b", "c")
    bound = graph.bind()
    monkeypatch.setattr(Fails, "instantiates", False)
    with pytest.raises(ag.DriverError, match="instantiate") as failed:
        graph.update(other)
    assert not getattr(failed.value, "__notes__", ())
    with pytest.raises(ag.DriverError):
        recapture(graph, stream, lambda: stream.launch(print))
    assert graph.state == "ready"
    assert ran(bound) == ran(graph.replay) == "a"
    assert graph.num_nodes == 1


def test_work_of_which_there_is_one_executable(backend, capture, stream, log, ran, monkeypatch):
    graph, other = capture("a"), capture("b", "c")
    graph.instantiate()
    monkeypatch.setattr(Fails, "single_executable", lambda self, graph: True)
    for refused in (lambda: graph.update(other), other.clone):
        with pytest.raises(ag.UnsupportedError, match=r"one graph at a time .* recapture\(\)"):
            refused()
    assert ran(graph.replay) == "a"
    with graph.recapture():
        stream.launch(log.append, "d")
        stream.launch(log.append, "e")
    assert ran(graph.replay) == "de"


@pytest.mark.parametrize("backend", [LaunchesAtOnce], indirect=True)
@pytest.mark.parametrize(("keep", "words"), [(True, "b"), (True, "bc"), (False, "b")])
def test_an_update_waits_for_launches_that_are_under_way(
    backend, capture, log, stream, monkeypatch, keep, words
):
    """A launch can block, on a full queue for example."""
    graph, other = capture("a", keep_graph=keep), capture(*words)
    bound = graph.bind()
    monkeypatch.setattr(Fails, "held", threading.Event())
    monkeypatch.setattr(LaunchesAtOnce, "launching", threading.Event())
    launching = threading.Thread(target=bound)
    launching.start()
    assert LaunchesAtOnce.launching.wait(LIMIT)
    updating = threading.Thread(target=graph.update, args=(other,))
    updating.start()
    updating.join(0.1)
    assert updating.is_alive()
    Fails.held.set()
    launching.join()
    updating.join()
    bound()
    stream.synchronize()
    assert "".join(log) == "a" + words


@pytest.mark.promise("retained-until-reset", "update-keeps-alive")
def test_what_keeps_alive(capture, stream):
    graph = capture("a")
    named, inside, others = Thing(), Thing(), Thing()
    seen = [weakref.ref(each) for each in (named, inside, others)]
    graph.retain(named)
    with graph.recapture():
        stream.launch(print)
        ag.current_graph().retain(inside)
    other = capture("b")
    other.retain(others)
    del named, inside, others
    assert all(each() for each in seen)
    graph.update(other)
    gc.collect()
    assert [each() is None for each in seen] == [False, True, False]
    other.reset()
    del other
    gc.collect()
    assert seen[2]() is not None, "the work needs it"
    graph.reset()
    gc.collect()
    assert not any(each() for each in seen)


def test_what_is_watched(capture, ran):
    graph, other = capture("a"), capture("b")
    mine, its = Thing(), Thing()
    other.watch(its)
    bound = graph.bind()
    graph.update(other)
    assert ran(bound) == "b"
    del its
    with pytest.raises(ag.GraphStateError, match="is gone"):
        bound()
    graph.watch(mine)
    graph.update(capture("c"))
    assert ran(bound) == "c"
    del mine
    with pytest.raises(ag.GraphStateError, match="is gone"):
        bound()


@pytest.mark.promise("update-keeps-alive")
def test_the_pool_of_the_other(capture, stream):
    graph, other = capture("a"), capture("b")
    first, pool = graph.pool(), other.pool()
    graph.update(other)
    other.reset()
    assert graph.pool() == pool
    capture("c", pool=pool)
    with pytest.raises(ValueError, match="ended with the last graph"):
        capture("d", pool=first)
    with graph.recapture(pool=ag.graph_pool_handle()):
        stream.launch(print)
    assert graph.pool() != pool
    with pytest.raises(ValueError, match="ended with the last graph"):
        capture("d", pool=pool)


@pytest.mark.parametrize("retained", [False, True])
def test_graphs_that_update_each_other(capture, ran, retained):
    """Nothing piles up."""
    first, second, third = capture("a"), capture("b"), capture("c")
    for graph in (first, second, third) if retained else ():
        graph.retain(Thing())
    sizes, (a, b, c) = [], "abc"
    for _ in range(3):
        for _ in range(50):
            first.update(second)
            second.update(third)
            third.update(first)
            a, b, c = b, c, b
        gc.collect()
        sizes.append(len(gc.get_objects()))
        kept = [len(each._runner.retained) for each in (first, second, third)]
    assert sizes[2] - sizes[1] < 50
    assert max(kept) < 10
    assert [ran(each.replay) for each in (first, second, third)] == [a, b, c]


def test_progress_and_collectives(capture, stream):
    graph, other = capture("a", observe=ag.progress()), capture("b", observe=ag.progress())
    graph.update(other)
    assert markers_of(graph) is markers_of(other)
    graph.replay()
    stream.synchronize()
    assert markers_of(graph).place().state == "ended"


def test_a_recapture_in_which_the_graph_is_reset(capture, ran, stream, log):
    graph = capture("a")
    with pytest.raises(ag.GraphStateError, match=r"recapture\(\): nothing was captured"):
        recapture(graph, stream, graph.reset)
    assert graph.state == "empty"
    graph = capture("a")
    with pytest.raises(ag.GraphStateError, match="ended inside"), graph.recapture():
        ag.current_graph().reset()
    assert ran(graph.replay) == "a"


@pytest.mark.promise("recapture-that-fails")
def test_a_recapture_that_is_broken(capture, ran, stream):
    graph = capture("a")
    with pytest.raises(ag.CaptureError), graph.recapture():
        stream.synchronize()
    assert ran(graph.replay) == "a"


def in_thread(call):
    """Call in another thread, and return what is raised there."""
    raised = []

    def run():
        try:
            call()
        except ag.GraphStateError as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="another")
    thread.start()
    thread.join()
    return raised


@pytest.mark.parametrize(
    "error", [(None, None, None), (ValueError, ValueError(), None)], ids=["well", "badly"]
)
def test_a_recapture_that_another_thread_ends(capture, stream, log, ran, error):
    """It goes on, and the thread that began it ends it."""
    graph = capture("a")
    again = graph.recapture()
    with again:
        stream.launch(log.append, "b")
        stream.launch(log.append, "c")
        [refused] = in_thread(lambda: again.__exit__(*error))
        assert "'MainThread' began this capture and has to end it, not thread 'another'" in str(refused)
        assert ag.current_graph().state == "capturing"
    assert not again.update.in_place
    assert ran(graph.replay) == "bc"
    assert ag.current_graph() is None
    assert gc.isenabled()


def test_a_recapture_whose_thread_has_ended(capture, stream, ran):
    graph = capture("a")
    again = graph.recapture()
    assert in_thread(again.__enter__) == []
    with pytest.raises(ag.GraphStateError, match="'another' began this capture"):
        again.__exit__(None, None, None)
    assert gc.isenabled()
    assert stream._backend.capture_status(stream.native) == "none"
    assert ran(graph.replay) == "a"
    with again:
        stream.launch(print, end="")
    assert again.update is not None


def test_a_recapture_of_nothing(capture, ran):
    graph = capture("a")
    with pytest.warns(ag.EmptyGraphWarning), graph.recapture():
        pass
    assert graph.num_nodes == 0
    assert ran(graph.replay) == ""


def test_one_context_for_several_recaptures(capture, ran, stream, log):
    graph = capture("a")
    again = graph.recapture()
    for word in "bc":
        with again:
            stream.launch(log.append, word)
        assert ran(graph.replay) == word
    assert again.update.in_place


def test_a_recapture_on_the_current_stream(backend, log, ran):
    stream = ag.Stream(backend="fails")
    with stream, ag.Graph() as graph:
        stream.launch(log.append, "a")
    with ag.Stream(backend="fails"), graph.recapture():
        assert ag.current_stream()._native is graph.stream._native
        stream.launch(log.append, "b")
    log.clear()
    graph.replay()
    stream.synchronize()
    assert log == ["b"]


def test_a_recapture_elsewhere(capture, log):
    graph = ag.Graph()
    with ag.Stream(backend="fails") as stream, ag.graph(graph):
        ag.current_stream().launch(log.append, "a")
    with (
        pytest.raises(ValueError, match="make a stream of the graph's device current"),
        ag.Stream(backend="cpu"),
        graph.recapture(),
    ):
        pass
    assert ag.current_graph() is None
    graph.replay()
    stream.synchronize()
    assert log == ["a"]


def test_graphs_of_two_backends(capture):
    graph, stream = capture("a"), ag.Stream(backend="cpu")
    with ag.Graph(keep_graph=True, stream=stream) as other:
        stream.launch(print)
    with pytest.raises(ValueError, match="both must be of one backend and device"):
        graph.update(other)


@pytest.mark.promise("clone-is-independent")
def test_a_clone_has_the_same_options(capture):
    graph = capture("a", capture_error_mode="relaxed")
    clone = graph.clone().clone()
    assert (clone.state, clone.capture_error_mode, clone.pool()) == ("captured", "relaxed", graph.pool())
    assert clone.describe() == graph.describe()
    assert clone.stream is graph.stream


def test_one_recapture_is_entered_several_times(capture, stream, log, ran):
    graph = capture("a")
    again = graph.recapture()
    graph.update(capture("b"))
    for word in "cd":
        with again:
            stream.launch(log.append, word)
        assert again.update is not None
        assert ran(graph.replay) == word
    with pytest.raises(ZeroDivisionError), again:
        raise ZeroDivisionError
    assert again.update is None
    assert ran(graph.replay) == "d"


def test_graphs_of_a_stream_that_was_closed(capture, stream, log):
    graph, other = capture("a"), capture("b")
    stream.close()
    graph.update(other)
    clone = graph.clone()
    clone.replay()
    clone.stream.synchronize()
    assert log == ["b"]
    with pytest.raises(ag.GraphStateError, match="the stream was closed"), graph.recapture():
        pass
    assert (graph.state, clone.state) == ("ready", "ready")
    clone.reset()
    with pytest.raises(ag.GraphStateError, match="the stream was closed"):
        clone.capture_begin()
    assert clone.state == "empty"


def test_a_launch_during_an_update_waits_for_it(backend, capture, ran, stream, log, monkeypatch):
    """Patch and launch exclude each other."""
    graph, other = capture("a"), capture("b")
    bound, inside, go_on = graph.bind(), threading.Event(), threading.Event()

    def slowly(self, executable, former, new):
        inside.set()
        assert go_on.wait(LIMIT)
        return CpuBackend.update(self, executable, former, new)

    monkeypatch.setattr(Fails, "update", slowly)
    updating = threading.Thread(target=graph.update, args=(other,))
    updating.start()
    assert inside.wait(LIMIT)
    launching = threading.Thread(target=bound)
    launching.start()
    launching.join(0.05)
    assert launching.is_alive()
    go_on.set()
    launching.join()
    updating.join()
    stream.synchronize()
    assert log == ["b"]


def test_a_backend_without_updates(capture, ran, monkeypatch):
    graph = capture("a")
    bound = graph.bind()
    monkeypatch.setattr(Fails, "capabilities", lambda self, device: self.inherited - {"update"})
    assert graph.update(capture("b")) == (False, "backend 'fails' does not update executables", None)
    assert ran(bound) == "b"


def test_lent_graphs_are_not_destroyed(capture):
    graph, other = capture("a"), capture("b")
    graph.update(other)
    lent = graph._runner.captured
    assert isinstance(lent, update.Lent)
    native = lent.value
    graph.reset()
    del lent
    gc.collect()
    ownership.drain()
    assert native.nodes
    assert isinstance(Misfit("x"), tuple)
