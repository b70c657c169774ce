"""The conformance kit itself: it finds bugs, and it is strict."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from inspect import isfunction
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest

import accelerator_graph as ag
from accelerator_graph._core.graph import REFUSED
from accelerator_graph.backends.base import Backend
from accelerator_graph.testing import (
    BackendConformance,
    CheckResult,
    Work,
    _conformance,
    check_backend,
    live_instances,
)
from accelerator_graph.testing._case import Case, applied
from accelerator_graph.testing._conformance import check_rules
from accelerator_graph.testing._conformance import test_names as names_of_tests
from accelerator_graph.testing.rules import ALL
from accelerator_graph.testing.rules.events import NOT_WAITED
from accelerator_graph.testing.rules.state import ERROR, STATES, TABLE
from accelerator_graph.testing.rules.work import OR_NOT_DONE
from accelerator_graph.testing.works.host import HostWork
from backends.test_conformance import tape
from kit.explicit_runtime import Explicit
from kit.planted import destroying, listing, ordering, refusing, replaying, stating, without_a_fault, works
from kit.planted.collection import NAME
from processes import execute

ROOT = Path(__file__).resolve().parents[2]


ATTEMPTS = 5


class Conformance(BackendConformance):
    def work(self) -> Work:
        return HostWork(NAME)


def run(test: str, case: type[BackendConformance] = Conformance) -> None:
    getattr(case(), test)()


@pytest.mark.parametrize(
    ("work", "test"),
    [
        (works.NotSlow, "test_work_that_is_slow_takes_a_millisecond"),
        (works.SlowBeforeItReads, "test_work_that_is_slow_takes_a_millisecond"),
        (works.SlowDoesOtherWork, "test_work_computes_what_it_says"),
        (works.ReadWaits, "test_work_read_waits_for_nothing"),
        (works.OneCell, "test_work_new_cells_hold_zero"),
        (works.UsedCells, "test_work_new_cells_hold_zero"),
        (works.ForgetsTheValue, "test_work_computes_what_it_says"),
        (works.OneBuffer, "test_work_buffers_hold_zeros"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_work_that_is_not_what_it_says_is_found(work: type[HostWork], test: str) -> None:
    class Conformance(BackendConformance):
        def work(self) -> Work:
            return work("cpu")

    def attempts() -> None:
        for _ in range(ATTEMPTS):  # on a busy machine, two streams may not be seen side by side
            run(test, Conformance)

    with pytest.raises(AssertionError):
        attempts()


def test_streams_on_the_wrong_device_are_found(register: Any) -> None:
    class OnTwoDevices(Conformance):
        def work(self) -> Work:
            return works.WorkOfADevice(NAME)

    register(without_a_fault.EveryStreamOnDeviceZero)
    with pytest.raises(AssertionError, match="device 1"):
        run("test_work_runs_on_the_device_of_its_stream", OnTwoDevices)
    with pytest.raises(SkipTest, match="override Work"):
        run("test_work_runs_on_the_device_of_its_stream")
    for backend in (without_a_fault.TwoDevices, without_a_fault.RefusesTwoDevices):
        ag.backends.register(NAME, backend, replace=True)
        for name in dir(OnTwoDevices):
            if name.startswith("test_") and "device" in name:
                run(name, OnTwoDevices)


def test_kernels_with_checked_arguments_are_no_fault(register: Any) -> None:
    class OfKernels(Conformance):
        def work(self) -> Work:
            return works.KernelWork(NAME)

    register(without_a_fault.LaunchesKernels)
    run("test_wrong_launch_is_refused_before_anything_is_enqueued", OfKernels)


def test_declared_disturbance_is_no_bug(register: Any) -> None:
    register(destroying.DestroyBreaksCapturesAndSaysSo)
    run("test_graphs_collected_during_a_capture_leave_it_valid")
    run("test_resetting_another_graph_during_a_capture_leaves_it_valid")


@pytest.mark.promise("state-error-changes-nothing")
@pytest.mark.parametrize(
    ("call", "state"),
    [
        (call, state)
        for call, row in TABLE.items()
        for state, outcome in zip(STATES, row, strict=True)
        # these calls are refused a second time, further in
        if outcome == ERROR and call not in ("instantiate", "clone", "debug_dump", "raw_graph")
    ],
)
def test_every_cell_of_the_state_table_can_fail(
    call: str, state: str, register: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(without_a_fault.Whole)
    key = call if call in REFUSED else f"{call}()"
    assert REFUSED[key]
    monkeypatch.setitem(REFUSED, key, {})
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run(f"test_state_{call}_when_{state.replace(' ', '_')}")
    assert not isinstance(caught.value, SkipTest)


# ---- the kit around the rules --------------------------------------------------------------------


def test_failure_shows_the_sentence_of_the_rule(register: Any) -> None:
    register(replaying.ReplaysTwice)
    with pytest.raises(AssertionError) as caught:
        run("test_each_replay_runs_the_work_once")
    (note,) = caught.value.__notes__
    assert note == (
        "The rule test_each_replay_runs_the_work_once: "
        "One replay runs the work once, n replays run it n times."
    )


def test_hanging_call_is_a_failure_that_says_where(register: Any) -> None:
    class Impatient(Conformance):
        time_limit = 0.3

    register(without_a_fault.Hangs)
    place = r"hangs in Hangs.synchronize \(kit.planted.without_a_fault, line \d+\), after 0.3 s:"
    ended = threading.Event()
    other = threading.Thread(target=ended.wait, name="beside", daemon=True)
    other.start()
    with pytest.raises(
        AssertionError, match=place + r"(.|\n)*without_a_fault, line \d+, in Hangs.sync"
    ) as caught:
        run("test_each_replay_runs_the_work_once", Impatient)
    ended.set()
    assert re.search(r"thread 'beside' is here:(.|\n)*in Event.wait", str(caught.value))


def test_rules_behind_a_hanging_call_are_not_run(register: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    register(without_a_fault.Hangs)
    results = list(check_rules(HostWork(NAME), time_limit=0.3))
    [first] = [result for result in results if result.outcome == "failed"]
    later = results[results.index(first) + 1 :]
    assert len(later) > 300
    assert {result.outcome for result in later} == {"skipped"}
    assert {result.reason for result in later} == {
        f"not run, since a call hangs in {first.name}, and others may wait for it; mend that first"
    }


def test_an_authors_own_mistake_is_not_to_be_translated(register: Any) -> None:
    class Misspells(Explicit):
        def instantiate(self, graph: Any) -> Any:
            return graph.no_such_attribute

    register(Misspells)
    with pytest.raises(
        AssertionError, match="let AttributeError out; mend that, or, if your runtime has raised"
    ):
        run("test_each_replay_runs_the_work_once")


def test_rule_that_goes_on_is_not_a_hang() -> None:
    class Slow(BackendConformance):
        time_limit = 0.2

        def work(self) -> Work:
            return HostWork("cpu")

        def test_that_goes_on(self) -> None:
            begun = time.thread_time()
            while time.thread_time() < begun + 0.4:
                pass

        def test_that_waits(self) -> None:
            event = threading.Event()
            threading.Timer(0.4, event.set).start()
            self.wait(event)

    run("test_that_goes_on", Slow)
    run("test_that_waits", Slow)


@pytest.mark.promise("runtime-errors-stay-inside")
def test_vendors_exception_is_seen_wherever_it_goes(register: Any) -> None:
    class Forgiving(Conformance):
        def test_that_catches_all(self) -> None:
            with suppress(Exception):
                self.graph(stream=object(), backend=NAME)

    register(refusing.RefusesStreamsWithTheVendorsError)
    named = r"RefusesStreamsWithTheVendorsError.as_stream let TypeError out"
    with pytest.raises(AssertionError, match=named) as caught:
        run("test_that_catches_all", Forgiving)
    assert str(caught.value.__cause__) == "RT_ERROR_INVALID_STREAM"
    kind = vars(refusing.RefusesStreamsWithTheVendorsError)
    assert not hasattr(kind["as_stream"], "__wrapped__")
    assert "replay" not in kind


def test_test_that_leaves_a_capture_fails(register: Any) -> None:
    class Sloppy(Conformance):
        def test_that_leaves_a_capture(self) -> None:
            self.left = self.graph(self.stream())
            self.left.capture_begin()

        def test_that_leaves_a_stream_current(self) -> None:
            self.stream().__enter__()

    register(without_a_fault.Whole)
    with pytest.raises(AssertionError, match="left capturing"):
        run("test_that_leaves_a_capture", Sloppy)
    with pytest.raises(AssertionError, match="the current stream is"):
        run("test_that_leaves_a_stream_current", Sloppy)


def test_interrupt_out_of_a_test_is_a_failure_and_no_interrupt(register: Any) -> None:
    class Rude(Conformance):
        def test_that_is_rude(self) -> None:
            raise KeyboardInterrupt

    register(without_a_fault.Whole)
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        run("test_that_is_rude", Rude)


def test_expected_failure_is_a_skip_with_its_reason(register: Any) -> None:
    class Known(Conformance):
        expected_failures = {"test_each_replay_runs_the_work_once": "replays run twice"}  # noqa: RUF012

    register(replaying.ReplaysTwice)
    with pytest.raises(SkipTest, match="replays run twice") as caught:
        run("test_each_replay_runs_the_work_once", Known)
    assert isinstance(caught.value.__cause__, AssertionError)


def test_expected_failure_that_passes_is_a_failure(register: Any) -> None:
    class Wrong(Conformance):
        expected_failures = {"test_each_replay_runs_the_work_once": "replays run twice"}  # noqa: RUF012

    register(without_a_fault.Whole)
    with pytest.raises(AssertionError, match="remove it from expected_failures"):
        run("test_each_replay_runs_the_work_once", Wrong)


def test_expected_failure_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="test_of_nothing"):
        type("Wrong", (Conformance,), {"expected_failures": {"test_of_nothing": "?"}})


def test_expected_failures_are_those_of_the_last_class(register: Any) -> None:
    class Known(Conformance):
        expected_failures = {"test_each_replay_runs_the_work_once": "replays run twice"}  # noqa: RUF012

    class Mended(Known):
        expected_failures = {}  # noqa: RUF012

    register(without_a_fault.Whole)
    run("test_each_replay_runs_the_work_once", Mended)


@pytest.mark.parametrize("stop", [SkipTest, ZeroDivisionError])
def test_work_is_done_before_a_test_that_stops_early_lets_go_of_its_memory(stop: type[Exception]) -> None:
    """Work that is still in progress would write where other memory is by then."""

    class Stops(BackendConformance):
        shared: Any

        def work(self) -> Work:
            return works.FailingWork("cpu")

        def test_stops(self) -> None:
            type(self).shared = self.cell()
            streams = [self.stream() for _ in range(10)]
            for stream in streams:
                self.used.fail(stream)
            self.enqueue_slow(streams[-1], self.shared, times=100)
            raise stop

    with pytest.raises(stop):
        run("test_stops", Stops)
    assert Stops.shared.value == applied(100)


def test_rule_can_be_replaced_or_removed(register: Any) -> None:
    class Own(Conformance):
        ran = 0
        test_large_capture_is_whole = None

        def test_each_replay_runs_the_work_once(self) -> None:
            assert threading.current_thread() is not threading.main_thread()
            type(self).ran += 1

    register(replaying.ReplaysTwice)
    run("test_each_replay_runs_the_work_once", Own)
    assert Own.ran == 1
    assert Own.test_large_capture_is_whole is None


def test_capability_that_is_missing_is_named(register: Any) -> None:
    register(without_a_fault.NothingButTheCore)
    with pytest.raises(SkipTest, match="capability 'events'"):
        run("test_fork_and_join_keeps_the_order")
    with pytest.raises(SkipTest, match="capability 'enqueue'"):
        run("test_fill_sets_bytes")


def test_no_two_rules_have_the_same_name() -> None:
    """Nor do the methods that they share: each would take the other's place without a word."""
    names = Counter(name for rules in ALL for name, each in vars(rules).items() if isfunction(each))
    assert [name for name, count in names.items() if count > 1] == []
    assert not set(names) & set(vars(Case))
    assert {name for name in names if name.startswith("test_")} <= set(dir(BackendConformance))


def test_every_rule_is_a_sentence() -> None:
    for name in dir(BackendConformance):
        if name.startswith("test_"):
            text = getattr(BackendConformance, name).__doc__
            assert text, name
            assert text.endswith("."), name
            assert "\n\n" not in text, name


# ---- without pytest ------------------------------------------------------------------------------


ABOUT_EDGES = (
    "test_nodes_of_a_line",
    "test_nodes_of_a_fork_and_join",
    "test_nodes_after_an_event",
    "test_debug_dump_draws_every_dependency",
)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has `check_backend` check some rules only."""
    return lambda *names: monkeypatch.setattr(_conformance, "test_names", lambda case: names)


def test_check_backend_returns_how_each_rule_came_out(register: Any, only: Any) -> None:
    register(without_a_fault.Whole)
    passes, skipped = "test_each_replay_runs_the_work_once", "test_handle_stands_for_the_stream"
    only(passes, skipped)
    reason = "backend 'planted' does not have the capability 'handles'"
    assert check_backend(HostWork(NAME)) == [
        CheckResult(passes, "passed"),
        CheckResult(skipped, "skipped", reason),
    ]


def test_check_backend_raises_all_failures(register: Any, only: Any) -> None:
    register(listing.HasNoEdges)
    only("test_each_replay_runs_the_work_once", *ABOUT_EDGES)
    with pytest.raises(
        ExceptionGroup, match="breaks 4 of the rules; look at test_nodes_of_a_line first"
    ) as caught:
        check_backend(HostWork(NAME))
    assert [error.__notes__ for error in caught.value.exceptions] == [
        [f"The rule {name}: {getattr(BackendConformance, name).__doc__}"] for name in ABOUT_EDGES
    ]


def test_basic_rules_come_first() -> None:
    names = names_of_tests(BackendConformance)
    for first, later in (
        ("test_wait_orders_streams", "test_destroyed_event_is_still_waited_for"),
        (
            "test_stream_modules_have_the_runtimes_own_streams",
            "test_runtimes_own_object_stands_for_the_stream",
        ),
    ):
        assert names.index(first) < names.index(later)


@pytest.mark.parametrize(
    ("fault", "rule", "message"),
    [
        (ordering.DoesNotWait, "test_work_computes_what_it_says", OR_NOT_DONE),
        (ordering.DoesNotWait, "test_work_that_is_slow_takes_a_millisecond", OR_NOT_DONE),
        (ordering.WaitDoesNothing, "test_wait_orders_streams", NOT_WAITED),
        (ordering.WaitDoesNothing, "test_destroyed_event_is_still_waited_for", NOT_WAITED),
        (
            stating.NamesNoModules,
            "test_stream_modules_have_the_runtimes_own_streams",
            "add 'accelerator_graph' to `stream_modules`",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_message_says_what_may_be_wrong(
    fault: type[Backend], rule: str, message: str, register: Any, only: Any
) -> None:
    register(fault)
    only(rule)
    for _ in range(ATTEMPTS):  # on a busy machine, the work may be done by then
        try:
            check_backend(HostWork(NAME))
        except ExceptionGroup as caught:
            [error] = caught.exceptions
            assert message in str(error)
            return
    raise AssertionError("the rule passes")


def test_check_backend_takes_expected_failures(register: Any, only: Any) -> None:
    register(listing.HasNoEdges)
    only("test_each_replay_runs_the_work_once", *ABOUT_EDGES)
    known = dict.fromkeys(ABOUT_EDGES, "no edges yet")
    results = check_backend(HostWork(NAME), expected_failures=known)
    assert [result.name for result in results if result.outcome == "expected failure"] == list(known)
    with pytest.raises(ValueError, match="test_of_nothing"):
        check_backend(HostWork(NAME), expected_failures={"test_of_nothing": "?"})


@pytest.mark.parametrize(
    "code",
    [
        "import accelerator_graph.testing",
        "from accelerator_graph.__main__ import main; main(['conformance', 'cpu'])",
    ],
)
def test_kit_refuses_to_run_without_assertions(code: str) -> None:
    found = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"
    assert "run Python without -O." in execute([sys.executable, "-I", "-O", "-c", found]).stderr


def test_rules_about_other_capabilities_are_left_out() -> None:
    class OnCpu(BackendConformance):
        def work(self) -> Work:
            return HostWork("cpu")

    class WithoutHardware(OnCpu):
        def work(self) -> Work:
            raise SkipTest("there is no device")

    left_out = OnCpu.left_out()
    assert (
        left_out["test_handle_stands_for_the_stream"]
        == "backend 'cpu' does not have the capability 'handles'"
    )
    assert (
        left_out["test_events_without_the_capability_are_unsupported"]
        == "backend 'cpu' has the capability 'events'"
    )
    assert left_out["test_default_stream_can_not_be_captured"] == "backend 'cpu' has no default stream"
    assert "test_each_replay_runs_the_work_once" not in left_out
    assert WithoutHardware.left_out() == {}


def test_leak_of_the_example_of_a_plug_in_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with tape():
        from accelerator_graph_tape_testing import TapeWork

        class OfTheTape(BackendConformance):
            def work(self) -> Work:
                return TapeWork("tape_in_the_kit")

        rule = "test_captures_and_replays_leave_nothing_alive"
        run(rule, OfTheTape)
        kept: list[object] = []
        kind = type(ag.backends.get("tape_in_the_kit"))
        monkeypatch.setattr(kind, "destroy_graph", lambda self, graph: kept.append(graph))
        with pytest.raises(
            AssertionError, match=r"so many more are alive: \{'accelerator_graph_tape.Entry': \d"
        ):
            run(rule, OfTheTape)


def test_classes_of_one_name_are_counted_apart() -> None:
    counts = []
    for module in ("one.part", "two"):
        kind = type("Thing", (), {"__module__": module})
        counts += [(f"{module}.Thing", [kind() for _ in range(len(counts) + 2)])]
    found = live_instances("one", "two")
    assert found == {name: len(alive) for name, alive in counts}
    assert live_instances("on") == {}
