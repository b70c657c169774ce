"""Graph and Stream where a backend does not come into it, or comes into it with a failure."""

import copy
import gc
import os
import pickle
import random
import re
import stat
import sys
import threading

import pytest

import accelerator_graph as ag
from accelerator_graph._core import capture, replay
from accelerator_graph._core.graph import REFUSED, REFUSED_UNLESS_KEPT
from accelerator_graph.backends.cpu import CpuBackend
from threads import in_thread


class OneAtATime(CpuBackend):
    """A graph allows one executable, and making one fails on demand."""

    broken = False

    def single_executable(self, graph):
        return True

    def instantiate(self, graph):
        if self.broken:
            raise ag.errors.driver_error(backend=self.name, call="instantiate", code=2, code_name="BROKEN")
        return super().instantiate(graph)


@pytest.fixture
def backend(request):
    name = f"b{abs(hash(request.node.name))}"
    kinds = [OneAtATime]
    ag.backends.register(name, kinds[0])
    yield name
    OneAtATime.broken = False
    ag.backends.unregister(name)


@pytest.fixture
def stream():
    return ag.Stream(backend="cpu")


def captured(stream, log, **how):
    graph = ag.Graph(stream=stream, **how)
    with graph:
        stream.launch(log.append, 1)
    return graph


@pytest.mark.parametrize("state", ["capturing", "captured", "ready"])
def test_only_an_empty_graph_can_be_entered(stream, state):
    graph, log = ag.Graph(stream=stream, keep_graph=state == "captured"), []
    graph.capture_begin()
    stream.launch(log.append, 1)
    if state != "capturing":
        graph.capture_end()
    with pytest.raises(ag.GraphStateError, match=r"capture_begin\(\)"), graph:
        raise AssertionError
    assert graph.state == state
    if state == "capturing":
        graph.capture_end()
    graph.replay()
    stream.synchronize()
    assert log == [1]


def test_a_failed_second_instantiation_is_made_good_by_the_next_replay(backend):
    stream, log = ag.Stream(backend=backend), []
    graph = captured(stream, log, keep_graph=True)
    graph.replay()
    launch = graph.bind()
    OneAtATime.broken = True
    with pytest.raises(ag.DriverError, match="BROKEN"):
        graph.instantiate()
    assert graph.state == "captured"
    with pytest.raises(ag.GraphStateError, match="instantiate"):
        launch()
    with pytest.raises(ag.DriverError, match="BROKEN"):
        graph.replay()
    OneAtATime.broken = False
    graph.replay()
    launch()
    stream.synchronize()
    assert (graph.state, log) == ("ready", [1, 1, 1])


def test_a_first_instantiation_that_fails_leaves_a_kept_graph_captured(backend):
    stream, log = ag.Stream(backend=backend), []
    OneAtATime.broken = True
    with pytest.raises(ag.DriverError):
        captured(stream, log)
    debugged = ag.Graph(stream=stream)
    debugged.enable_debug_mode()
    with pytest.raises(ag.DriverError), debugged:
        stream.launch(log.append, 1)
    assert debugged.state == "captured"
    OneAtATime.broken = False
    debugged.replay()
    stream.synchronize()
    assert log == [1]


def test_inside_a_side_capture_the_graphs_stream_is_the_captured_one(stream):
    graph, log = ag.Graph(), []
    with stream, ag.graph(graph):
        assert graph.stream is ag.current_stream()
        assert graph.stream is not stream
        graph.stream.launch(log.append, 1)
    assert graph.stream is stream
    assert log == []
    graph.replay()
    stream.synchronize()
    assert log == [1]


def test_a_side_capture_inside_a_capture_touches_nothing_of_the_outer_one(stream):
    outer, inner, log = ag.Graph(stream=stream), ag.Graph(), []
    with outer:
        stream.launch(log.append, "outer")
        with ag.graph(inner):
            ag.current_stream().launch(log.append, "inner")
        stream.launch(log.append, "outer")
    outer.replay()
    stream.synchronize()
    inner.replay()
    stream.synchronize()
    assert log == ["outer", "outer", "inner"]


def test_a_kept_graph_outlives_the_stream_that_was_closed(stream):
    log, other = [], ag.Stream(backend="cpu")
    graph = captured(stream, log, keep_graph=True)
    stream.close()
    graph.instantiate()
    graph.replay(other)
    other.synchronize()
    graph.replay()
    graph.bind()()
    other.wait(graph._runner.home)
    other.synchronize()
    assert log == [1, 1, 1]


def test_a_stream_closed_during_synchronize_is_destroyed_after_it(stream, monkeypatch):
    entered, go_on, destroyed = threading.Event(), threading.Event(), []
    monkeypatch.setattr(CpuBackend, "synchronize", lambda self, native: entered.set() or go_on.wait(120))
    own = ag.Stream(backend="cpu")
    native = own.native
    waiting = threading.Thread(target=own.synchronize)
    waiting.start()
    assert entered.wait(120)
    monkeypatch.setattr(CpuBackend, "destroy_stream", lambda self, each: destroyed.append(each))
    own.close()
    ag.Stream(backend="cpu")
    assert native not in destroyed
    go_on.set()
    waiting.join(120)


def test_ending_the_capture_inside_its_with_block_is_said_so(stream):
    graph = ag.Graph(stream=stream)
    with pytest.raises(ag.GraphStateError, match="inside its `with` block"), graph:
        graph.reset()
    assert graph.state == "empty"


def test_an_error_while_asking_how_the_capture_is_does_not_hide_the_bodys(stream, monkeypatch):
    graph = ag.Graph(stream=stream)

    def refuse(self, native):
        raise ag.UnsupportedError("no")

    def attempt():
        with graph:
            monkeypatch.setattr(CpuBackend, "capture_status", refuse)
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        attempt()
    monkeypatch.undo()
    assert graph.state == "empty"
    with graph:
        stream.launch(int)


def test_a_capture_on_a_device_that_is_lost_fails_as_a_capture(stream, monkeypatch):
    graph = ag.Graph(stream=stream)
    lost = ag.errors.driver_error(
        backend="cpu", call="capture_status", code=None, code_name="LOST", reason="device_lost"
    )

    def refuse(self, native):
        raise lost

    def attempt():
        with graph:
            monkeypatch.setattr(CpuBackend, "capture_status", refuse)
            raise LookupError("mine")

    with pytest.raises(ag.CaptureError, match="LOST") as raised:
        attempt()
    monkeypatch.undo()
    assert raised.value.reason == "device_lost"
    assert type(raised.value.__cause__) is LookupError
    assert graph.state == "empty"


def test_a_capture_of_a_thread_python_does_not_know_can_be_reset_after_it_has_ended(stream):
    import _thread

    graph, begun = ag.Graph(stream=stream), threading.Event()

    def begin():
        graph.capture_begin()
        begun.set()

    _thread.start_new_thread(begin, ())
    assert begun.wait(120)
    for _ in range(1000):
        try:
            graph.reset()
            break
        except ag.GraphStateError:
            threading.Event().wait(0.01)
    assert graph.state == "empty"
    with graph:
        stream.launch(int)


@pytest.mark.parametrize("what", [3, None, object(), random.Random(1)])
def test_what_is_not_a_generator_of_a_device_is_refused(what):
    g = ag.Graph()
    with pytest.raises(TypeError, match=r"must be a random generator of a device, .* not "):
        g.register_generator_state(what)


@pytest.mark.promise("graphs-stay-in-their-process")
@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_graph_is_not_copied(stream, copying):
    graph = captured(stream, [])
    with pytest.raises(TypeError, match="can't be pickled or copied"):
        copying(graph)
    with pytest.raises(TypeError, match="can't be pickled or copied"):
        copying(ag.Graph())
    assert pickle.loads(pickle.dumps(ag.Graph.replay)) is ag.Graph.replay


@pytest.mark.promise("wrong-arguments-at-once", "state-error-changes-nothing")
def test_what_is_refused_leaves_the_graph_as_it_was(stream):
    graph = captured(stream, [], keep_graph=True)
    for wrong in ("x", None.__class__, 1.5):
        with pytest.raises(TypeError):
            graph.replay(wrong)
        with pytest.raises(TypeError):
            graph.bind(wrong)
    assert graph.state == "captured"


@pytest.mark.parametrize("answer", [3, (), (0,), (1, 3), (0, "3"), None])
def test_a_malformed_stream_protocol_is_a_type_error(answer):
    class Theirs:
        def __cuda_stream__(self):
            return answer

    with pytest.raises(TypeError, match="__cuda_stream__"):
        ag.Graph(stream=Theirs(), backend="cpu")


def test_backends_of_the_wrong_type_are_type_errors():
    for wrong in ([], 3, b"cpu"):
        for use in (lambda w: ag.Stream(backend=w), lambda w: ag.Graph(backend=w), ag.is_graph_available):
            with pytest.raises(TypeError):
                use(wrong)


def test_dumping_to_what_is_no_file_writes_it(stream, tmp_path):
    graph = captured(stream, [], keep_graph=True)
    pipe, text = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: text.append(pipe.read_text()))
    reader.start()
    graph.debug_dump(pipe)
    reader.join(120)
    assert "digraph" in text[0]
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)
    target, link = tmp_path / "target.dot", tmp_path / "link.dot"
    target.write_text("old")
    link.symlink_to(target)
    graph.debug_dump(os.fsencode(link))
    assert link.is_symlink()
    assert "digraph" in target.read_text()


def test_an_unfinished_drawing_follows_no_link_and_has_no_name_to_guess(stream, tmp_path, monkeypatch):
    graph, seen = captured(stream, [], keep_graph=True), []
    victim = tmp_path / "victim"
    victim.write_text("precious")
    real = CpuBackend.dump

    def dump(self, graph, path, verbose):
        seen.append(path)
        return real(self, graph, path, verbose)

    monkeypatch.setattr(CpuBackend, "dump", dump)
    target = tmp_path / "g.dot"
    (tmp_path / f"g.dot.{os.getpid()}.tmp").symlink_to(victim)
    for _ in range(2):
        graph.debug_dump(target)
    assert victim.read_text() == "precious"
    assert len({*seen}) == 2
    assert {os.path.dirname(path) for path in seen} == {str(tmp_path)}
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask
    (tmp_path / f"g.dot.{os.getpid()}.tmp").unlink()

    taken = iter([b"taken", b"taken", b"free"])
    monkeypatch.setattr(os, "urandom", lambda count: next(taken))
    graph.debug_dump(target)
    (tmp_path / os.path.basename(seen[-1])).symlink_to(victim)
    graph.debug_dump(target)
    assert victim.read_text() == "precious"
    assert b"free".hex() in seen[-1]


def test_a_drawing_that_can_not_be_written_names_the_path_that_was_given(stream, tmp_path):
    graph = captured(stream, [], keep_graph=True)
    for path in (tmp_path / "missing" / "g.dot", tmp_path / ("long" * 100)):
        with pytest.raises(OSError, match=r"g\.dot|long") as info:
            graph.debug_dump(path)
        assert info.value.filename == str(path)
    graph.debug_dump(tmp_path / ("a" * 251 + ".dot"))  # as long as a name can be


NAMES = [
    "plain",
    "ends in a backslash \\",
    "\\",
    '"',
    '\\"',
    "\\\\",
    '"];\n x [label="',
    "two\nlines",
    "nul\0",
    "surrogate \ud800",
    "<html>",
    "ä",
    "\\N \\l",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_node_makes_a_valid_drawing(stream, tmp_path, name):
    def work():
        pass

    work.__qualname__ = name
    graph = ag.Graph(stream=stream, keep_graph=True)
    with graph:
        stream.launch(work)
        stream.launch(work)
    graph.debug_dump(tmp_path / "g.dot")
    text = (tmp_path / "g.dot").read_text(encoding="utf-8")
    strings = re.findall(r'"(?:[^"\\]|\\.)*"', text[text.index("n0 [") :], re.DOTALL)
    rest = re.sub(r'"(?:[^"\\]|\\.)*"', "S", text, flags=re.DOTALL)
    assert " ".join(rest.split()) == (
        "digraph accelerator_graph { graph [fontname=S, fontsize=11, color=S]; "
        "node [fontname=S, fontsize=11, shape=box, style=S, color=S]; edge [color=S, arrowsize=0.7]; "
        "n0 [label=S, fillcolor=S, tooltip=S]; n1 [label=S, fillcolor=S, tooltip=S]; n0 -> n1; }"
    )
    shown = strings[0][1:-1].removeprefix("host ").replace("\\\\", "\\").replace('\\"', '"')
    assert shown == "".join(each if each.isprintable() else ascii(each)[1:-1] for each in name)


@pytest.fixture
def two():
    """A second backend, and a stream of each."""
    ag.backends.register("second", CpuBackend)
    yield ag.Stream(backend="cpu"), ag.Stream(backend="second")
    ag.backends.unregister("second")


def test_two_backends_are_told_apart_in_words_that_are_true(two):
    one, other = two
    graph = captured(one, [])
    says = {
        "wait": lambda: one.wait(other),
        "wait for an event": lambda: one.wait(other.record()),
        "replay": lambda: graph.replay(other),
        "bind": lambda: graph.bind(other),
    }
    for use in says.values():
        with pytest.raises(ValueError, match=r"backend 'second'|of 'second'") as info:
            use()
        assert "'cpu'" in str(info.value)
        assert "named" not in str(info.value)
    for use in (
        lambda: ag.Graph(stream=other, backend="cpu"),
        lambda: ag.graph(ag.Graph(backend="cpu"), stream=other),
    ):
        with pytest.raises(ValueError, match="is not of backend 'cpu', which was named"):
            use()


def test_a_stream_of_a_backend_that_can_not_run_says_why(monkeypatch):
    class Theirs:
        pass

    for name in ("cuda", "hip"):
        Theirs.__module__ = f"{name}.streams"
        reason = next(row.reason for row in ag.backends.report() if row.name == name)
        if not reason:
            pytest.skip(f"backend {name!r} can run here")
        for use in (ag.Graph, lambda stream: ag.Stream(like=stream)):
            with pytest.raises(ag.BackendUnavailableError) as info:
                use(stream=Theirs()) if use is ag.Graph else use(Theirs())
            assert reason.rstrip(".") in str(info.value)


def test_a_plug_in_that_could_not_be_asked_whose_a_stream_is_is_named():
    ag.backends.register("absent", "not_there:Backend")
    try:
        with pytest.raises(TypeError, match="is not a stream; make one") as info:
            ag.Graph(stream=threading.Lock())
        assert any("'absent'" in note and "not_there" in note for note in info.value.__notes__)
    finally:
        ag.backends.unregister("absent")


@pytest.mark.promise("wrong-arguments-at-once")
def test_wrong_arguments_are_refused_by_public_names(stream):
    for wrong, said in [
        (lambda: ag.Graph(pol=None), "Graph.__init__() got an unexpected keyword argument 'pol'"),
        (lambda: ag.Graph().retain(), "Graph.retain() missing 1 required positional argument: 'obj'"),
        (ag.Event, "an Event is made by Stream.record(); call that on the stream to be marked."),
    ]:
        with pytest.raises(TypeError, match=re.escape(said)):
            wrong()


def test_a_graph_says_what_it_is(stream):
    assert repr(ag.Graph()) == "<accelerator_graph.Graph, empty>"
    assert repr(stream.record()) == "<event of 'cpu', device 0>"
    assert repr([ag.label("a"), ag.graph(ag.Graph()), ag.diagnose(all=True), ag.progress()]) == (
        "[label('a'), graph(<accelerator_graph.Graph, empty>), diagnose(all=True), progress()]"
    )
    one, other = (repr(captured(each, [])) for each in (stream, ag.Stream(backend="cpu")))
    expected = r"<accelerator_graph\.Graph, ready, stream at 0x[0-9a-f]+ of 'cpu', device 0>"
    assert re.fullmatch(expected, one)
    assert re.fullmatch(expected, other)
    assert one != other


def test_a_stream_of_a_backend_that_took_over_the_name_is_refused():
    ag.backends.register("taken_over", CpuBackend)
    graph = captured(ag.Stream(backend="taken_over"), [])
    event = ag.Stream(backend="taken_over").record()
    ag.backends.register("taken_over", OneAtATime, replace=True)
    try:
        with pytest.raises(ValueError, match="registered anew"):
            graph.replay(ag.Stream(backend="taken_over"))
        with pytest.raises(
            ValueError, match="the event was made before a fork, or before backend 'taken_over'"
        ):
            ag.Stream(backend="taken_over").wait(event)
    finally:
        ag.backends.unregister("taken_over")


def test_a_replay_that_loses_the_race_against_reset_is_a_state_error(stream):
    graph = captured(stream, [])
    runner = graph._runner
    assert isinstance(runner, replay.Runner)
    graph.reset()
    for use in (lambda: runner.replay(stream, stream), lambda: runner.bind(stream, None)):
        with pytest.raises(ag.GraphStateError, match="reset"):
            use()


def test_a_capture_of_somebody_else_that_has_failed_is_named(stream):
    runtime, native = stream._backend, stream.native
    token = runtime.capture_begin(native, runtime.capture_modes[0])
    with pytest.raises(ag.DriverError):
        runtime.synchronize(native)
    with (
        pytest.raises(ag.CaptureError, match="an earlier capture of the stream failed and was not ended"),
        ag.Graph(stream=stream),
    ):
        raise AssertionError
    runtime.capture_abandon(token)


def test_graphs_that_compare_equal_are_told_apart():
    class Equal(ag.Graph):
        def __eq__(self, other):
            return True

        __hash__ = ag.Graph.__hash__

    first, second = (ag.Stream(backend="cpu") for _ in range(2))
    with Equal(stream=first) as outer:
        first.launch(int)
        with Equal(stream=second):
            second.launch(int)
        assert ag.current_graph() is outer
    assert ag.current_graph() is None


def test_callbacks_of_the_collector_that_compare_equal_are_not_taken_for_ours(stream):
    class Equal:
        def __eq__(self, other):
            return True

        __hash__ = None

        def __call__(self, phase, info):
            pass

    theirs, before = Equal(), list(gc.callbacks)
    gc.callbacks.insert(0, theirs)
    try:
        with ag.Graph(stream=stream):
            stream.launch(int)
            assert any(each is capture.around_gc for each in gc.callbacks)
        assert gc.callbacks[0] is theirs
        assert len(gc.callbacks) == len(before) + 1
    finally:
        gc.callbacks[:] = before


@pytest.mark.promise("reset-abandons")
def test_a_capture_whose_graph_is_lost_is_named_and_can_be_ended():
    stream = ag.Stream(backend="cpu")
    ag.Graph(stream=stream).capture_begin()
    line = sys._getframe().f_lineno - 1
    gc.collect()
    way_out = re.escape(f"since {__file__}:{line}; end that capture, or abandon it with ")
    with pytest.raises(ag.CaptureError, match=way_out) as caught, stream, ag.Graph():
        raise AssertionError
    assert caught.value.reason == "foreign_capture"
    with pytest.raises(ag.GraphStateError, match=way_out):
        stream.close()
    forked = ag.Stream(backend="cpu")
    forked.wait(stream)
    with pytest.raises(ag.CaptureError, match=way_out), forked, ag.Graph():
        raise AssertionError
    ag.current_graph().reset()
    assert ag.current_graph() is None
    with stream, ag.Graph() as g:
        assert ag.current_graph() is g
        stream.launch(print)
    assert ag.current_graph() is None


def test_who_captures_a_stream_is_named_in_other_threads():
    stream = ag.Stream(backend="cpu")
    message = "thread 'MainThread' is capturing the stream; wait for the end of that capture"
    with ag.Graph(stream=stream):
        stream.launch(print)
        with pytest.raises(ag.CaptureError, match=message):
            in_thread(ag.Graph(stream=stream).__enter__)


@pytest.mark.parametrize("operation", REFUSED)
def test_what_a_ready_graph_refuses_if_it_was_not_kept_is_in_the_table(stream, operation, tmp_path):
    arguments = {"debug_dump()": [tmp_path / "graph.dot"], "register_generator_state()": [None]}
    arguments["update()"] = [captured(stream, [], keep_graph=True)]
    graph = captured(stream, [])
    arguments |= {"set_node()": [0], "set_nodes()": [{}]}
    assert graph.state == "ready"
    sentence = REFUSED[operation].get("ready") or REFUSED_UNLESS_KEPT.get(operation)
    refused = ""
    try:
        found = getattr(graph, operation.removesuffix("()"))
        if operation.endswith("()"):
            found(*arguments.get(operation, ()))
        else:
            setattr(graph, operation, found)
    except ag.GraphStateError as error:
        refused = str(error)
    except (ag.UnsupportedError, AttributeError):
        pass  # it is allowed; the backend can't do it, or the property can only be read
    assert refused == (f"Graph.{operation}: {sentence}." if sentence else "")
