"""Which call breaks a capture, and how the diagnosis is turned on: on the cpu backend."""

import contextlib
import gc
import os
import pickle
import signal
import sys
import threading
import time
import weakref

import pytest

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph._core.observers import DIAGNOSE
from accelerator_graph.backends.base import CaptureStatus
from accelerator_graph.diagnosis._tracing import wording
from accelerator_graph.diagnosis._tracing.places import Place
from accelerator_graph.diagnosis._tracing.streams import Streams
from accelerator_graph.diagnosis._tracing.suspects import Rules, Suspect, culprits
from accelerator_graph.interop.base import Framework
from diagnosis.planted import broken_by, library, marked, named
from threads import in_thread

pytestmark = [pytest.mark.needs("cpu"), pytest.mark.usefixtures("answered")]


@pytest.fixture
def stream():
    with ag.Stream(backend="cpu") as stream:
        yield stream


def waits(stream):
    stream.launch(int)
    stream.synchronize()  # breaks


def asks(stream):
    for _ in range(3):
        stream.launch(int)
    stream.query()  # breaks


def waits_outside(stream, event):
    stream.launch(int)
    stream.wait(event)  # breaks


def joins_another_capture(stream, event):
    with contextlib.suppress(ag.DriverError):
        stream.wait(event)  # breaks
    stream.launch(int)


def in_a_loop(stream):
    for i in range(4):
        stream.launch(int)
        if i == 2:
            stream.synchronize()  # breaks


def in_a_comprehension(stream):
    [each.query() for each in (stream,)]  # breaks


def in_a_generator(stream):
    def steps():
        yield 1
        stream.synchronize()  # breaks
        yield 2

    return sum(steps())


def in_an_operator(stream):
    class Value:
        def __add__(self, other):
            stream.query()  # breaks

    return Value() + 1


def in_a_finalizer(stream):
    class Value:
        def __del__(self):
            with contextlib.suppress(ag.DriverError):
                stream.synchronize()  # breaks

    value = Value()
    del value
    repr(stream)


def in_a_collection(stream):
    class Value:
        def __del__(self):
            with contextlib.suppress(ag.DriverError):
                stream.query()  # breaks

    value = Value()
    value.itself = value
    del value
    gc.collect()


def not_joined(stream):
    side = ag.Stream(like=stream)
    joined = ag.Stream(like=stream)
    joined.wait(stream)
    joined.launch(int)
    stream.wait(joined)
    side.wait(stream)  # breaks
    side.launch(int)


FAULTS = (
    waits,
    asks,
    in_a_loop,
    in_a_comprehension,
    in_a_generator,
    in_an_operator,
    in_a_finalizer,
    in_a_collection,
    not_joined,
)


@pytest.mark.promise("diagnosis-names-the-call")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_named(fault, stream):
    named(fault, ag.Graph(observe=ag.diagnose()), stream)
    graph = ag.Graph(observe=ag.diagnose())
    with graph:
        stream.launch(int)  # and the next capture is not blamed
    assert graph.num_nodes == 1


@pytest.mark.parametrize("fault", [waits_outside, joins_another_capture])
def test_a_wait_for_work_outside_is_named(fault, stream):
    other = ag.Stream(like=stream)
    other.launch(threading.Event().wait, 0.01)
    error = named(fault, ag.Graph(observe=ag.diagnose()), stream, other.record())
    assert "Stream.wait waits for work outside of the capture; wait for it before the capture" in str(error)


def test_the_sentence(stream):
    error = named(waits, ag.Graph(observe=ag.diagnose()), stream)
    line = marked(waits)[1]
    assert str(error).endswith(
        f"test_broken_captures.py:{line} in waits: Stream.synchronize waits for work that is only being "
        "recorded; call it before the capture or after a replay."
    )
    assert error.reason == "illegal_call"
    [call] = error.calls
    assert (call.function, call.call, call.library) == ("waits", "Stream.synchronize", None)
    assert "stream.synchronize()  # breaks" in call.stack
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.calls) == (str(error), error.calls)


def test_the_library_that_was_called_is_named_too(stream, tmp_path):
    helper = library(
        tmp_path, "def helper(stream):\n    inner(stream)\n\ndef inner(stream):\n    stream.query()\n"
    )

    def calls_a_library():
        helper["helper"](stream)  # breaks

    error = named(calls_a_library, ag.Graph(observe=ag.diagnose()))
    [call] = error.calls
    path, line, function = call.library
    assert path.endswith("planted_library.py")
    assert (line, function) == (5, "inner")
    assert "planted_library.py:5 in inner" in str(error)
    assert call.call == "helper > Stream.query"


def test_another_thread_is_named(stream):
    def watchdog():
        with contextlib.suppress(ag.DriverError):
            stream.synchronize()  # breaks

    error = named(watchdog, ag.Graph(observe=ag.diagnose()), thread="dog")
    assert "on thread 'dog'" in str(error)
    assert any("thread 'dog'" in note for note in error.__notes__)


# ---- who can't be the cause ----------------------------------------------------------------------


def hidden(stream):
    """Return an iterator that breaks the capture, in C and under no name that is known."""
    return map(setattr, [stream._native.capture], ["status"], [CaptureStatus.INVALIDATED])


def in_a_one_line_function(stream):
    drain = lambda broken: [*broken]  # noqa: E731  # breaks

    def outer(broken):
        drain(broken)

    outer(hidden(stream))
    stream.launch(int)


def test_an_operator_in_a_one_line_function_is_named(stream):
    named(in_a_one_line_function, ag.Graph(observe=ag.diagnose()), stream)


def test_a_call_of_an_unknown_name_is_named(stream):
    def drains(broken):
        sorted(broken)  # breaks

    def body():
        broken = hidden(stream)
        drains(broken)

    error = broken_by(body, ag.Graph(observe=ag.diagnose()))
    assert [(each.file, each.line, each.call) for each in error.calls] == [(*marked(drains), "sorted")]
    assert "sorted was the last to run before the capture broke" in str(error)


class Beside:
    """A thread that waits in a call, all the time that this is entered."""

    def __init__(self, stream, wait):
        self.stream, self.wait = stream, wait
        self.over, self.waits = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run, name="beside")

    def __enter__(self):
        self.stream.launch(self.over.wait)
        self.event = self.stream.record()
        self.thread.start()
        assert self.waits.wait(120)
        time.sleep(0.02)

    def run(self):
        self.waits.set()
        self.wait(self)

    def __exit__(self, *exc):
        self.over.set()
        self.thread.join()


def for_its_own_stream(beside):
    beside.stream.synchronize()


def for_its_own_event(beside):
    beside.event.synchronize()


@pytest.mark.promise("waiting-is-innocent")
@pytest.mark.parametrize("began", ["before", "in the capture"])
def test_a_thread_that_waits_for_its_own_stream_is_innocent(stream, began):
    beside = Beside(ag.Stream(backend="cpu"), for_its_own_stream)

    def breaks(broken):
        list(broken)  # breaks

    def body():
        with beside if began == "in the capture" else contextlib.nullcontext():
            breaks(hidden(stream))

    with beside if began == "before" else contextlib.nullcontext():
        error = broken_by(body, ag.Graph(observe=ag.diagnose()))
    assert [(each.file, each.line, each.thread) for each in error.calls] == [(*marked(breaks), "")], error


def test_a_thread_that_may_be_the_cause_is_one_of_those_named(stream):
    def breaks(broken):
        list(broken)  # breaks

    def body():
        with Beside(ag.Stream(backend="cpu"), for_its_own_event):
            breaks(hidden(stream))

    error = broken_by(body, ag.Graph(observe=ag.diagnose()))
    assert [each.thread for each in error.calls] == ["", "beside"]
    assert (error.calls[0].file, error.calls[0].line) == marked(breaks)
    assert "failed at one of 2 places" in str(error)


@pytest.mark.parametrize(
    ("name", "captured", "elsewhere", "said"),
    [  # as docs/reference/capture-rules.md has it: by mode, global, thread_local and relaxed
        ("cuCtxSynchronize", None, True, (True, True, True)),
        ("cuStreamSynchronize", True, True, (True, True, True)),
        ("cuStreamSynchronize", False, True, (True, False, False)),
        ("Stream.query", False, False, (True, True, False)),
        ("Stream.query", None, True, (True, None, None)),
        ("Device.synchronize", None, True, (True, True, True)),
        ("cuEventSynchronize", None, True, (True, None, None)),
        ("cuEventSynchronize", None, False, (True, True, None)),
        ("cuMemAlloc", None, True, (True, False, False)),
        ("hipFree", None, False, (True, True, False)),
        ("hipMemcpy", None, True, (None, None, None)),
        ("nobody_knows", None, False, (None, None, None)),
    ],
)
def test_the_rules(stream, name, captured, elsewhere, said):
    for mode, answer in zip(("global", "thread_local", "relaxed"), said, strict=True):
        assert rules_of(stream, mode).breaks(name, captured, elsewhere) is answer, mode


def test_a_thread_that_reads_all_the_time_is_innocent(stream):
    reading, writing = os.pipe()

    def reads():
        with open(reading, "rb") as file:
            for _ in iter(file.readline, b""):
                pass

    def breaks(broken):
        list(broken)  # breaks

    thread = threading.Thread(target=reads)
    thread.start()
    time.sleep(0.02)
    try:
        error = broken_by(lambda: breaks(hidden(stream)), ag.Graph(observe=ag.diagnose()))
        assert [(each.file, each.line) for each in error.calls] == [marked(breaks)], error
    finally:
        os.close(writing)
        thread.join()


@pytest.mark.promise("waiting-is-innocent")
@pytest.mark.parametrize("waits", ["acquires", "sleeps"])
def test_functions_that_only_wait_are_innocent(stream, waits):
    other, go, broken = ag.Stream(backend="cpu"), threading.Event(), threading.Lock()
    broken.acquire()

    def breaks():  # on a thread of the library, while the one that captures waits
        go.wait()
        time.sleep(0.02)
        list(hidden(stream))
        broken.release()

    other.launch(breaks)

    def body():
        go.set()
        if waits == "acquires":
            broken.acquire()
        while broken.locked() and waits == "sleeps":
            time.sleep(0.01)

    error = broken_by(body, ag.Graph(observe=ag.diagnose()))
    assert error.calls == ()
    assert "nobody saw the call" in str(error) or ".breaks, on thread" in str(error)


def test_a_thread_that_may_be_the_cause_is_not_accused_alone(stream):
    place = Place(__file__, 1, "somewhere")
    waits = Suspect([place], "event.synchronize", thread="beside", guessed=True)
    found = culprits([waits], rules_of(stream, "thread_local"), None)
    error = wording.broken(ag.CaptureError(""), "the capture", found, Suspect([place]), None, ())
    assert error.calls == ()
    assert "nobody saw the call that broke it; it may have been at" in str(error)


@pytest.mark.parametrize("name", ["cuCtxSynchronize", "driver.cuCtxSynchronize"])
def test_a_call_of_another_thread_is_named_without_its_module(name):
    """As it is if the thread itself tells of it, which may be just before."""
    place = Place(__file__, 1, "somewhere")
    assert Suspect([place], name, thread="beside", guessed=True).called() == "cuCtxSynchronize"


def rules_of(stream, mode):
    return Rules(Streams(stream._backend, stream._native), mode)


def refused():
    raise ag.DriverError("refused", code=900)  # breaks


def test_the_thread_that_an_exception_comes_from_is_named(stream):
    """Autograd runs hooks in threads of its own, and raises in `backward` what they raise."""
    with pytest.raises(ag.DriverError) as raised:
        refused()
    calls = Place(__file__, raised.traceback[0].lineno + 1, "")
    engine = Suspect([Place(*marked(refused), "refused")], raised=True, thread="engine")
    backward = Suspect([calls], "run_backward", raised=True)
    assert culprits([backward, engine], rules_of(stream, "thread_local"), raised.value) == [engine]


def test_an_array_whose_interface_raises_is_none(stream):
    class Tensor:
        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("it requires grad")

    class Array:
        __cuda_array_interface__ = None

    rules = rules_of(stream, "thread_local")
    place = [Place(__file__, 1, "somewhere")]
    assert [rules.foresees(Suspect(place, "item", each())) for each in (Tensor, Array, dict)] == [
        False,
        True,
        False,
    ]


def test_the_name_of_a_call_says_whether_it_reads_an_array(stream):
    class Array:
        __cuda_array_interface__ = None

    rules, place = rules_of(stream, "thread_local"), [Place(__file__, 1, "somewhere")]
    calls = {
        ("float", Array()): True,
        ("Tensor.item", Array()): True,
        ("TensorBase.float", Array()): False,  # another type, on the device
        ("str", Array): False,  # of the class
    }
    assert {call: rules.foresees(Suspect(place, *call)) for call in calls} == calls


def test_the_reason_of_a_wait_for_another_stream_is_its_own(stream):
    other = ag.Stream(backend="cpu")

    def waits_for_another():
        other.synchronize()  # breaks

    def asks_another():
        other.query()  # breaks

    error = named(waits_for_another, ag.Graph(observe=ag.diagnose()))
    assert (
        "Stream.synchronize waits for a stream that is not captured, which the thread that captures may not "
        'do; call it before the capture or after a replay, or capture with capture_error_mode="relaxed".'
    ) in str(error)
    error = named(asks_another, ag.Graph(observe=ag.diagnose()))
    assert "Stream.query asks about a stream that is not captured" in str(error)


@pytest.mark.needs("tracing")
def test_a_trace_function_of_the_body_hides_what_follows(stream):
    other, begun, done = ag.Stream(backend="cpu"), threading.Event(), threading.Event()
    other.launch(int)
    other.synchronize()

    def body():
        sys.settrace(None)
        other.launch(begun.set)  # on a thread of the library, which goes on working
        other.launch(done.wait, 10)
        begun.wait(10)
        with contextlib.suppress(ag.DriverError):
            stream.synchronize()

    try:
        nobody_saw(broken_by(body, ag.Graph(observe=ag.diagnose())))
    finally:
        done.set()


def test_a_signal_handler_is_named_or_was_not_seen(stream):
    handled = []

    def handler(*_):
        handled.append(True)
        list(hidden(stream))  # breaks

    def body():
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not handled:
            pass

    before = signal.signal(signal.SIGALRM, handler)
    try:
        error = broken_by(body, ag.Graph(observe=ag.diagnose()))
    finally:
        signal.signal(signal.SIGALRM, before)
    if [(each.file, each.line) for each in error.calls] != [marked(handler)]:
        assert "look at thread" in str(error)  # those without Python code, or one that could not be watched


def nobody_saw(error):
    assert error.calls == ()
    assert "and nobody saw the call that broke it; look at threads that run no Python code, at signal" in str(
        error
    )


# ---- what is right -------------------------------------------------------------------------------


def test_an_exception_of_the_body_is_no_fault(stream):
    def divides():
        stream.launch(int)
        return 1 / 0

    graph = ag.Graph(observe=ag.diagnose())
    with pytest.raises(ZeroDivisionError), graph:
        divides()
    assert graph.state == "empty"


class Refuses(Framework):
    """A framework that refuses calls in a capture before they reach the driver."""

    api_version = 1

    def backend(self):
        return "cpu"

    def refuses(self, error):
        return isinstance(error, BlockingIOError)


@pytest.fixture
def refusing(monkeypatch):
    monkeypatch.setitem(sys.modules, "planted_refuses", object())
    interop.register("planted_refuses", Refuses)
    yield
    interop.unregister("planted_refuses")


def copies(stream):
    stream.launch(int)
    raise BlockingIOError("not in a capture")  # breaks


COMPILED = "vendor/memory.pyx"
"""A file as Cython names it in tracebacks: relative to the folder that it was compiled in."""
compiled = {}
exec(compile("def get():\n    raise BlockingIOError('not in a capture')", COMPILED, "exec"), compiled)


def copies_in_cython(stream):
    stream.launch(int)
    compiled["get"]()  # breaks


@pytest.mark.usefixtures("refusing")
def test_a_call_that_compiled_code_refuses_is_named_by_the_users_line(stream):
    error = named(copies_in_cython, ag.Graph(observe=ag.diagnose()), stream)
    assert f"in copies_in_cython, inside {COMPILED}:2 in get: a call was refused" in str(error)


@pytest.mark.usefixtures("refusing")
def test_a_call_that_a_framework_refuses_is_named(stream):
    error = named(copies, ag.Graph(observe=ag.diagnose()), stream)
    assert (
        f":{marked(copies)[1]} in copies: a call was refused (BlockingIOError: not in a capture); move"
        in str(error)
    )
    assert error.reason == "illegal_call"

    def body():
        waits(stream)
        copies(stream)

    with pytest.raises(ag.CaptureError) as raised, ag.diagnose(all=True), ag.Graph():
        body()
    assert [each[1] for each in lines_of(raised.value)] == [marked(waits)[1], marked(copies)[1]]


# ---- every call ----------------------------------------------------------------------------------


def reads_five_numbers(stream, memory):
    for value in range(3):
        stream.launch(memory.append, value)
        stream.synchronize()  # 1
    assert memory == [0, 1, 2]
    stream.launch(memory.append, 3)
    assert stream.query() in (True, False)  # 2
    swallows(stream)
    side = ag.Stream(like=stream)
    side.wait(stream)
    side.launch(memory.append, 4)
    stream.wait(side)
    waits(stream)
    assert memory == [0, 1, 2, 3, 4]


def swallows(stream):
    with contextlib.suppress(ag.DriverError):
        stream.synchronize()  # 3


def lines_of(error):
    return [(each.function, each.line) for each in error.calls]


def numbered(*marks):
    """Return the functions and lines of this file with such comments."""
    with open(__file__, encoding="utf-8") as file:
        found = {line.rpartition("# ")[2].strip(): number for number, line in enumerate(file, 1)}
    return [(function, found[mark]) for function, mark in marks]


def test_every_call_is_named_in_one_run(stream):
    memory, graph = [], ag.Graph()
    with pytest.raises(ag.CaptureError) as raised, ag.diagnose(all=True), graph:
        reads_five_numbers(stream, memory)
    error = raised.value
    wanted = [("reads_five_numbers", "1"), ("reads_five_numbers", "2"), ("swallows", "3")]
    assert lines_of(error) == [*numbered(*wanted), ("waits", marked(waits)[1])]
    assert error.reason == "illegal_call"
    assert "4 calls of its code can't be captured.\n  " in str(error)
    assert str(error).count("Stream.synchronize waits for work that is only being recorded") == 3
    assert graph.state == "empty"
    with graph:
        stream.launch(int)
    assert graph.num_nodes == 1


def test_without_such_a_call_the_capture_is_a_graph(stream):
    with ag.diagnose(all=True), ag.Graph() as graph:
        stream.launch(int)
        with contextlib.suppress(ValueError):
            int("x")
    assert graph.num_nodes == 1


def test_the_list_ends_at_a_call_that_could_not_be_foreseen(stream):
    def breaks():
        list(hidden(stream))  # breaks

    def body():
        waits(stream)
        breaks()
        stream.query()

    with pytest.raises(ag.CaptureError) as raised, ag.diagnose(all=True), ag.Graph() as graph:
        body()
    assert [each[1] for each in lines_of(raised.value)] == [marked(waits)[1], marked(breaks)[1]]
    assert "The list ends here, since the rest of the code could not be captured: " in str(raised.value)
    assert graph.state == "empty"
    with pytest.raises(ag.CaptureError) as raised, ag.diagnose(all=True), graph:
        breaks()
    assert [each[1] for each in lines_of(raised.value)] == [marked(breaks)[1]]
    assert str(raised.value).endswith("What follows is not known, since the code could not go on.")


def test_the_list_ends_at_a_fork_that_is_open(stream):
    side = ag.Stream(like=stream)

    def body():
        waits(stream)
        side.wait(stream)
        side.launch(int)
        stream.query()  # breaks
        stream.wait(side)

    with pytest.raises(ag.CaptureError) as raised, ag.diagnose(all=True), ag.Graph() as graph:
        body()
    assert [each[1] for each in lines_of(raised.value)] == [marked(waits)[1], marked(body)[1]]
    assert "The list ends here" in str(raised.value)
    assert graph.state == "empty"
    assert not ag.is_current_stream_capturing()


def test_an_exception_of_the_body_has_the_list_as_a_note(stream):
    def body():
        waits(stream)
        return 1 / 0

    with pytest.raises(ZeroDivisionError) as raised, ag.diagnose(all=True), ag.Graph() as graph:
        body()
    [note] = [each for each in raised.value.__notes__ if "can't be captured" in each]
    assert f":{marked(waits)[1]} in waits: Stream.synchronize waits" in note
    assert graph.state == "empty"


def test_an_exception_that_is_being_handled_has_no_such_note(stream):
    error = ValueError("before")
    try:
        raise error
    except ValueError:
        with pytest.raises(ag.CaptureError), ag.diagnose(all=True), ag.Graph():
            waits(stream)
    assert not getattr(error, "__notes__", [])


def test_a_wait_that_a_capture_permits_is_not_in_the_list(stream):
    other = ag.Stream(backend="cpu")
    with ag.diagnose(all=True), ag.Graph(capture_error_mode="relaxed") as graph:
        stream.launch(int)
        other.synchronize()
        other.query()
    assert graph.num_nodes == 1


def test_calls_of_other_threads_are_not_foreseen(stream):
    def watchdog():
        with contextlib.suppress(ag.DriverError):
            stream.synchronize()  # breaks

    def body():
        waits(stream)
        in_thread(watchdog, name="dog")

    with pytest.raises(ag.CaptureError) as raised, ag.diagnose(all=True), ag.Graph():
        body()
    assert [each.thread for each in raised.value.calls] == ["", "dog"]


def test_labels_are_no_matter(stream):
    def body():
        with ag.label("first"):
            stream.launch(int)
            stream.launch(int)
            waits(stream)
        with ag.label("second"):
            stream.launch(int)

    with pytest.raises(ag.CaptureError, match="a call of its code"), ag.diagnose(all=True), ag.Graph():
        body()


def test_nothing_is_kept_of_the_pieces(stream):
    class Work:
        def __call__(self):
            pass

    work = Work()
    gone = weakref.ref(work)
    gc.disable()
    try:
        with contextlib.suppress(ag.CaptureError), ag.diagnose(all=True), ag.Graph():
            stream.launch(work)
            stream.synchronize()
        del work
        stream.synchronize()
        assert gone() is None
    finally:
        gc.enable()


def test_an_interrupt_passes_and_leaves_nothing_behind(stream):
    def body():
        waits(stream)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ag.diagnose(all=True), ag.Graph() as graph:
        body()
    assert graph.state == "empty"
    with graph:
        stream.launch(int)
    assert graph.num_nodes == 1


def test_what_the_library_refuses_itself_is_not_in_the_list(stream):
    def body():
        waits(stream)
        stream.launch(int)
        stream.record().synchronize()

    with pytest.raises(ag.GraphStateError) as raised, ag.diagnose(all=True), ag.Graph():
        body()
    assert "graph: a call of its code can't be captured" in raised.value.__notes__[0]


def test_all_is_a_bool():
    with pytest.raises(TypeError, match="diagnose: all must be True or False, not 1"):
        ag.diagnose(all=1)


# ---- on and off ----------------------------------------------------------------------------------


def diagnosed(stream, graph):
    return bool(broken_by(waits, graph, stream).calls)


def test_it_is_off_unless_it_is_turned_on(stream, monkeypatch):
    assert not diagnosed(stream, ag.Graph())
    with ag.diagnose():
        assert diagnosed(stream, ag.Graph())
        with ag.diagnose():
            pass
        assert diagnosed(stream, ag.Graph(observe=ag.diagnose()))
    assert not diagnosed(stream, ag.Graph())
    monkeypatch.setenv(DIAGNOSE, "1")
    assert diagnosed(stream, ag.Graph())
    monkeypatch.setenv(DIAGNOSE, "yes")
    with pytest.raises(ValueError, match="is 'yes'; set it to 1 or 0"):
        ag.Graph()


@pytest.mark.parametrize("given", [1, ag.diagnose, [ag.diagnose(), "all"]])
def test_a_wrong_type_is_refused(given):
    with pytest.raises(TypeError, match=r"^observe must be an Observer, such as accelerator_graph\.progress"):
        ag.Graph(observe=given)


def test_without_it_the_error_says_how_to_turn_it_on(stream):
    def body():
        with contextlib.suppress(ag.DriverError):
            stream.synchronize()

    advice = "Begin the capture inside `with accelerator_graph.diagnose():` to find the call."
    assert str(broken_by(body, ag.Graph())).endswith(f"code. {advice}")
    assert str(broken_by(stream.query, ag.Graph())).endswith(f"code. {advice}")
    with ag.diagnose():
        assert advice not in str(broken_by(body, ag.Graph()))


def test_a_capture_that_does_not_begin_is_explained_by_the_library_alone(stream):
    token = stream._backend.capture_begin(stream.native, "default")
    try:
        with pytest.raises(ag.DriverError):
            stream.synchronize()
        fact = "an earlier capture of the stream failed and was not ended"
        with pytest.raises(ag.CaptureError, match=fact), ag.Graph(observe=ag.diagnose()):
            raise AssertionError
    finally:
        stream._backend.capture_abandon(token)
    assert named(waits, ag.Graph(observe=ag.diagnose()), stream)


def test_nothing_is_watched_afterwards(stream):
    before = (
        sys.gettrace(),
        sys.getprofile(),
        threading.gettrace(),
        threading.getprofile(),
        list(gc.callbacks),
    )
    tools = [sys.monitoring.get_tool(i) for i in range(6)] if hasattr(sys, "monitoring") else []
    named(waits, ag.Graph(observe=ag.diagnose()), stream)
    with ag.Graph(observe=ag.diagnose()):
        stream.launch(int)
    assert before == (
        *(sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        list(gc.callbacks),
    )
    if tools:
        assert tools == [sys.monitoring.get_tool(i) for i in range(6)]
    assert sys._getframe().f_trace is None


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there, nobody's trace function is in the way")
def test_a_debugger_keeps_its_trace_function(stream):
    seen = []

    def trace(frame, event, arg):
        seen.append(event)
        return trace

    sys.settrace(trace)
    try:
        error = broken_by(waits, ag.Graph(observe=ag.diagnose()), stream)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(None)
    assert error.reason == "illegal_call"
    assert seen


def test_two_captures_at_once_are_told_apart(stream):
    errors = []
    begun, ended = threading.Event(), threading.Event()

    def other():
        with ag.Stream(backend="cpu") as mine:
            graph = ag.Graph(observe=ag.diagnose())
            with graph:
                begun.set()
                assert ended.wait(120)
                mine.launch(int)
            errors.append(graph.num_nodes)

    thread = threading.Thread(target=other)
    thread.start()
    assert begun.wait(120)
    named(waits, ag.Graph(observe=ag.diagnose()), stream)
    ended.set()
    thread.join()
    assert errors == [1]


def test_a_capture_by_hand(stream):
    graph = ag.Graph(observe=ag.diagnose())
    graph.capture_begin()
    with pytest.raises(ag.DriverError):
        waits(stream)
    with pytest.raises(ag.CaptureError) as raised:
        graph.capture_end()
    assert [(call.file, call.line) for call in raised.value.calls] == [marked(waits)]
    graph.capture_begin()
    graph.reset()
    assert sys.gettrace() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_is_not_watched(stream):
    with ag.Graph(observe=ag.diagnose()):
        child = os.fork()
        if not child:
            tools = [sys.monitoring.get_tool(i) for i in range(6)] if hasattr(sys, "monitoring") else []
            os._exit(0 if not any(tools) and sys.gettrace() is None else 1)
        stream.launch(int)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
