"""`verify` on the CPU backend: planted faults are named, and right programs are not accused."""

from __future__ import annotations

import functools
import itertools
import json
import random
import sys
import threading
import time
from array import array
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph.diagnosis import verification
from accelerator_graph.diagnosis._verify import trial
from accelerator_graph.diagnosis._verify.places import Place
from accelerator_graph.interop.base import Inspectable
from diagnosis.accusing import accusation
from diagnosis.host_programs import FAULTS, RIGHT, Unseen, doubled, launch, x_of
from threads import in_thread

MAY_BE_UNDECIDED = {
    "an_uninitialised_tail",  # NumPy does not show who writes new memory
    "a_sum_in_any_order",  # a few runs may differ less than the next one
}


@pytest.fixture(autouse=True)
def stream():
    with ag.Stream(backend="cpu") as stream:
        yield stream


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name):
    make, cause = FAULTS[name]
    assert accusation(make).report.cause == cause


@pytest.mark.promise("no-wrong-accusation")
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_is_not_accused(name):
    args, how = RIGHT[name]()
    report = ag.verify(*args, **how)
    if name in MAY_BE_UNDECIDED:
        assert report.verdict in ("right", "undecided")
    else:
        assert report.verdict == "right", report


@pytest.mark.promise("no-invented-index")
def test_no_index_and_no_length_is_invented():
    seen = Unseen()

    def f(values, indices, length):
        out = np.empty(len(indices))
        launch(lambda: seen.append((indices.tolist(), length)))
        launch(np.take, values, indices, None, out)
        return out

    indices = np.array([5, 0, 3])
    assert ag.verify(f, x_of(), indices, 6).verdict == "right"
    assert len(seen) > 20
    assert all(seen.pop() == ([5, 0, 3], 6) for _ in range(len(seen)))


@pytest.mark.promise("verify-runs-one-thing")
@pytest.mark.parametrize("joined", [True, False])
def test_a_race_may_show_only_beside_other_work(stream, monkeypatch, joined):
    """Nothing else runs beside a replay, but for what the caller has asked for."""
    side, other = ag.Stream(backend="cpu"), ag.Stream(backend="cpu")
    write_late, read_early, written, was_read = Unseen(), Unseen(), Unseen(), threading.Event()
    fill = Place.fill

    def fill_beside(*args):
        if args[1] is other:
            for busy in (write_late, read_early):
                if not len(busy):
                    busy.append(1)
            fill(*args)

    monkeypatch.setattr(Place, "fill", fill_beside)

    def write(x, out):
        if len(write_late):
            write_late.pop()
            was_read.clear()
            was_read.wait(0.1 if joined else 1)
        np.copyto(out, x)
        written.append(1)

    def read(source, out):
        early = len(read_early) and read_early.pop()
        if not early:
            written.pop()
        np.copyto(out, source)
        was_read.set()
        if early:
            written.pop()

    def f(x):
        here, between, out = ag.current_stream(), np.empty_like(x), np.empty_like(x)
        launch(np.copyto, between, -1.0)
        side.wait(here)
        side.launch(write, x, between)
        if joined or not ag.is_current_stream_capturing():
            here.wait(side)
        launch(read, between, out)
        here.wait(side)
        return out

    assert ag.verify(f, x_of()).verdict == "right"
    if joined:
        assert ag.verify(f, x_of(), beside=other).verdict == "right"
    else:
        with pytest.raises(ag.VerificationError) as raised:
            ag.verify(f, x_of(), beside=other)
        assert raised.value.report.cause == "race", raised.value


# ---- the report ----------------------------------------------------------------------------------


def scaled_by_the_host(x):
    out = np.empty_like(x)
    launch(np.multiply, x, float(x.sum()), out)
    return {"y": out}


def test_the_report_in_words_and_as_json():
    with pytest.raises(ag.VerificationError) as raised:
        ag.verify(scaled_by_the_host, x_of())
    report = raised.value.report
    assert str(raised.value) == str(report)
    words = "gives wrong results: all elements of result['y'] differ from eager runs, by up to "
    assert str(report).startswith(f"the graph of 'scaled_by_the_host' {words}")
    (finding,) = report.findings
    assert (finding.array, finding.elements, finding.of) == ("result['y']", 6, 6)
    read = json.loads(report.to_json(indent=1))
    assert read["cause"] == "frozen"
    assert read["findings"][0]["largest"] == finding.largest > 0
    assert (report.backend, report.device, report.where) == ("cpu", 0, "")


def test_a_tolerance():
    def roughly(x):
        factor = 2 + float(x.sum()) * 1e-9
        out = np.empty_like(x)
        launch(np.multiply, x, factor, out)
        return out

    assert ag.verify(roughly, x_of(), tolerance=1e-6).verdict == "right"
    report = ag.verify(roughly, x_of())
    assert report.verdict == "undecided"
    assert "too little for a fault and too much for rounding" in report.summary()
    with pytest.raises(ag.VerificationError):
        ag.verify(roughly, x_of(), tolerance=1e-12)


def added(x, out, backwards):
    total = np.float32(0)
    for value in x[::-1] if backwards else x:
        total += value
    out[:] = total


def in_another_order(x):
    out = np.empty(1, "f4")
    launch(added, x, out, ag.is_current_stream_capturing())
    return out


@pytest.mark.promise("no-wrong-accusation")
def test_rounding_is_right_with_its_size():
    report = ag.verify(in_another_order, np.linspace(0.1, 3, 40, dtype="f4"))
    assert report.verdict == "right", report
    assert "up to rounding, for your arguments and 3 others: result differs by up to" in report.summary()
    assert "and eager runs by up to" in report.summary()
    assert report.rounding


def test_a_little_too_much_for_rounding_is_undecided():
    def f(x):
        out = np.empty_like(x)
        launch(np.multiply, x, 1 + 1e-10 * ag.is_current_stream_capturing(), out)
        return out

    report = ag.verify(f, x_of())
    assert report.verdict == "undecided", report
    assert "if their numbers are off by one rounding" in report.summary()


def largest(x, found):
    np.copyto(found, np.argmax(x))


def test_an_index_that_does_not_follow_is_frozen():
    def f(x):
        out = np.empty(1, int)
        launch(np.copyto, out, np.argmax(x))
        return out

    with pytest.raises(ag.VerificationError) as raised:
        ag.verify(f, x_of())
    assert raised.value.report.cause == "frozen"


def test_an_index_that_follows_numbers_in_its_own_way_is_undecided():
    def f(x):
        near, out = np.empty_like(x), np.empty(1, int)
        launch(np.multiply, x, 1.0 + 1e-12 * ag.is_current_stream_capturing() * np.arange(len(x)), near)
        launch(largest, near, out)
        return out

    report = ag.verify(f, np.array([1.0, 3.0, 3.0, 2.0]))
    assert report.verdict == "undecided"
    assert report.findings[0].array == "result"


def test_results_whose_shape_changes_out_of_sight_are_undecided():
    sizes = Unseen(*range(1, 99))

    def f(x):
        out = np.empty(sizes.pop())
        launch(out.fill, 1)
        return out

    report = ag.verify(f, x_of())
    assert report.verdict == "undecided"
    assert "shapes" in report.summary()


def test_other_arguments_that_are_refused():
    def f(x):
        if x[0] != 0.5:
            raise ValueError("x must begin with 0.5")
        return doubled(x)

    report = ag.verify(f, x_of())
    assert report.verdict == "right"
    assert report.notes == ("the function refuses other arguments: ValueError: x must begin with 0.5",)


def test_other_arguments_that_enqueued_work_refuses():
    def positive(x, out):
        if x.min() < 0:
            raise ValueError("no logarithm")
        np.log(x, out=out)

    def f(x):
        out = np.empty_like(x)
        launch(positive, x, out)
        return out

    report = ag.verify(f, x_of())
    assert report.verdict == "right"
    assert "for your arguments and 2 others." in report.summary()
    assert "raised ValueError" in str(report)


def test_eager_runs_that_differ_are_undecided():
    def f(x):
        out = np.empty_like(x)
        launch(lambda: out.__setitem__(slice(None), np.random.default_rng().random(len(x))))
        return out

    assert ag.verify(f, x_of()).verdict == "undecided"


@pytest.mark.parametrize("odd", range(24))
def test_one_odd_run_is_not_taken_for_random_numbers(odd):
    """Additions by atomics seldom end in another order."""
    runs = Unseen()

    def add(x, out):
        out[:] = x.sum() + (len(runs) == odd) * np.float32(1e-3)
        runs.append(out)

    def f(x):
        out = np.empty(1, "f4")
        launch(add, x, out)
        return out

    try:
        report = ag.verify(f, np.ones(8, "f4"))
    except ag.VerificationError as error:
        report = error.report
    assert odd < len(runs)
    assert report.cause != "random_repeats", report


def test_results_that_follow_every_rounding_are_undecided():
    def chaos(x, out, factor):
        np.mod(x * factor, 1.0, out)

    def f(x):
        out = np.empty_like(x)
        launch(chaos, x, out, 1e15 * (1 + 2.3e-16 * ag.is_current_stream_capturing()))
        return out

    report = ag.verify(f, x_of() * np.pi)
    assert report.verdict == "undecided", report
    assert "if their numbers are off by one rounding" in report.summary()


def test_what_was_tried_is_said():
    assert "for your arguments and 3 others" in ag.verify(doubled, x_of()).summary()
    assert "for your arguments and 1 other." in ag.verify(doubled, x_of(), rounds=2).summary()
    assert (
        "for your arguments and 2 others."
        in ag.verify(doubled, x_of(), rounds=1, examples=[(x_of() + 1,), (x_of() + 2,)]).summary()
    )
    assert "for your arguments only." in ag.verify(doubled, np.arange(6)).summary()


@pytest.mark.parametrize("example", [(x_of(5),), (x_of(), 3), (x_of().astype("f4"),)])
def test_examples_that_need_another_graph_are_refused(example):
    def f(x, factor=2):
        out = np.empty_like(x)
        launch(np.multiply, x, factor, out)
        return out

    with pytest.raises(
        ValueError, match=r"verify: examples\[1\] may differ .* in the contents of arrays only"
    ):
        ag.verify(f, x_of(), examples=[(x_of() + 1,), example])


@pytest.mark.promise("verify-does-not-hang")
@pytest.mark.parametrize("hangs", ["eagerly", "in a replay"])
def test_a_run_that_does_not_end_is_given_up(hangs):
    gate, seen = threading.Event(), Unseen()

    def work(x, out):
        if hangs == "eagerly" or len(seen):
            gate.wait()
        np.multiply(x, 2, out)

    def f(x):
        if ag.is_current_stream_capturing():
            seen.append(1)
        random.random()
        f.calls += 1
        out = np.empty_like(x)
        launch(work, x, out)
        return out

    f.calls, x, state = 0, x_of(), random.getstate()
    stream = ag.Stream(backend="cpu")
    try:
        with stream, pytest.raises(TimeoutError, match=r"a run of .* has not ended within 2 s") as raised:
            ag.verify(f, x, time_limit=2)
        assert "not put back" in str(raised.value)
        assert (f.calls, random.getstate()) == (0, state)
    finally:
        gate.set()
        verification._running.pop().program.close()


@pytest.mark.promise("verify-does-not-hang")
def test_work_that_hangs_before_the_first_run_is_given_up(stream):
    gate = threading.Event()
    stream.launch(gate.wait)
    try:
        with pytest.raises(TimeoutError, match="has not ended within"):
            ag.verify(doubled, x_of(), time_limit=1)
    finally:
        gate.set()
    assert ag.verify(doubled, x_of(), time_limit=60).verdict == "right"


def test_a_graph_whose_verification_hangs_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(verification, "_TIME_LIMIT", 1)
    gate = threading.Event()

    def f(x):
        out = np.empty_like(x)
        launch(lambda: (gate.wait(), np.multiply(x, 2, out)))
        return out

    try:
        with pytest.raises(TimeoutError):
            ag.graphed(f, verify="first", warmup=0)(x_of())
    finally:
        gate.set()
        verification._running.pop().program.close()


@pytest.mark.promise("verify-within-the-time")
def test_the_time_limit_says_what_was_left_out(monkeypatch):
    runs = Unseen()
    monkeypatch.setattr(trial.time, "monotonic", lambda: float(len(runs)))

    def f(x):
        runs.append(1)
        return doubled(x)

    report = ag.verify(f, x_of(), time_limit=14)
    assert len(runs) <= 15
    assert report.verdict == "undecided"
    assert "the time limit was over before the experiments" in report.summary()
    assert "other arguments" in report.summary()
    assert "unwritten outputs" not in report.summary()
    assert ag.verify(f, x_of(), time_limit=None).verdict == "right"
    assert "before the experiments unwritten outputs, races" in ag.verify(f, x_of(), time_limit=1).summary()


def test_replays_that_differ_without_branches_have_no_known_cause():
    runs = Unseen()

    def run(x, out, captured):
        runs.append(1)
        np.add(x, captured * (len(runs) % 3), out)

    def f(x):
        out = np.empty_like(x)
        launch(run, x, out, ag.is_current_stream_capturing())
        return out

    with pytest.raises(ag.VerificationError) as raised:
        ag.verify(f, x_of())
    assert raised.value.report.cause == "unknown", raised.value


def test_two_branches_that_meet_are_named():
    make, _ = FAULTS["two_branches_write_one_array"]
    said = str(accusation(make))
    assert "a memcpy, and node" in said
    assert "write the same memory, and neither waits for the other" in said


def test_equal_work_in_two_branches_is_no_race():
    side = ag.Stream(backend="cpu")

    def f(x):
        stream, out, scratch = ag.current_stream(), np.empty_like(x), np.empty_like(x)
        side.wait(stream)
        side.fill(scratch, 0)
        stream.fill(scratch, 0)
        stream.wait(side)
        launch(np.add, x, scratch, out)
        return out

    assert ag.verify(f, x_of()).verdict == "right"


def test_a_number_in_a_graph_of_the_callers_is_no_stale_address():
    weight = np.full(6, 2.0)
    x, y = x_of(), np.zeros(6)

    def forward(x):
        out = np.empty_like(x)
        launch(np.multiply, x, float(weight[0]), out)
        return out

    with ag.Graph() as graph:
        launch(np.multiply, x, 3.0, y)
    with pytest.raises(
        ag.VerificationError, match="neither this graph nor a new one follows weight"
    ) as raised:
        ag.verify(graph, x, outputs=y, reference=forward)
    assert raised.value.report.cause == "frozen"


# ---- what is left as it was ----------------------------------------------------------------------


@pytest.mark.promise("verify-puts-everything-back")
@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_as_before(fails):
    class Model:
        def __init__(self):
            self.total = np.zeros(6)
            self.calls = 0
            self.generator = np.random.default_rng(3)

        def forward(self, x):
            self.calls += 1
            launch(np.add, self.total, x, self.total)
            launch(np.add, x, self.generator.random(6), x)
            if fails and ag.is_current_stream_capturing():
                raise ZeroDivisionError
            return x

    model, x = Model(), x_of()
    np.random.seed(5)
    first = np.random.random()
    np.random.seed(5)
    with pytest.raises(ZeroDivisionError if fails else ag.VerificationError):
        ag.verify(model.forward, x)
    assert x.tolist() == x_of().tolist()
    assert model.total.tolist() == [0.0] * 6
    assert model.calls == 0
    assert model.generator.random() == np.random.default_rng(3).random()
    assert np.random.random() == first


runs_of_growing: list[int] = []


class Growing:
    def __init__(self):
        self.log, self.seen, self.by_call, self.waiting = [0], {0}, {0: 0}, deque([0])
        self.calls, self.pair = itertools.count(5), (1, [2])
        self.arrays = [np.zeros(6)]
        self.bytes, self.numbers = bytearray(b"ab"), array("d", [1.0])

    @property
    def number(self):
        runs_of_growing.append(1)
        return next(self.calls)

    def __call__(self, x, log=None):
        number = self.number
        self.bytes.append(1)
        self.numbers.append(1.0)
        self.log.append(number)
        self.seen.add(number)
        self.by_call[number] = number
        self.waiting.popleft()
        self.waiting.append(number)
        self.pair[1].append(number)
        self.found = number
        self.arrays.append(self.arrays[0] + x)
        if log is not None:
            log.append(number)
        return doubled(x)

    def contents(self):
        items = self.log, self.seen, self.by_call, list(self.waiting), self.pair, len(self.arrays)
        return repr((*items, self.calls, "found" in vars(self), self.bytes, self.numbers))


def test_containers_and_iterators_are_put_back():
    model, log = Growing(), [0]
    calls, before = model.calls, model.contents()
    assert ag.verify(model, x_of(), log).verdict == "right"
    assert model.contents() == before
    assert model.calls is calls
    assert runs_of_growing == []
    assert log == [0]


@pytest.mark.parametrize("warmup", [0, 2])
def test_a_graphed_call_leaves_what_it_would_leave_without_verification(warmup):
    found = []
    for verify in (None, "first"):
        model = Growing()
        f = ag.graphed(model.__call__, warmup=warmup, verify=verify)
        for _ in range(warmup + 2):
            f(x_of())
        found.append((model.contents(), len(runs_of_growing)))
        runs_of_growing.clear()
    assert found[0] == found[1]


@pytest.mark.promise("iterators-are-refused-by-name")
@pytest.mark.parametrize(
    "made", [lambda: (i for i in range(99)), lambda: zip(range(9)), lambda: itertools.cycle("ab")]
)
def test_an_iterator_that_can_not_be_put_back_is_refused_by_name(made):
    numbers, runs = made(), Unseen()

    def f(x):
        runs.append(1)
        out = np.empty_like(x)
        launch(np.multiply, x, len(str(next(numbers))), out)
        return out

    with pytest.raises(TypeError, match="can reach 'numbers', an iterator that can't be put back"):
        ag.verify(f, x_of())
    assert len(runs) == 0
    with pytest.warns(RuntimeWarning, match="can reach 'numbers', an iterator that can't be put back"):
        ag.graphed(f, verify="first", warmup=0)(x_of())
    assert len(runs) == 1


class Seeded(Inspectable):
    """Its first number after a change of the seed can't be captured, as with cuDNN's dropout."""

    api_version = 1
    seed, stale = 3, True

    def backend(self):
        return "cpu"

    def random_state(self, device, generators):
        def restore(seed=Seeded.seed, stale=Seeded.stale):
            Seeded.seed, Seeded.stale = seed, Seeded.stale or stale

        return restore

    @staticmethod
    def draw(x):
        if Seeded.stale and ag.is_current_stream_capturing():
            raise ZeroDivisionError
        Seeded.seed, Seeded.stale = Seeded.seed + 1, False
        launch(np.multiply, x, 2, x)
        return x


def test_random_numbers_that_were_seeded_anew_are_drawn_before_the_capture(monkeypatch):
    monkeypatch.setitem(sys.modules, "seeded", object())
    monkeypatch.setattr(Seeded, "stale", True)
    monkeypatch.setattr(Seeded, "seed", 3)
    interop.register("seeded", Seeded)
    try:
        assert ag.verify(Seeded.draw, x_of()).verdict == "right"
        assert (Seeded.seed, Seeded.stale) == (3, True)
    finally:
        interop.unregister("seeded")


class Filling(Inspectable):
    """Fills new arrays as frameworks of a device do: by work on the current stream, which may be late."""

    api_version = 1
    settle = None
    stream = None
    """The framework's own current stream, if it is not the library's."""

    def backend(self):
        return "cpu"

    def current_stream(self, device=None):
        return None if Filling.stream is None else (Filling.stream.native, 0)

    def fill_new(self, which, settle):
        def fill(out):
            stream = Filling.stream or ag.current_stream()
            stream.launch(time.sleep, 0.05)
            stream.launch(out.fill, 0.25 + which)
            settle()

        Filling.settle = fill
        return lambda: setattr(Filling, "settle", None)

    @staticmethod
    def empty_like(x):
        out = np.empty_like(x)
        if Filling.settle is not None:
            Filling.settle(out)
        return out


@pytest.fixture
def filling(monkeypatch):
    monkeypatch.setitem(sys.modules, "filling", object())
    interop.register("filling", Filling)
    yield Filling
    interop.unregister("filling")


@pytest.mark.parametrize("own", [False, True])
def test_what_another_stream_writes_is_not_taken_for_what_nobody_writes(filling, monkeypatch, own):
    """The other stream does not wait for the one that fills the new array."""
    other, filler = ag.Stream(backend="cpu"), ag.Stream(backend="cpu")

    def f(x):
        with monkeypatch.context() as there:
            there.setattr(filling, "stream", filler if own else None)
            out = filling.empty_like(x)
        launch(int)
        other.launch(np.multiply, x, 2, out)
        if not ag.is_current_stream_capturing():
            ag.current_stream().wait(other)
            ag.current_stream().wait(filler)
        return out

    with pytest.raises(ag.VerificationError, match="leaves all elements of result unwritten") as raised:
        ag.verify(f, x_of())
    assert raised.value.report.cause == "not_written"


def test_what_replays_leave_and_eager_runs_write_at_random_is_not_right(filling):
    noise = Unseen(*range(1000))

    def f(x):
        out = filling.empty_like(x)
        launch(np.multiply, x[:3], 2, out[:3])
        if not ag.is_current_stream_capturing():
            launch(np.copyto, out[3:], noise.pop())
        return out

    report = ag.verify(f, x_of())
    assert report.verdict == "undecided", report
    assert "leaves 3 of 6 elements of result unwritten, and eager runs differ there" in report.summary()


@pytest.mark.parametrize("x", [(), (x_of(),)])
def test_work_that_escaped_from_the_capture_and_is_late_makes_no_replay_right(x):
    """It goes to a stream of its own, and ends when the first replay has begun."""
    began, ended = threading.Event(), threading.Event()

    def late(out):
        began.wait(120)
        np.copyto(out, 2)
        ended.set()

    def let_it_end():
        began.set()
        ended.wait(120)

    def f(*x):
        out = np.empty(6)
        if ag.is_current_stream_capturing():
            ag.Stream(backend="cpu").launch(late, out)
            launch(let_it_end)
        else:
            launch(np.copyto, out, 2)
        return out

    with pytest.raises(ag.VerificationError):
        ag.verify(f, *x)


def test_items_that_a_run_leaves_in_a_dict_are_removed():
    class Scaler:
        """Keeps stages like a gradient scaler: `update` begins a new dict."""

        def __init__(self):
            self.stages = {}

        def step(self, x):
            assert not self.stages
            self.stages["done"] = True
            launch(np.multiply, x, 2, x)

        def update(self):
            self.stages = {}

    scaler = Scaler()

    def f(x):
        out = x.copy()
        launch(np.copyto, out, x)
        scaler.step(out)
        scaler.update()
        return out

    assert ag.verify(f, x_of()).verdict == "right"
    assert scaler.stages == {}


def test_state_that_is_named():
    totals = [np.zeros(6), np.zeros(6)]

    class Hidden:
        __slots__ = ()

        def __call__(self, x):
            launch(np.add, totals[0], x, totals[0])
            return doubled(totals[0])

    assert ag.verify(Hidden(), x_of(), state=[totals[0]]).verdict == "right"
    assert totals[0].tolist() == [0.0] * 6


@pytest.mark.parametrize(
    "state", [iter, list, lambda arrays: dict(enumerate(arrays)), lambda arrays: arrays[0]]
)
def test_every_way_to_name_state(state):
    total, other = np.zeros(6), np.zeros(6)

    def f(x):
        target = other if ag.is_current_stream_capturing() else total
        launch(np.add, target, x, target)

    with pytest.raises(ag.VerificationError, match=r"the replay leaves all elements of .* as before"):
        ag.verify(f, x_of(), state=state([total]))
    assert total.tolist() == [0.0] * 6


@pytest.mark.parametrize("function", [lambda x: None, lambda x: 3, lambda x: launch(int)])
@pytest.mark.filterwarnings("ignore::accelerator_graph.EmptyGraphWarning")
def test_without_anything_to_compare_nothing_is_decided(function):
    report = ag.verify(function, x_of())
    assert report.verdict == "undecided"
    assert "eager runs return no array and write none that is known" in report.summary()


def test_what_is_written_in_every_run_alike_is_compared():
    out = np.zeros(6)

    def f(x):
        launch(np.add, x, 1, out)

    with ag.current_stream():
        f(x_of())  # out holds the result before the first run
        ag.current_stream().synchronize()
    assert ag.verify(f, x_of()).verdict == "right"


def test_outputs_that_are_not_those_of_the_reference(stream):
    x = x_of()
    with ag.Graph() as graph:
        out = doubled(x)
    for outputs in (None, [out, out], out[1:]):
        report = ag.verify(graph, x, outputs=outputs, reference=doubled)
        assert report.verdict == "undecided"
        assert "arrays in outputs= are not those of the reference's result" in report.summary()


# ---- what is refused -----------------------------------------------------------------------------


of_the_module: object = None


class Proxy:
    """As werkzeug's outside of a request."""

    __slots__ = ()

    def __getattribute__(self, name):
        raise RuntimeError("outside of its context")


class Lazy:
    def __getattr__(self, name):
        raise RuntimeError("can't be loaded")


@pytest.mark.parametrize("kind", [Proxy, Lazy])
def test_an_object_that_tells_nothing_of_itself_is_left_alone(kind, monkeypatch):
    monkeypatch.setitem(globals(), "of_the_module", kept := kind())

    def f(x):
        return doubled(x) if kept is of_the_module else None

    assert ag.verify(f, x_of()).verdict == "right"


def generator(x):
    yield doubled(x)


async def coroutine(x):
    return doubled(x)


@pytest.mark.parametrize("function", [generator, coroutine, functools.partial(generator)])
def test_a_function_that_runs_later_is_refused(function):
    with pytest.raises(TypeError, match=r"verify: .* is a coroutine or a generator"):
        ag.verify(function, x_of())
    with ag.Graph() as graph:
        out = doubled(x_of())
    with pytest.raises(TypeError, match=r"verify: .* is a coroutine or a generator"):
        ag.verify(graph, x_of(), outputs=out, reference=function)


def test_without_a_stream(monkeypatch):
    for framework in ("torch", "cupy"):  # whose default stream would be the current one
        monkeypatch.delitem(sys.modules, framework, raising=False)
    with pytest.raises(ag.CaptureError, match="verify can't run while no stream is current") as raised:
        in_thread(lambda: ag.verify(doubled, x_of()))
    assert raised.value.reason == "default_stream"


@pytest.mark.parametrize(
    ("args", "how", "error", "words"),
    [
        ((doubled, 1), {"rounds": 0}, ValueError, "rounds must be at least 1"),
        ((doubled, 1), {"rounds": "x"}, TypeError, "rounds must be an int"),
        (
            (doubled, 1),
            {"time_limit": 0},
            ValueError,
            "time_limit must be a positive number of seconds or None",
        ),
        ((doubled, 1), {"tolerance": -1}, ValueError, "tolerance must be a number of at least 0"),
        ((3,), {}, TypeError, "must be a callable or a Graph"),
        ((doubled, 1), {"outputs": 2}, TypeError, "belong to a graph"),
        ((doubled, 1), {"state": 3}, TypeError, r"state\[0\] must be an array or a module, not 3"),
        ((doubled, 1), {"state": {"w": [np.ones(1)]}}, TypeError, "w must be an array or a module"),
        ((doubled,), {}, TypeError, "missing a required argument: 'x'"),
    ],
)
def test_arguments_that_are_refused(args, how, error, words):
    with pytest.raises(error, match=words):
        ag.verify(*args, **how)


def test_python_objects_in_arrays():
    names = np.array(["a", None], dtype=object)
    assert ag.verify(lambda x: doubled(x) if len(names) else None, x_of()).verdict == "right"
    with pytest.raises(TypeError, match="holds Python objects"):
        ag.verify(doubled, names)


def test_memory_of_a_device_is_refused():
    interface = {"shape": (4,), "typestr": "<f4", "data": (64, False), "version": 3}
    elsewhere = SimpleNamespace(__cuda_array_interface__=interface)
    with pytest.raises(TypeError, match=r"argument x is in memory that the stream .* can't read"):
        ag.verify(doubled, elsewhere)


def test_a_graph_needs_a_reference_and_a_capture():
    graph = ag.Graph()
    with pytest.raises(TypeError, match="pass reference="):
        ag.verify(graph)
    with pytest.raises(ag.GraphStateError, match="nothing was captured"):
        ag.verify(graph, x_of(), outputs=x_of(), reference=doubled)


def test_not_in_a_capture():
    with ag.Graph() as graph:
        launch(int)
        with pytest.raises(ag.CaptureError, match="verify can't run"):
            ag.verify(doubled, x_of())
    assert graph.num_nodes == 1


def test_a_function_that_can_not_be_captured(stream):
    def f(x):
        stream.synchronize()
        out = doubled(x)
        ag.current_stream().synchronize()
        return out

    with pytest.raises(ag.CaptureError):
        ag.verify(f, x_of())


# ---- graphed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_graphed_verifies_its_first_graphs(outputs, stream):
    runs = Unseen()

    @ag.graphed(verify="first", warmup=1, outputs=outputs)
    def f(x, factor=2):
        runs.append(factor)
        out = np.empty_like(x)
        launch(np.multiply, x, factor, out)
        return out, x

    for i in range(4):
        result, same = f(x_of() + i)
        stream.synchronize()
        assert result.tolist() == [2 * (x + i) for x in x_of()]
        assert same.tolist() == (x_of() + i).tolist()
    count = len(runs)
    f(x_of())
    assert len(runs) == count > 4
    assert f.cache_info()[:3] == (4, 1, 1)


NOT_GRAPHED = {
    "ordinary_numpy_writes_the_output",  # refused before
    "a_branch_that_an_example_takes",
    "the_graph_writes_another_array",
    "the_argument_is_another_array",
    "the_weight_was_moved",
}


@pytest.mark.parametrize("warmup", [0, 2])
@pytest.mark.parametrize("name", [name for name in FAULTS if name not in NOT_GRAPHED])
def test_graphed_names_the_cause_that_verify_names(name, warmup):
    make, cause = FAULTS[name]
    (f, *args), _ = make()
    graphed = ag.graphed(f, verify="first", warmup=warmup)
    for _ in range(warmup):
        graphed(*args)
    with pytest.raises(ag.VerificationError) as raised:
        graphed(*args)
    assert raised.value.report.cause == cause, raised.value


@pytest.mark.parametrize("outputs", ["copy", "static"])
def test_graphed_refuses_a_graph_that_is_wrong(outputs):
    f = ag.graphed(scaled_by_the_host, verify="first", warmup=0, outputs=outputs)
    for _ in range(2):
        with pytest.raises(ag.VerificationError) as raised:
            f(x_of())
        assert raised.value.report.cause == "frozen"
        assert raised.value.report.function == "scaled_by_the_host"
    assert f.cache_info().graphs == 0


def test_graphed_finds_that_an_argument_is_written():
    @ag.graphed(verify="first", warmup=0)
    def f(x):
        launch(np.add, x, 1, x)

    f(x_of())
    assert f.cache_info().graphs == 1


def test_graphed_warns_if_it_can_not_be_decided():
    @ag.graphed(verify="first", warmup=0)
    def f(x):
        out = np.empty_like(x)
        launch(lambda: out.__setitem__(slice(None), np.random.default_rng().random(len(x))))
        return out

    with pytest.warns(RuntimeWarning, match="can't be decided whether the graph of .* is right"):
        f(x_of())
    assert f.cache_info().graphs == 1


@pytest.mark.promise("verify-by-the-environment")
def test_the_environment_asks_for_it(monkeypatch):
    monkeypatch.setenv("ACCELERATOR_GRAPH_VERIFY", "first")
    f = ag.graphed(scaled_by_the_host, warmup=0)
    with pytest.raises(ag.VerificationError):
        f(x_of())
    monkeypatch.setenv("ACCELERATOR_GRAPH_VERIFY", "")
    ag.graphed(scaled_by_the_host, warmup=0)(x_of())
    monkeypatch.setenv("ACCELERATOR_GRAPH_VERIFY", "always")
    with pytest.raises(ValueError, match="ACCELERATOR_GRAPH_VERIFY is 'always'"):
        ag.graphed(doubled)
    with pytest.raises(ValueError, match="verify must be 'first' or None"):
        ag.graphed(doubled, verify="last")
