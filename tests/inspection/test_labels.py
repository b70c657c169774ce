"""Labels of what a capture records, on the cpu backend."""

import inspect
import os
import sys
import warnings

import pytest

import accelerator_graph as ag
from accelerator_graph._core import capture_table
from accelerator_graph.backends.base import CaptureInfo, GraphEdge
from accelerator_graph.backends.cpu import CpuBackend
from threads import in_thread


def work(): ...


def labelled(stream, name, then=None):
    """Record something inside a label, then call a function there."""
    with ag.label(name):
        stream.launch(work)
        if then is not None:
            then()


def fail():
    raise ZeroDivisionError


@pytest.fixture
def stream():
    with ag.Stream(backend="cpu") as stream:
        yield stream


@pytest.fixture
def graph():
    return ag.Graph(keep_graph=True)


@pytest.fixture
def planted():
    """Registers a backend for the test; returns a stream of it."""
    entered = []

    def plant(kind):
        ag.backends.register("planted", kind)
        entered.append(ag.Stream(backend="planted"))
        return entered[-1].__enter__()

    yield plant
    for stream in entered:
        stream.__exit__(None, None, None)
    ag.backends.unregister("planted")


def found(graph):
    return [(label.name, label.start, label.stop) for label in graph.describe().labels]


def test_nested_labels_with_their_lines(stream, graph):
    with graph:
        stream.launch(work)
        with ag.label("outer"):
            first = inspect.currentframe().f_lineno - 1
            stream.launch(work)
            with ag.label("inner"):
                stream.launch(work)
        stream.launch(work)
    assert graph.describe().labels == (
        ag.Label("outer", 1, 3, __file__, first),
        ag.Label("inner", 2, 3, __file__, first + 3),
    )


def test_a_name_and_a_label_can_be_used_again(stream, graph):
    layer = ag.label("layer")
    with graph:
        for _ in range(2):
            with layer:
                stream.launch(work)
                with layer:
                    stream.launch(work)
    assert found(graph) == [("layer", 0, 2), ("layer", 1, 2), ("layer", 2, 4), ("layer", 3, 4)]


def test_forks_belong_to_the_block_and_joins_do_not(stream, graph):
    side = ag.Stream(like=stream)
    with graph:
        with ag.label("fork"):
            stream.launch(work)
            side.wait(stream)
            side.launch(work)
        with ag.label("join"):
            stream.wait(side)
            stream.launch(work)
    assert found(graph) == [("fork", 0, 2), ("join", 2, 3)]


def test_a_graph_inside_is_one_node_and_has_labels_of_its_own(stream, graph):
    with ag.Graph() as inner, ag.label("inner"):
        stream.launch(work)
        stream.launch(work)
    with graph, ag.label("outer"):
        inner.replay()
    assert found(graph) == [("outer", 0, 1)]


def test_a_label_belongs_to_the_capture_that_was_begun_last(stream, graph):
    other = ag.Graph(stream=ag.Stream(like=stream), keep_graph=True)
    with graph, ag.label("first"):
        stream.launch(work)
        with other:
            other.stream.launch(work)
            with ag.label("second"):
                other.stream.launch(work)
    assert (found(graph), found(other)) == ([("first", 0, 1)], [("second", 1, 2)])


def test_labels_live_as_long_as_the_kept_graph(stream, graph):
    with graph, ag.label("all"):
        stream.launch(work)
    for _ in range(2):
        graph.instantiate()
        graph.replay()
        assert found(graph) == [("all", 0, 1)]
    graph.reset()
    with graph:
        stream.launch(work)
    assert found(graph) == []


def test_a_capture_that_failed_leaves_no_label(stream, graph):
    with pytest.raises(ZeroDivisionError), graph:
        labelled(stream, "failed", fail)
    with graph, ag.label("again"):
        stream.launch(work)
    assert found(graph) == [("again", 0, 1)]


def test_a_capture_that_was_broken_is_not_hidden_by_its_labels(stream, graph):
    with pytest.raises(ag.CaptureError) as raised, graph:
        labelled(stream, "broken", stream.synchronize)
    assert raised.value.reason == "illegal_call"
    assert graph.state == "empty"


def test_an_exception_that_is_handled_ends_the_label(stream, graph):
    with graph:
        with pytest.raises(ZeroDivisionError):
            labelled(stream, "raises", fail)
        stream.launch(work)
    assert found(graph) == [("raises", 0, 1)]


def test_an_exception_before_any_work_is_not_a_warning(stream, graph):
    with graph:
        stream.launch(work)
        with pytest.raises(ZeroDivisionError), ag.label("raises"):
            fail()
    assert found(graph) == []


def steps(stream, name):
    with ag.label(name):
        stream.launch(work)
        yield
        stream.launch(work)


def test_generators_take_turns(stream, graph):
    with graph:
        for _ in zip(steps(stream, "a"), steps(stream, "b"), strict=True):
            pass
    assert found(graph) == [("a", 0, 3), ("b", 1, 4)]


def test_a_generator_that_is_suspended_ends_with_the_capture(stream, graph):
    with graph:
        suspended = steps(stream, "open")
        next(suspended)
        stream.launch(work)
    assert found(graph) == [("open", 0, 2)]
    with ag.Graph(keep_graph=True) as other:  # the block is left in another capture, whose labels it is not
        stream.launch(work)
        suspended.close()
        stream.launch(work)
    assert (found(graph), found(other)) == ([("open", 0, 2)], [])


def test_a_label_across_the_borders_of_a_capture_is_none(stream, graph):
    with ag.label("around"), graph:
        stream.launch(work)
    assert found(graph) == []
    with ag.label("begins before"):
        graph.reset()
        graph.capture_begin()
        stream.launch(work)
    stream.launch(work)
    graph.capture_end()
    assert found(graph) == []


def test_labels_of_other_threads_are_ignored(stream, graph):
    def elsewhere():
        with ag.label("elsewhere"):
            stream.launch(work)

    with graph, ag.label("here"):
        in_thread(elsewhere)
    assert found(graph) == [("here", 0, 1)]


def test_a_block_that_is_left_on_another_thread_ends_with_the_capture(stream, graph):
    with graph:
        left = steps(stream, "moved")
        next(left)
        in_thread(left.close)
        stream.launch(work)
    assert found(graph) == [("moved", 0, 2)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_leaves_the_block_without_a_call(stream, graph):
    with graph, ag.label("forked"):
        stream.launch(work)
        inside = ag.label("inside")
        inside.__enter__()
        child = os.fork()
        if child == 0:
            try:
                inside.__exit__(None, None, None)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        stream.launch(work)
        inside.__exit__(None, None, None)
    assert found(graph) == [("forked", 0, 2), ("inside", 1, 2)]


@pytest.mark.promise("empty-label-is-said")
def test_a_block_that_recorded_nothing_is_a_warning_at_its_line(stream, graph):
    other = ag.Stream(like=stream)
    with graph:
        stream.launch(work)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with ag.label("lost"):
                line = inspect.currentframe().f_lineno - 1
                other.launch(work)
    (warning,) = caught
    assert warning.category is ag.EmptyLabelWarning
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert "inside the label 'lost': the work may have gone to another stream" in str(warning.message)
    assert found(graph) == []


def test_outside_a_capture_nothing_is_asked(stream, graph, monkeypatch):
    with monkeypatch.context() as patch, warnings.catch_warnings():
        patch.setattr(CpuBackend, "capture_info", lambda self, stream: pytest.fail("asked"))
        warnings.simplefilter("error")
        with ag.label("nothing"):
            pass
    with graph:
        stream.launch(work)
    assert capture_table.live == {}


def test_a_backend_that_does_not_count_has_no_labels(planted, graph):
    class DoesNotCount(CpuBackend):
        def capture_info(self, stream):
            info = super().capture_info(stream)
            return info and CaptureInfo(info.id)

    stream = planted(DoesNotCount)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with graph, ag.label("unknown"):
            stream.launch(work)
        assert found(graph) == []
        assert len(graph.describe().nodes) == 1


def test_a_count_that_fails_is_an_error_of_the_capture(planted, graph, monkeypatch):
    class Fails(CpuBackend):
        def capture_info(self, stream):
            raise ag.DriverError("not counted.")

    stream = planted(Fails)
    with pytest.raises(ag.CaptureError, match=r"did not become a graph: not counted\.$"):  # noqa: SIM117
        with graph, ag.label("unknown"):
            stream.launch(work)
    assert graph.state == "empty"
    monkeypatch.setattr(Fails, "capture_info", CpuBackend.capture_info)
    with graph:
        stream.launch(work)
    assert graph.num_nodes == 1


def test_a_wrong_count_leaves_the_labels_out(planted, graph):
    class Wrong(CpuBackend):
        def capture_info(self, stream):
            info = super().capture_info(stream)
            return info and CaptureInfo(info.id, 1000 - info.nodes)

    stream = planted(Wrong)
    graph.capture_begin()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ag.EmptyLabelWarning)
        labelled(stream, "wrong")
    with pytest.warns(RuntimeWarning, match="counted the nodes of a capture wrongly"):
        graph.capture_end()
    assert found(graph) == []


def test_a_wrong_order_leaves_the_labels_out(planted, graph):
    class Turned(CpuBackend):
        def nodes(self, graph, executable=None):
            nodes, _ = super().nodes(graph)
            return nodes, [GraphEdge(1, 0)]

    stream = planted(Turned)
    with graph, ag.label("turned"):
        stream.launch(work)
        stream.launch(work)
    with pytest.warns(RuntimeWarning, match="in another order than that of recording") as caught:
        assert found(graph) == []
    assert caught[0].filename == __file__


def test_graphs_that_are_not_kept_work_with_labels(stream):
    with ag.Graph() as graph, ag.label("all"):
        stream.launch(work)
    graph.replay()
    stream.synchronize()
    assert graph.num_nodes == 1


def test_a_label_keeps_nothing_alive(stream, graph):
    with graph:
        one = ag.label("one")
        with one:
            stream.launch(work)
    assert sys.getrefcount(one) == 2  # this call has the other one


def test_calls_of_a_decorated_function_are_labelled_where_they_are_called(stream, graph):
    @ag.label("layer")
    def layer(times, *, then=None):
        """Record work."""
        for _ in range(times):
            stream.launch(work)
        return then and then(1)

    with graph:
        assert layer(1, then=layer) is None
    assert (layer.__name__, layer.__doc__) == ("layer", "Record work.")
    assert found(graph) == [("layer", 0, 2), ("layer", 1, 2)]
    first, second = (label.line for label in graph.describe().labels)
    assert second < first == inspect.currentframe().f_lineno - 4


def test_what_cannot_be_labelled():
    with pytest.raises(TypeError, match="label: the name must be a str, not"):
        ag.label(work)
    with pytest.raises(TypeError, match="can't decorate 3, which can't be called"):
        ag.label("block")(3)

    def steps():
        yield

    with pytest.raises(TypeError, match=r"can't decorate .*steps.*, whose body runs after the call"):
        ag.label("steps")(steps)


@pytest.mark.parametrize("model", [None, object(), work])
def test_modules_have_to_be_modules(model):
    with pytest.raises(TypeError, match="label_modules: the model must be a torch module, not"):
        ag.label_modules(model)
