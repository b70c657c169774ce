"""How the HIP backend calls the runtime: on which device, in which mode; on a runtime of a few lines."""

import contextlib
import threading
from types import SimpleNamespace
from weakref import WeakSet

import pytest

from accelerator_graph import errors
from accelerator_graph.backends._hip import driver, node
from accelerator_graph.backends._hip import launch as runs
from accelerator_graph.backends._hip.driver import Driver, Graph
from accelerator_graph.backends._hip.launch import Executable, has_runs, settle
from accelerator_graph.backends.base import GraphNode
from accelerator_graph.backends.driver import Event
from backends.hip.fakes import API, FakeRuntime, untouched
from backends.tools import MODES, prepare

pytest_plugins = ["backends.hip.fixtures"]


class Place:
    """Stands for the pointer that C reads; another thread comes in between before it is set to a stream."""

    def __init__(self, meanwhile):
        self._value, self._meanwhile, self.others = None, meanwhile, []

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, stream):
        if stream is not None:
            self.others.append(threading.Thread(target=self._meanwhile, args=(stream,), daemon=True))
            self.others[-1].start()
            self.others[-1].join(0.2)
        self._value = stream


def done(answer=True):
    return lambda: answer


def test_c_never_takes_another_stream_for_that_of_the_latest_run():
    executable = Executable(31, 0)
    assert executable.latest.value is executable.stream is None
    place = executable.latest = Place(lambda stream: settle(stream, done()))
    executable.move(5)
    place.others[0].join(120)
    assert place.value is executable.stream is None

    executable = Executable(31, 0)
    executable.move(5)
    settle(7, done())
    assert executable.latest.value == executable.stream == 5
    settle(5, done())
    assert executable.latest.value is executable.stream is None
    executable.move(0)  # the default stream, for which there is no launch in C
    assert executable.stream == 0
    assert executable.latest.value is None


def test_settling_a_stream_touches_what_ran_on_it_alone():
    here, there, elsewhere, idle = (Executable(31, 0) for _ in range(4))
    for executable, stream in ((here, 7), (there, 5), (there, 7), (elsewhere, 7), (elsewhere, 5)):
        executable.move(stream)
    marked = []

    def is_done():
        marked.extend(each for each in (here, there, elsewhere, idle) if each.settling)
        return True

    settle(7, is_done)
    assert marked == [here, there]
    assert [each.stream for each in (here, there, elsewhere, idle)] == [None, None, 5, None]
    assert [has_runs(stream) for stream in (5, 7, 9)] == [True, False, False]
    elsewhere.move(None)
    assert not has_runs(5)


def test_a_stream_is_not_settled_for_what_is_launched_meanwhile_or_not_done():
    def raising():
        raise KeyboardInterrupt

    executable = Executable(31, 0)
    executable.move(0)
    settle(0, lambda: executable.move(0) or True)
    assert (executable.stream, executable.settling) == (0, None)
    executable.move(7)
    settle(7, done(False))
    with pytest.raises(KeyboardInterrupt):
        settle(7, raising)
    assert (executable.stream, executable.latest.value) == (7, None)
    assert executable.settling
    assert has_runs(7)


def test_a_signal_handler_that_moves_the_last_one_away_does_no_harm(monkeypatch):
    one, other = Executable(31, 0), Executable(32, 0)

    class Interrupted(WeakSet):
        def discard(self, item):
            super().discard(item)
            if item is one:
                other.move(None)

    monkeypatch.setattr(runs, "WeakSet", Interrupted)
    one.move(11)
    other.move(11)
    one.move(None)
    assert not has_runs(11)
    assert (one.stream, other.stream) == (None, None)


def test_executables_that_are_gone_leave_nothing():
    Executable(31, 0).move(11)
    assert not has_runs(11)


def test_calls_run_on_the_right_device_and_in_the_right_mode(fake):
    backend, runtime = fake
    graph, executable, event = Graph(21, 3), Executable(31, 3), Event(51, 3, 0, ())
    relaxed, plain = MODES.index("relaxed"), MODES.index("global")
    for work, function, mode in [
        (lambda: backend.create_stream(3), "hipStreamCreateWithPriority", relaxed),
        (lambda: backend.destroy_stream(9), "hipStreamDestroy", relaxed),
        (lambda: prepare(backend, 9), "hipStreamSynchronize", relaxed),
        (lambda: backend.instantiate(graph), "hipGraphInstantiateWithFlags", relaxed),
        (lambda: backend.native_calls(9).upload(executable), "hipGraphUpload", relaxed),
        (lambda: backend.destroy_executable(Executable(31, 3)), "hipGraphExecDestroy", relaxed),
        (lambda: backend.destroy_graph(Graph(21, 3)), "hipGraphDestroy", relaxed),
        (lambda: backend.destroy_event(Event(51, 3, 0, ())), "hipEventDestroy", relaxed),
        (lambda: backend.synchronize(9), "hipStreamSynchronize", plain),
        (lambda: backend.query(9), "hipStreamQuery", plain),
        (lambda: backend.record_event(9), "hipEventRecord", plain),
        (lambda: backend.wait_event(9, event), "hipStreamWaitEvent", plain),
        (lambda: backend.fill(9, 64, 0, 8), "hipMemsetAsync", plain),
        (lambda: backend.dump(graph, "x", False), "hipGraphDebugDotPrint", plain),
    ]:
        for fail in ("", function):
            runtime.fail = fail
            runtime.graphs = 1
            runtime.seen.clear()
            with pytest.raises(errors.DriverError) if fail else contextlib.nullcontext():
                work()
            assert (function, 3, mode) in runtime.seen, function
            untouched(runtime)


def test_an_event_that_cannot_be_recorded_is_destroyed(fake):
    backend, runtime = fake
    runtime.fail = "hipEventRecord"
    with pytest.raises(errors.DriverError):
        backend.record_event(9)
    assert "hipEventDestroy" in [name for name, *_ in runtime.seen]


def test_a_device_that_cannot_be_made_current(fake):
    backend, runtime = fake
    runtime.fail = "hipSetDevice"
    for work in (lambda: backend.synchronize(9), lambda: backend.instantiate(Graph(21, 3))):
        runtime.seen.clear()
        with pytest.raises(errors.DriverError, match=r"hipSetDevice returned hipErrorX \(1\): some error"):
            work()
        assert not {name for name, *_ in runtime.seen} & {
            "hipStreamSynchronize",
            "hipGraphInstantiateWithFlags",
        }
        runtime.last_error = 0
        untouched(runtime)


def test_a_mode_that_cannot_be_exchanged(fake):
    backend, runtime = fake
    runtime.fail = "hipThreadExchangeStreamCaptureMode"
    with pytest.raises(errors.DriverError, match="hipThreadExchangeStreamCaptureMode"):
        backend.instantiate(Graph(21, 3))
    untouched(runtime)


def test_a_thread_that_is_relaxed_stays_so(fake):
    backend, runtime = fake
    runtime.mode = 2
    backend.instantiate(Graph(21, 3))
    assert runtime.mode == 2


def test_a_runtime_that_is_too_old(fake):
    backend, runtime = fake
    runtime.missing = {"hipGraphUpload"}
    with pytest.raises(errors.UnsupportedError) as raised:
        backend.native_calls(9).upload(Executable(31, 3))
    assert str(raised.value) == (
        "the HIP runtime (libfake.so) does not have hipGraphUpload; install a newer ROCm."
    )
    untouched(runtime)


def test_a_device_count_that_fails(monkeypatch):
    runtime = FakeRuntime()
    monkeypatch.setattr(driver, "import_hip", lambda: API)
    monkeypatch.setattr(driver, "Library", lambda: runtime)
    runtime.fail = "hipGetDeviceCount"
    with pytest.raises(errors.DriverError, match="hipGetDeviceCount returned hipErrorX"):
        Driver("hip")
    runtime.fail, runtime._hipGetDeviceCount = "", lambda count: 100
    assert Driver("hip").device_count == 0


def test_a_node_that_the_binding_does_not_know_is_unknown(fake):
    backend, _ = fake
    (node,), edges = backend.nodes(Graph(21, 3))
    assert (node, edges) == (GraphNode(0, "unknown"), [])


def test_a_node_whose_parameters_cannot_be_had_has_none():
    def call(function, *args):
        if function == "hipGraphNodeGetType":
            return 0
        raise errors.DriverError("")

    assert node._read(SimpleNamespace(call=call), 3, 41) == GraphNode(3, "kernel")
    assert node._name(SimpleNamespace(), None) == ""


# ---- replays -------------------------------------------------------------------------------------


def test_a_bound_replay_tells_what_the_launch_answered(fake):
    backend, runtime = fake
    replay = backend.native_calls(9).bind(Executable(31, 3))
    replay()
    runtime.fail = "hipGraphLaunch"
    for again in (replay, lambda: backend.replay(Executable(31, 3), 9)):
        with pytest.raises(
            errors.DriverError,
            match=r"^backend 'hip': hipGraphLaunch returned hipErrorX \(1\): some error\.$",
        ):
            again()
        untouched(runtime)


def test_replays_on_one_stream_ask_for_nothing_else(fake):
    backend, runtime = fake
    replay = backend.native_calls(9).bind(Executable(31, 3))
    replay()
    runtime.seen.clear()
    replay()
    assert [name for name, *_ in runtime.seen] == ["hipGraphLaunch"]


def test_a_replay_on_another_stream_waits_for_the_last_one(fake):
    backend, runtime = fake
    executable = Executable(31, 3)
    backend.replay(executable, 9)
    runtime.seen.clear()
    backend.replay(executable, 10)
    names = [name for name, device, _ in runtime.seen if device == 3]
    assert names == [
        *("hipStreamGetDevice", "hipStreamIsCapturing", "hipEventCreateWithFlags", "hipEventRecord"),
        *("hipStreamWaitEvent", "hipEventDestroy", "hipSetDevice"),
    ]
    untouched(runtime)


@pytest.mark.parametrize("code", [400, 709])
def test_a_last_stream_that_is_gone_is_not_waited_for(fake, code):
    backend, runtime = fake
    executable = Executable(31, 3)
    backend.replay(executable, 9)
    runtime.seen.clear()
    runtime._hipStreamGetDevice = lambda stream, device: code
    backend.replay(executable, 10)
    names = [name for name, *_ in runtime.seen]
    assert "hipStreamWaitEvent" not in names
    assert names[-1] == "hipGraphLaunch"
    untouched(runtime)


@pytest.mark.parametrize(
    "function",
    [
        "hipStreamGetDevice",
        "hipStreamIsCapturing",
        "hipEventCreateWithFlags",
        "hipEventRecord",
        "hipStreamWaitEvent",
    ],
)
def test_a_run_that_cannot_be_ordered_is_none(fake, function):
    backend, runtime = fake
    executable = Executable(31, 3)
    backend.replay(executable, 9)
    for _ in range(2):  # it is not forgotten what has to be waited for
        runtime.seen.clear()
        runtime.fail = function
        with pytest.raises(errors.DriverError, match=f"{function} returned"):
            backend.replay(executable, 10)
        assert "hipGraphLaunch" not in [name for name, *_ in runtime.seen]
        untouched(runtime)
    runtime.fail = ""
    backend.replay(executable, 10)
    names = [name for name, *_ in runtime.seen]
    assert names.count("hipStreamWaitEvent") == 1 + (function == "hipStreamWaitEvent")
    assert names.count("hipEventDestroy") == names.count("hipEventCreateWithFlags") - (
        function == "hipEventCreateWithFlags"
    )
    assert names[-1] == "hipGraphLaunch"


@pytest.mark.parametrize("function", ["hipEventCreateWithFlags", "hipEventRecord"])
def test_a_run_on_a_default_stream_whose_end_cannot_be_marked_is_waited_for(fake, function):
    backend, runtime = fake
    executable = Executable(31, 3)
    runtime.fail = function
    backend.replay(executable, 2)
    assert ("hipStreamSynchronize", 3, 0) in runtime.seen
    runtime.fail = ""
    runtime.seen.clear()
    backend.replay(executable, 10)
    assert "hipStreamWaitEvent" not in [name for name, *_ in runtime.seen]
    untouched(runtime)


def test_a_marked_end_that_cannot_be_waited_for_is_kept(fake):
    backend, runtime = fake
    executable = Executable(31, 3)
    backend.replay(executable, 2)
    assert executable.event == 51
    runtime.fail = "hipStreamWaitEvent"
    runtime.seen.clear()
    with pytest.raises(errors.DriverError, match="hipStreamWaitEvent"):
        backend.replay(executable, 10)
    names = [name for name, *_ in runtime.seen]
    assert not {"hipGraphLaunch", "hipEventDestroy"} & set(names)
    assert executable.event == 51
    runtime.fail = ""
    backend.replay(executable, 10)
    assert executable.event == 0
    assert "hipEventDestroy" in [name for name, *_ in runtime.seen]
    untouched(runtime)


def test_what_an_executable_keeps_is_destroyed_with_it(fake):
    backend, runtime = fake
    executable = Executable(31, 3)
    backend.replay(executable, 2)
    runtime.seen.clear()
    backend.destroy_executable(executable)
    names = [name for name, *_ in runtime.seen]
    assert names.index("hipEventDestroy") < names.index("hipGraphExecDestroy")
    untouched(runtime)
