"""Captures of runtimes that record explicitly, and runs that are whole, whatever a signal handler does."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

import accelerator_graph as ag
from accelerator_graph.backends import recording
from accelerator_graph.backends.base import CaptureStatus
from accelerator_graph.backends.recording import Captures, Recorded, Retired, Run, Runs
from lanes import require

pytestmark = require("cpu")


class Stream:
    capture = place = None


@pytest.fixture(name="captures")
def captures_fixture() -> Captures:
    return Captures("made_up")


@pytest.fixture(name="streams")
def streams_fixture() -> list[Stream]:
    return [Stream() for _ in range(3)]


def graph(captures: Captures, token: recording.Capture) -> list[tuple[str, tuple[int, ...], int]]:
    return [tuple(each) for each in captures.end(token)]


def follow(captures: Captures, stream: Stream, other: Stream) -> None:
    assert captures.link(stream, captures.mark(other))


def test_work_of_one_stream_is_in_order(captures: Captures, streams: list[Stream]) -> None:
    first, _, apart = streams
    assert not captures.record(first, "launch", "before")
    token = captures.begin(first)
    for work in "ab":
        assert captures.record(first, "launch", work)
    assert not captures.record(apart, "launch", "elsewhere")
    info = captures.info(first)
    assert info is not None
    assert (info.id, info.nodes) == (id(token), 2)
    assert captures.status(first) is CaptureStatus.ACTIVE
    assert graph(captures, token) == [("a", (), 0), ("b", (0,), 0)]
    assert captures.status(first) is CaptureStatus.NONE
    assert captures.info(first) is first.capture is None


def test_forks_and_joins(captures: Captures, streams: list[Stream]) -> None:
    first, second, third = streams
    token = captures.begin(first)
    captures.record(first, "launch", "a")
    follow(captures, second, first)
    captures.record(second, "launch", "b")
    captures.record(first, "launch", "c")
    follow(captures, third, second)  # has nothing of its own
    follow(captures, first, third)
    follow(captures, first, first)
    captures.record(first, "launch", "d")
    assert graph(captures, token) == [("a", (), 0), ("b", (0,), 1), ("c", (0,), 0), ("d", (1, 2), 0)]
    assert [each.capture for each in streams] == [None] * 3


@pytest.mark.promise("unjoined-on-every-backend")
@pytest.mark.parametrize("joins", [False, True])
def test_what_is_not_waited_for_is_unjoined(captures: Captures, streams: list[Stream], joins: bool) -> None:
    first, second, _ = streams
    token = captures.begin(first)
    follow(captures, second, first)
    captures.record(second, "launch", "b")
    if joins:
        follow(captures, first, second)
        assert graph(captures, token) == [("b", (), 1)]
        return
    with pytest.raises(ag.DriverError) as raised:
        captures.end(token)
    assert (raised.value.reason, raised.value.code_name) == ("unjoined", "CAPTURE_UNJOINED")
    assert second.capture is None
    with pytest.raises(ag.DriverError, match="ended already"):
        captures.end(token)


def test_the_work_of_a_graph_is_a_part_of_another(captures: Captures, streams: list[Stream]) -> None:
    first, *_ = streams
    token = captures.begin(first)
    captures.record(first, "launch", "a")
    captures.record_graph(first, [Recorded("x", (), 0), Recorded("y", (), 0), Recorded("z", (0,), 0)])
    captures.record(first, "launch", "b")
    captures.record_graph(first, [])
    assert [(work, after) for work, after, _ in graph(captures, token)] == [
        ("a", ()),
        ("x", (0,)),
        ("y", (0,)),
        ("z", (1,)),
        ("b", (2, 3)),
    ]


@pytest.mark.promise("waits-from-outside-are-refused")
def test_waits_that_a_replay_could_not_repeat_are_refused(captures: Captures, streams: list[Stream]) -> None:
    first, second, third = streams
    token, other = captures.begin(first), captures.begin(second)
    foreign = captures.mark(second)
    captures.close(other)
    outside = type("Event", (), {"capture": None})()
    assert not captures.link(third, outside)
    for event, name in ((foreign, "CAPTURE_ISOLATION"), (outside, "CAPTURE_ISOLATION")):
        with pytest.raises(ag.DriverError) as raised:
            captures.link(first, event)
        assert (raised.value.reason, raised.value.code_name) == ("foreign_capture", name)
    captures.begin(third)
    with pytest.raises(ag.DriverError, match="CAPTURE_MERGE"):
        captures.link(first, captures.mark(third))
    with pytest.raises(ag.DriverError) as raised:
        captures.check_waiting(first, "synchronize")
    assert raised.value.reason == "illegal_call"
    captures.check_waiting(second, "synchronize")
    assert graph(captures, token) == []


def test_a_stream_has_one_capture(captures: Captures, streams: list[Stream]) -> None:
    token = captures.begin(streams[0])
    with pytest.raises(ag.DriverError) as raised:
        captures.begin(streams[0])
    assert raised.value.reason == "foreign_capture"
    assert streams[0].capture is token


# ---- in the middle of itself -----------------------------------------------------------------------


def at_line(number: int, call: Callable[[], object], handler: Callable[[], object]) -> bool:
    """Call `handler` at the n-th line of the package that `call` runs; return False if it has fewer."""
    left = [number]

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ag.__path__[0]):
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                handler()
        return trace if left[0] > 0 else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return left[0] <= 0


@pytest.mark.parametrize("same", [False, True])
def test_recording_inside_every_line_of_recording(streams: list[Stream], same: bool) -> None:
    """The order on each stream stays: nothing of it is lost, and its work is one line."""
    number = 1
    while True:
        captures = Captures("made_up")
        first, second, _ = streams
        token = captures.begin(first)
        follow(captures, second, first)
        inner = partial(captures.record, first if same else second, "launch", "inner")
        inside = at_line(number, partial(captures.record, first, "launch", "outer"), inner)
        follow(captures, first, second)
        captures.record(first, "launch", "last")
        found = captures.end(token)
        if not inside:
            assert number > 5
            return
        assert sorted(each.work for each in found) == ["inner", "last", "outer"]
        assert found[1].after == ((0,) if same else ())
        assert found[2].after == ((1,) if same else (0, 1))
        number += 1


class Part(Run):
    def __init__(self, log: list[str], name: str) -> None:
        super().__init__(partial(log.append, f"{name}{part}") for part in "123")
        self.name = name
        self.behind: Any = None

    def follow(self, previous: Any) -> None:
        self.behind = previous


def test_a_run_inside_every_line_of_a_run_is_whole() -> None:
    number = 1
    while True:
        log, runs = list[str](), Runs()
        first, outer, inner, last = (Part(log, name) for name in "aoiz")
        runs.enqueue(first)
        inside = at_line(number, partial(runs.enqueue, outer), partial(runs.enqueue, inner))
        runs.enqueue(last)
        if not inside:
            assert number > 5
            return
        pieces = ["".join(log[at : at + 3]) for at in range(0, len(log), 3)]
        between = ["o1o2o3", "i1i2i3"]
        assert pieces in (["a1a2a3", *between, "z1z2z3"], ["a1a2a3", *between[::-1], "z1z2z3"])
        order = [{"a": first, "o": outer, "i": inner, "z": last}[piece[0]] for piece in pieces]
        assert [each.behind for each in order[1:]] == order[:-1]
        number += 1


class Twice(Run):
    """What its author knows nothing of: a run that may have been submitted when an exception comes."""

    def __init__(
        self, log: list[str], name: str, error: BaseException | None = None, late: bool = False
    ) -> None:
        super().__init__()
        self.log, self.name, self.error, self.late = log, name, error, late

    def follow(self, previous: Any) -> None:
        self.behind = previous

    def submit(self) -> None:
        error, self.error = self.error, None
        if error is not None and not self.late:
            raise error
        self.log.append(self.name)
        if error is not None:
            raise error


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), LookupError("a handler's"), ag.DriverError("refused")]
)
def test_a_run_that_may_be_under_way_is_the_next_ones_last(error: BaseException, late: bool) -> None:
    log, runs = list[str](), Runs()
    first, second, third = Twice(log, "a"), Twice(log, "b", error, late), Twice(log, "c")
    runs.enqueue(first)
    with pytest.raises(type(error)):
        runs.enqueue(second)
    runs.enqueue(third)
    if isinstance(error, ag.DriverError):
        assert third.behind is first
    else:
        assert third.behind is second
        assert log == ["a", "b", *(["b"] if late else []), "c"]


def test_a_part_that_fails_ends_its_run() -> None:
    log, runs = list[str](), Runs()

    class Fails(Part):
        def __init__(self) -> None:
            Run.__init__(self, [partial(log.append, "a"), partial(int, "7"), partial(log.append, "b")])

    with pytest.raises(RuntimeError, match="returned 7"):
        runs.enqueue(Fails())
    last = Part(log, "z")
    runs.enqueue(last)
    assert log == ["a", "z1", "z2", "z3"]


@pytest.mark.parametrize("same", [False, True])
def test_a_replay_inside_every_line_of_a_replay(same: bool) -> None:
    """On the cpu backend: both runs are done, each behind the other, on one stream or on two."""
    backend = ag.backends.get("cpu")
    stream, other = backend.create_stream(0), backend.create_stream(0)
    busy: list[int] = []
    most, done = [0], [0]

    def work() -> None:
        busy.append(1)
        time.sleep(1e-3)
        most[0] = max(most[0], len(busy))
        done[0] += 1
        busy.pop()

    token = backend.capture_begin(stream, "relaxed")
    backend.launch(stream, work)
    made = backend.capture_end(token)
    executable, expected = backend.instantiate(made), 0
    calls = backend.native_calls(stream)
    assert calls is not None
    bound = calls.bind(executable)
    assert bound is not None
    for outer in (partial(backend.replay, executable, stream), bound):
        number, inside = 1, True
        while inside:
            inner = partial(backend.replay, executable, stream if same else other)
            inside = at_line(number, outer, inner)
            expected += 1 + inside
            for each in (stream, other):
                backend.synchronize(each)
            assert (done[0], most[0]) == (expected, 1), number
            number += 1
        assert number > 5
    backend.destroy_executable(executable)
    for each in (stream, other):
        backend.destroy_stream(each)


def test_what_a_run_needs_is_kept_until_the_run_is_over() -> None:
    class Needed:
        pass

    over = {"first"}
    needed = {mark: Needed() for mark in ("first", "second")}
    alive = {mark: weakref.ref(each) for mark, each in needed.items()}
    retired = Retired(over.__contains__)
    while needed:
        retired.keep(*needed.popitem())
    for expected in ({"second"}, set()):
        retired.sweep()
        assert {mark for mark, each in alive.items() if each() is not None} == expected
        over.add("second")


def test_a_stream_of_another_place_takes_no_part(captures: Captures, streams: list[Stream]) -> None:
    streams[1].place = "elsewhere"
    captures.begin(streams[0])
    with pytest.raises(ag.DriverError, match="CAPTURE_PLACE"):
        follow(captures, streams[1], streams[0])
    assert captures.status(streams[1]) is CaptureStatus.NONE
