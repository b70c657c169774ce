"""Captures of the cpu backend, driven directly."""

import sys
from contextlib import nullcontext
from functools import partial

import pytest

from accelerator_graph.backends.base import CaptureStatus, GraphEdge
from backends.cpu.tools import MODES, fork, nothing_captures, refused
from threads import in_thread

pytest_plugins = ["backends.cpu.fixtures"]
pytestmark = pytest.mark.usefixtures("time_limit")


def test_a_capture_records_instead_of_running(backend, stream, capture):
    log = []
    graph = capture(lambda: [backend.launch(stream, log.append, index) for index in range(5)])
    backend.synchronize(stream)
    assert not log
    executable = backend.instantiate(graph)
    for _ in range(2):
        backend.replay(executable, stream)
    backend.synchronize(stream)
    assert log == [0, 1, 2, 3, 4] * 2
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


def test_the_nodes_and_edges_of_a_diamond(backend, streams, capture, tmp_path):
    origin, side, _ = streams
    buffer = bytearray(4)

    def work():
        pass

    def diamond():
        backend.fill(origin, buffer, 1, None)
        fork(backend, origin, side)
        backend.copy(origin, buffer, b"ab", None)
        backend.launch(side, work)
        fork(backend, side, origin)
        backend.launch(origin, work)

    graph = capture(diamond)
    nodes, edges = backend.nodes(graph)
    assert [node.kind for node in nodes] == ["memset", "memcpy", "host", "host"]
    assert [node.id for node in nodes] == [0, 1, 2, 3]
    assert nodes[2].name == work.__qualname__
    assert sorted(edges) == [GraphEdge(0, 1), GraphEdge(0, 2), GraphEdge(1, 3), GraphEdge(2, 3)]
    assert len(backend.nodes(graph)[0]) == 4
    assert nothing_captures(backend, streams)
    assert not backend.dump(graph, str(tmp_path / "diamond.dot"), True)
    assert not (tmp_path / "diamond.dot").exists()


def test_arguments_are_checked_and_callables_without_a_name_accepted_in_a_capture(backend, stream, capture):
    class Work:
        def __call__(self):
            pass

    def enqueue():
        with pytest.raises(ValueError, match="has 1 bytes"):
            backend.fill(stream, bytearray(1), 9, 2)
        backend.launch(stream, Work())

    nodes, _ = backend.nodes(capture(enqueue))
    assert [node.name for node in nodes] == [Work.__qualname__]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", ["synchronize", "query"])
@pytest.mark.parametrize("member", [0, 1])
@pytest.mark.parametrize(
    "on", [lambda function, *args: function(*args), in_thread], ids=["here", "elsewhere"]
)
def test_waiting_for_a_capturing_stream_breaks_the_capture(backend, streams, mode, call, member, on):
    origin, side, _ = streams
    token = backend.capture_begin(origin, mode)
    fork(backend, origin, side)
    refused("illegal_call", on, getattr(backend, call), streams[member])
    assert backend.capture_status(origin) is backend.capture_status(side) is CaptureStatus.INVALIDATED
    for stream in (origin, side):
        refused("invalidated", backend.launch, stream, int)
        refused("invalidated", backend.fill, stream, bytearray(1), 0, None)
        refused("invalidated", backend.record_event, stream)
    refused("invalidated", backend.capture_end, token)
    assert nothing_captures(backend, streams)
    backend.synchronize(origin)


@pytest.mark.parametrize("of_event", [False, True])
@pytest.mark.parametrize("call", ["synchronize", "query"])
@pytest.mark.parametrize(
    ("mode", "on", "broken"),
    [
        ("global", "here", True),
        ("global", "elsewhere", True),
        ("thread_local", "here", True),
        ("thread_local", "elsewhere", False),
        ("relaxed", "here", False),
        ("relaxed", "elsewhere", False),
    ],
)
def test_waiting_for_an_unrelated_stream(backend, streams, call, of_event, mode, on, broken):
    stream, _, unrelated = streams
    waited = backend.record_event(unrelated) if of_event else unrelated
    token = backend.capture_begin(stream, mode)
    run = in_thread if on == "elsewhere" else lambda function, *args: function(*args)
    if broken:
        refused("illegal_call", run, getattr(backend, call), waited)
        refused("invalidated", backend.capture_end, token)
    else:
        run(getattr(backend, call), waited)
        backend.capture_end(token)
    assert nothing_captures(backend, streams)
    backend.synchronize(unrelated)


@pytest.mark.parametrize("relaxed", ["capturing", "again", "other", "left"])
def test_a_thread_that_is_relaxed_relaxes_no_other(backend, streams, relaxed):
    stream, _, unrelated = streams
    token = backend.capture_begin(stream, "global")

    def in_relaxed(wait):
        with backend.relaxed(unrelated):
            if relaxed in ("again", "left"):
                with backend.relaxed(unrelated):
                    pass
            if relaxed != "left":
                wait()
        if relaxed == "left":
            wait()

    wait = partial(backend.synchronize, unrelated)
    if relaxed in ("capturing", "again"):
        in_relaxed(wait)
        backend.capture_end(token)
    else:
        waits = partial(in_thread, wait) if relaxed == "other" else wait
        refused("illegal_call", in_relaxed, waits)
        refused("invalidated", backend.capture_end, token)
    assert nothing_captures(backend, streams)


@pytest.mark.parametrize(
    ("first_mode", "survives"), [("global", False), ("thread_local", True), ("relaxed", True)]
)
def test_two_captures_at_once_and_one_thread_that_waits(backend, streams, first_mode, survives):
    first, second, unrelated = streams
    token = backend.capture_begin(first, first_mode)

    def other_thread():
        token = backend.capture_begin(second, "thread_local")
        refused("illegal_call", backend.synchronize, unrelated)
        refused("invalidated", backend.capture_end, token)

    in_thread(other_thread)
    if survives:
        backend.capture_end(token)
    else:
        refused("invalidated", backend.capture_end, token)


def test_other_streams_go_on_during_a_capture(backend, streams, capture):
    stream, other, _ = streams
    log = []
    executable = backend.instantiate(capture(lambda: backend.launch(stream, log.append, 1)))

    def meanwhile():
        backend.replay(executable, other)
        backend.launch(other, log.append, 2)
        again = backend.instantiate(backend.capture_end(backend.capture_begin(streams[2], "thread_local")))
        backend.destroy_executable(again)
        backend.destroy_stream(backend.create_stream(0))

    assert len(backend.nodes(capture(meanwhile, "global"))[0]) == 0
    backend.synchronize(other)
    assert log == [1, 2]


def test_begin_on_a_capturing_stream_fails_and_hurts_nobody(backend, streams):
    stream, side, _ = streams
    token = backend.capture_begin(stream, "thread_local")
    fork(backend, stream, side)
    for capturing in (stream, side):
        assert (
            refused("foreign_capture", backend.capture_begin, capturing, "relaxed").code_name
            == "ILLEGAL_STATE"
        )
    assert backend.capture_status(stream) is CaptureStatus.ACTIVE
    backend.launch(stream, int)
    assert len(backend.nodes(backend.capture_end(token))[0]) == 1


def test_forked_work_has_to_be_joined(backend, streams, capture):
    origin, side, third = streams

    def forked_and_joined_too_early():
        backend.launch(origin, int)
        fork(backend, origin, side)
        backend.launch(side, int)
        fork(backend, side, origin)
        backend.launch(side, int)

    refused("unjoined", capture, forked_and_joined_too_early)
    assert nothing_captures(backend, streams)

    def joined_through_a_third():
        fork(backend, origin, side)
        backend.launch(side, int)
        fork(backend, side, third)
        fork(backend, third, origin)

    assert len(backend.nodes(capture(joined_through_a_third))[0]) == 1
    assert nothing_captures(backend, streams)


def test_a_fork_without_work_needs_no_join(backend, streams, capture):
    assert len(backend.nodes(capture(lambda: fork(backend, streams[0], streams[1])))[0]) == 0
    assert nothing_captures(backend, streams)


def test_an_event_from_outside_breaks_the_capture(backend, streams):
    stream, outside, _ = streams
    event = backend.record_event(outside)
    token = backend.capture_begin(stream, "relaxed")
    refused("foreign_capture", backend.wait_event, stream, event)
    refused("invalidated", backend.wait_event, stream, event)
    refused("invalidated", backend.capture_end, token)
    assert nothing_captures(backend, streams)


def test_an_event_of_another_capture_breaks_both(backend, streams):
    first, second, third = streams
    tokens = [backend.capture_begin(first, "relaxed"), backend.capture_begin(second, "relaxed")]
    event = backend.record_event(second)
    refused("foreign_capture", backend.wait_event, first, event)
    refused("invalidated", backend.wait_event, third, event)
    assert backend.capture_status(third) is CaptureStatus.NONE
    for token in tokens:
        refused("invalidated", backend.capture_end, token)


def test_an_event_of_a_capture_that_has_ended_is_no_mark_in_any_work(backend, streams):
    stream, other, _ = streams
    token = backend.capture_begin(stream, "thread_local")
    event = backend.record_event(stream)
    backend.capture_end(token)
    refused("foreign_capture", backend.wait_event, other, event)
    assert nothing_captures(backend, streams)
    backend.synchronize(other)


@pytest.mark.parametrize("mode", MODES)
def test_end_on_another_thread(backend, streams, mode):
    token = backend.capture_begin(streams[0], mode)
    if mode == "relaxed":
        in_thread(backend.capture_end, token)
    else:
        refused("wrong_thread", in_thread, backend.capture_end, token)
    assert nothing_captures(backend, streams)
    assert refused("other", backend.capture_end, token).code_name == "ILLEGAL_STATE"


def test_abandon_ends_any_capture_and_can_be_repeated(backend, streams):
    origin, side, unrelated = streams
    valid = in_thread(backend.capture_begin, origin, "global")  # its thread has ended
    fork(backend, origin, side)
    backend.launch(side, int)
    for _ in range(2):
        backend.capture_abandon(valid)
        assert nothing_captures(backend, streams)
    broken = backend.capture_begin(origin, "global")
    refused("illegal_call", backend.synchronize, unrelated)
    backend.capture_abandon(valid)  # not the one that is running
    assert backend.capture_status(origin) is CaptureStatus.INVALIDATED
    backend.capture_abandon(broken)
    ended = backend.capture_begin(origin, "relaxed")
    backend.launch(origin, int)
    graph = backend.capture_end(ended)
    backend.capture_abandon(ended)
    assert len(backend.nodes(graph)[0]) == 1
    backend.synchronize(unrelated)


@pytest.mark.parametrize("step", ["begin", "end"])
def test_an_interrupt_at_any_line_leaves_no_capture(backend, streams, step):
    stream, _, unrelated = streams
    for countdown in range(1000):
        token, raised, left = None, False, countdown
        if step == "end":
            token = backend.capture_begin(stream, "global")

        def trace(frame, event, argument):
            nonlocal left
            if "accelerator_graph" not in frame.f_code.co_filename:
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            token = backend.capture_begin(stream, "global") if token is None else backend.capture_end(token)
        except KeyboardInterrupt:
            raised = True
        finally:
            sys.settrace(before)
        if not raised:
            break
        if step == "end":
            backend.capture_abandon(token)  # the interrupt may have come before anything was done
        assert nothing_captures(backend, streams)
        backend.synchronize(unrelated)  # no capture is left that forbids it
        backend.capture_end(backend.capture_begin(stream, "global"))
    assert 5 < countdown < 999
    if step == "begin":
        backend.capture_end(token)


# ---- two captures, two threads, several streams: none is taken for the other ------------------------------


def test_a_node_depends_on_what_its_stream_has_seen_and_has_its_streams_branch(backend, streams, capture):
    origin, first, second = streams

    def work():
        backend.launch(origin, int)
        fork(backend, origin, first)
        backend.launch(first, int)
        for _ in range(6):
            backend.launch(origin, int)
        fork(backend, origin, second)
        backend.launch(second, int)
        backend.fill(first, bytearray(1), 0, None)
        early = backend.record_event(first)
        backend.launch(first, int)
        backend.wait_event(second, early)
        backend.launch(second, int)
        backend.destroy_event(early)
        for side in (second, first):
            fork(backend, side, origin)
        backend.launch(origin, int)

    nodes = capture(work).nodes
    assert [(node.after, node.branch) for node in nodes[:4]] == [((), 0), ((0,), 1), ((0,), 0), ((2,), 0)]
    assert [(node.after, node.branch) for node in nodes[8:]] == [
        ((7,), 2),
        ((1,), 1),
        ((9,), 1),
        ((8, 9), 2),
        ((7, 10, 11), 0),
    ]
    assert [node.name for node in nodes[8:11]] == ["int", "", "int"]


def test_what_a_node_depends_on_is_in_order(backend, streams, capture):
    origin, side, _ = streams

    def work():
        backend.launch(origin, int)
        fork(backend, origin, side)
        backend.launch(side, int)
        for _ in range(7):
            backend.launch(origin, int)
        fork(backend, side, origin)
        backend.launch(origin, int)

    for count in range(8):  # a set of small numbers is in order by chance

        def wider(count=count):
            for _ in range(count):
                backend.launch(origin, int)
            work()

        after = capture(wider).nodes[-1].after
        assert after == (count + 1, count + 8)


@pytest.mark.parametrize("modes", [(one, two) for one in MODES for two in MODES])
@pytest.mark.parametrize("on", ["here", "elsewhere"])
def test_every_capture_that_forbids_waiting_is_broken_and_no_other(backend, streams, modes, on):
    *members, unrelated = streams
    tokens = [backend.capture_begin(*each) for each in zip(members, modes, strict=True)]
    forbid = ("global",) if on == "elsewhere" else ("global", "thread_local")
    wait = partial(in_thread, backend.synchronize) if on == "elsewhere" else backend.synchronize
    if any(mode in forbid for mode in modes):
        error = refused("illegal_call", wait, unrelated)
        assert (error.code_name, error.call) == ("CAPTURE_UNSUPPORTED", "synchronize")
    else:
        wait(unrelated)
    for token, mode in zip(tokens, modes, strict=True):
        if mode in forbid:
            assert refused("invalidated", backend.capture_end, token).code_name == "CAPTURE_INVALIDATED"
        else:
            backend.capture_end(token)


@pytest.mark.parametrize("of_event", [False, True])
@pytest.mark.parametrize("call", ["synchronize", "query"])
@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("broken", [0, 1])
def test_waiting_for_a_member_breaks_its_own_capture_even_if_relaxed(
    backend, streams, call, of_event, relaxed, broken
):
    tokens = [backend.capture_begin(stream, "relaxed") for stream in streams[:2]]
    waited = backend.record_event(streams[broken]) if of_event else streams[broken]
    with backend.relaxed(streams[2]) if relaxed else nullcontext():
        refused("illegal_call", getattr(backend, call), waited)
    refused("invalidated", backend.capture_end, tokens[broken])
    backend.capture_end(tokens[1 - broken])


def test_threads_that_are_relaxed_at_once_leave_one_by_one(backend, streams):
    stream, _, unrelated = streams
    token = backend.capture_begin(stream, "global")
    with backend.relaxed(unrelated):

        def other():
            with backend.relaxed(unrelated):
                backend.synchronize(unrelated)

        in_thread(other)
        backend.synchronize(unrelated)
    refused("illegal_call", backend.synchronize, unrelated)
    refused("invalidated", backend.capture_end, token)


@pytest.mark.parametrize("other", ["outside", "ended"])
@pytest.mark.parametrize("capturing", [False, True])
def test_an_event_that_is_no_mark_in_this_capture(backend, streams, other, capturing):
    stream, elsewhere, third = streams
    ended = None if other == "outside" else backend.capture_begin(elsewhere, "relaxed")
    event = backend.record_event(elsewhere)
    if ended is not None:
        backend.capture_end(ended)
    bystander = backend.capture_begin(third, "relaxed")
    token = backend.capture_begin(stream, "relaxed") if capturing else None
    if capturing or ended is not None:
        error = refused("foreign_capture", backend.wait_event, stream, event)
        assert (error.code_name, error.call) == ("CAPTURE_ISOLATION", "wait_event")
    else:
        backend.wait_event(stream, event)
    assert backend.capture_status(stream).value == ("invalidated" if capturing else "none")
    if capturing:
        refused("invalidated", backend.capture_end, token)
    backend.capture_end(bystander)


@pytest.mark.promise("waits-from-outside-are-refused")
def test_an_event_of_another_capture_is_refused_by_name(backend, streams):
    for stream in streams[:2]:
        backend.capture_begin(stream, "relaxed")
    event = backend.record_event(streams[1])
    error = refused("foreign_capture", backend.wait_event, streams[0], event)
    assert (error.code_name, error.call) == ("CAPTURE_MERGE", "wait_event")
    error = refused("invalidated", backend.wait_event, streams[2], event)
    assert (error.code_name, error.call) == ("CAPTURE_INVALIDATED", "wait_event")
    assert backend.capture_status(streams[2]) is CaptureStatus.NONE


@pytest.mark.parametrize(
    ("elsewhere", "broken", "forked", "found"),
    [
        (True, True, True, ("wrong_thread", "CAPTURE_WRONG_THREAD")),
        (False, True, True, ("invalidated", "CAPTURE_INVALIDATED")),
        (False, False, True, ("unjoined", "CAPTURE_UNJOINED")),
    ],
)
def test_the_first_thing_that_is_wrong_at_the_end(backend, streams, elsewhere, broken, forked, found):
    origin, side, unrelated = streams
    token = backend.capture_begin(origin, "thread_local")
    fork(backend, origin, side)
    backend.launch(side, int)
    if broken:
        refused("illegal_call", backend.synchronize, unrelated)
    end = partial(in_thread, backend.capture_end) if elsewhere else backend.capture_end
    error = refused(found[0], end, token)
    assert (error.reason, error.code_name, error.call) == (*found, "capture_end")
    error = refused("other", backend.capture_end, token)
    assert "the capture has ended already" in str(error)
    assert nothing_captures(backend, streams)


@pytest.mark.parametrize("call", ["launch", "fill", "record_event", "wait_event"])
def test_an_error_in_a_broken_capture_names_the_call(backend, streams, call):
    stream, _, unrelated = streams
    token = backend.capture_begin(stream, "thread_local")
    event = backend.record_event(stream)
    refused("illegal_call", backend.synchronize, unrelated)
    arguments = {"launch": (int,), "fill": (bytearray(1), 0, None), "wait_event": (event,)}.get(call, ())
    assert refused("invalidated", getattr(backend, call), stream, *arguments).call == call
    backend.capture_abandon(token)
