"""The conformance kit itself: it finds bugs, and it is strict."""

from __future__ import annotations

import gc
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from inspect import isfunction
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership, states
from accelerator_graph.backends.base import Backend
from accelerator_graph.testing import BackendConformance, CheckResult, Work, check_backend
from accelerator_graph.testing._case import Case
from accelerator_graph.testing.rules import ALL
from accelerator_graph.testing.rules.state import ERROR, STATES, TABLE
from accelerator_graph.testing.works.host import HostWork
from kit import planted, planted_works
from processes import execute

ROOT = Path(__file__).resolve().parents[2]
NAME = "planted"


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def register(backend: type[Backend]) -> None:
        ag.backends.register(NAME, backend)

    # what a planted bug leaves behind is destroyed here, and complained of nowhere
    monkeypatch.setattr(threading, "excepthook", lambda error: None)
    yield register
    ag.backends.unregister(NAME)
    gc.collect()
    monkeypatch.setattr(sys, "excepthook", lambda *error: None)
    ownership.drain()


class Conformance(BackendConformance):
    def work(self) -> Work:
        return HostWork(NAME)


def run(test: str, case: type[BackendConformance] = Conformance) -> None:
    getattr(case(), test)()


FOUND_BY = [
    (planted.ReplaysTwice, "test_each_replay_runs_the_work_once"),
    (planted.ForgetsThatACaptureIsBroken, "test_swallowed_illegal_call_is_a_capture_error_at_the_end"),
    (planted.ForgetsThatACaptureIsBroken, "test_swallowed_illegal_call_is_a_capture_error_by_hand"),
    (planted.RunsWhileCapturing, "test_capturing_does_not_run_the_work"),
    (planted.NeverAbandons, "test_exception_in_the_body_passes_unchanged"),
    (planted.NeverAbandons, "test_reset_abandons_a_capture"),
    (planted.NeverAbandons, "test_capture_abandon_ends_the_capture"),
    (planted.NeverAbandons, "test_capture_of_a_thread_that_ended_is_abandoned"),
    (planted.AbandonsTheNextCapture, "test_capture_abandon_twice_is_harmless"),
    (planted.BeginsBeforeItNotes, "test_interrupted_capture_begin_leaves_no_capture"),
    (planted.NotesTheEndBeforeItEnds, "test_interrupted_capture_end_leaves_no_capture"),
    (planted.DestroysOnce, "test_interrupted_destroy_can_be_called_again"),
    (planted.SaysThatItSerialises, "test_replays_of_two_threads_on_two_streams_are_not_lost"),
    (planted.ForgetsRunsOfOtherThreads, "test_replays_of_two_threads_on_two_streams_are_not_lost"),
    (planted.FillIgnoresCaptures, "test_fill_and_copy_are_recorded"),
    (planted.FillChecksTooLate, "test_wrong_memory_is_refused_before_anything_is_enqueued"),
    (planted.FillChecksTooLate, "test_wrong_memory_does_not_hurt_a_capture"),
    (planted.LinksAStreamOnce, "test_forks_may_wait_for_each_other"),
    (planted.LinksAStreamOnce, "test_pipeline_over_two_forks"),
    (planted.LinksAStreamOnce, "test_fork_of_a_fork_is_joined_to_its_fork"),
    (planted.LinksAStreamOnce, "test_random_forks_and_joins_keep_their_order"),
    (planted.ReplaysAtOnceInACapture, "test_replay_onto_a_stream_that_somebody_else_captures"),
    (planted.DoesNotWait, "test_stream_runs_work_and_synchronize_waits"),
    (planted.RunsOverlap, "test_runs_on_two_streams_take_turns"),
    (planted.RunsOverlap, "test_runs_of_a_graph_are_in_call_order"),
    (planted.RunsOverlap, "test_bound_callables_take_turns"),
    (planted.ReplaysOnAStreamOfItsOwn, "test_replay_on_another_stream"),
    (planted.BindsToAStreamOfItsOwn, "test_replay_is_behind_the_streams_work"),
    (planted.BindsToAStreamOfItsOwn, "test_bound_callable_replays"),
    (planted.DestroysRunsUnderWay, "test_runs_complete_after_their_executable_was_destroyed"),
    (planted.DestroysRunsUnderWay, "test_runs_complete_after_their_graph_has_gone"),
    (planted.DestroyRaises, "test_capturing_does_not_run_the_work"),
    (planted.EventsEndTheirWaiting, "test_destroyed_event_is_still_waited_for"),
    (planted.ExecutableNeedsItsGraph, "test_executable_outlives_its_graph"),
    (planted.ExecutableNeedsItsGraph, "test_each_replay_runs_the_work_once"),
    (planted.AcceptsUnjoinedWork, "test_unjoined_fork_is_a_capture_error"),
    (planted.DoesNotLinkStreams, "test_fork_and_join_keeps_the_order"),
    (planted.DoesNotLinkStreams, "test_nodes_of_a_fork_and_join"),
    (planted.IgnoresEventsFromOutside, "test_wait_for_an_event_from_before_the_capture_is_refused"),
    (
        planted.IgnoresEventsFromOutside,
        "test_wait_for_an_event_of_its_own_from_before_the_capture_is_refused",
    ),
    (planted.IgnoresEventsFromOutside, "test_wait_for_a_stream_outside_the_capture_is_refused"),
    (planted.IgnoresEventsFromOutside, "test_forked_stream_can_not_wait_for_a_stream_outside"),
    (planted.WaitsForTheOutsideAtOnce, "test_wait_for_a_stream_outside_the_capture_is_refused"),
    (planted.AcceptsEventsOfEndedCaptures, "test_wait_for_an_event_of_an_ended_capture_is_refused"),
    (planted.IgnoresEventsOfOtherCaptures, "test_wait_for_an_event_of_another_capture_is_refused"),
    (planted.ForgetsWhatAWaitHasBroken, "test_wait_for_an_event_from_before_the_capture_is_refused"),
    (planted.ForgetsThatACaptureIsBroken, "test_capture_is_a_graph_only_if_it_is_active"),
    (planted.ErrorsHaveNoReason, "test_capture_is_a_graph_only_if_it_is_active"),
    (planted.WaitDoesNothing, "test_wait_orders_streams"),
    (planted.WaitDoesNothing, "test_entering_waits_for_the_current_stream"),
    (planted.RelaxesNothing, "test_preparing_a_capture_disturbs_no_other"),
    (planted.OneCaptureInfoForAll, "test_capture_info_tells_captures_apart"),
    (planted.ContextsChange, "test_context_id_is_shared_by_streams_that_are_alike"),
    (planted.OneExecutableSecretly, "test_executables_of_one_graph_live_side_by_side_or_one_after_another"),
    (planted.DestroyingAnEventBreaksCaptures, "test_destroying_disturbs_no_capture"),
    (planted.ReplaysBesideCaptures, "test_replay_ignores_captures_only_where_it_says_so"),
    (planted.NamesNoModules, "test_stream_modules_have_the_runtimes_own_streams"),
    (planted.OneThreadKnowsTheStatus, "test_capture_status_is_the_same_on_every_thread"),
    (planted.UploadsInSilence, "test_methods_without_their_capability_are_unsupported"),
    (planted.RelaxedOnce, "test_relaxed_contexts_end_as_they_began"),
    (
        planted.SaysItSurvivesAFork,
        "test_child_of_a_process_that_has_opened_the_backend_can_use_it_or_is_told",
    ),
    (planted.CountsWrongly, "test_num_nodes_counts_what_was_captured"),
    (planted.CountsWrongly, "test_empty_capture_warns"),
    (planted.CountsWrongly, "test_nodes_of_a_line"),
    (planted.HasNoEdges, "test_nodes_of_a_line"),
    (planted.HasNoEdges, "test_nodes_of_a_fork_and_join"),
    (planted.SwapsNodes, "test_replays_equal_the_eager_work"),
    (planted.DestroyBreaksCaptures, "test_graphs_collected_during_a_capture_leave_it_valid"),
    (planted.DestroyBreaksCaptures, "test_resetting_another_graph_during_a_capture_leaves_it_valid"),
    (planted.InstantiateBreaksCaptures, "test_captures_nest_on_different_streams"),
    (planted.NeverCapturing, "test_capturing_stream_can_not_be_closed"),
    (planted.NeverCapturing, "test_capture_status_follows_the_capture"),
    (planted.NeverBroken, "test_capture_is_a_graph_only_if_it_is_active"),
    (planted.DumpsNothing, "test_debug_dump_writes_a_dot_file"),
    (planted.OneExecutablePerGraph, "test_a_kept_graph_can_be_instantiated_again"),
    (planted.OneExecutablePerGraph, "test_bound_callable_goes_on_with_a_new_executable"),
    (planted.PrioritiesOutOfRange, "test_priorities_are_clamped"),
    (planted.ProbeRaises, "test_probe_says_that_the_backend_is_usable"),
    (planted.ProbeInitialises, "test_child_of_a_process_that_has_probed_can_use_the_backend"),
    (planted.ClaimsHandles, "test_handle_stands_for_the_stream"),
    (planted.ClaimsHandles, "test_state_raw_graph_when_captured"),
    (planted.ClaimsNonsense, "test_capabilities_are_known_ones"),
    (planted.CapturesEveryStream, "test_work_of_another_thread_is_not_captured_on_another_stream"),
    (planted.ChildGraphsRunAtOnce, "test_replay_onto_a_capturing_stream"),
    (planted.IsNeverEmpty, "test_is_empty_says_whether_anything_was_recorded"),
    (planted.IsAlwaysEmpty, "test_is_empty_says_whether_anything_was_recorded"),
    (planted.ChildGraphsNeedTheirExecutable, "test_recorded_replay_outlives_its_graph"),
    (planted.DropsStreamsWithWork, "test_closing_lets_work_complete"),
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of the bug
@pytest.mark.parametrize(("backend", "test"), FOUND_BY, ids=lambda each: getattr(each, "__name__", each))
def test_bug_is_found(backend: type[Backend], test: str, register: Any) -> None:
    class Quick(Conformance):
        time_limit = 10.0

    register(backend)
    with pytest.raises(Exception) as caught:  # noqa: PT011 (a kit that says why is tested below)
        run(test, Quick)
    assert not isinstance(caught.value, SkipTest)


def test_the_same_tests_pass_without_a_bug(register: Any) -> None:
    register(planted.Whole)
    for test in {test for _, test in FOUND_BY} - {"test_handle_stands_for_the_stream"}:
        run(test)


@pytest.mark.parametrize(
    ("work", "test"),
    [
        (planted_works.NotSlow, "test_work_that_is_slow_takes_a_millisecond"),
        (planted_works.SlowBeforeItReads, "test_work_that_is_slow_takes_a_millisecond"),
        (planted_works.SlowDoesOtherWork, "test_work_computes_what_it_says"),
        (planted_works.ReadWaits, "test_work_read_waits_for_nothing"),
        (planted_works.OneCell, "test_work_new_cells_hold_zero"),
        (planted_works.UsedCells, "test_work_new_cells_hold_zero"),
        (planted_works.ForgetsTheValue, "test_work_computes_what_it_says"),
        (planted_works.OneBuffer, "test_work_buffers_hold_zeros"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_work_that_is_not_what_it_says_is_found(work: type[HostWork], test: str) -> None:
    class Conformance(BackendConformance):
        def work(self) -> Work:
            return work("cpu")

    with pytest.raises(AssertionError):
        run(test, Conformance)


def test_streams_on_the_wrong_device_are_found(register: Any) -> None:
    class OnTwoDevices(Conformance):
        def work(self) -> Work:
            return planted_works.WorkOfADevice(NAME)

    register(planted.EveryStreamOnDeviceZero)
    with pytest.raises(AssertionError, match="device 1"):
        run("test_work_runs_on_the_device_of_its_stream", OnTwoDevices)
    with pytest.raises(SkipTest, match="override Work"):
        run("test_work_runs_on_the_device_of_its_stream")
    ag.backends.register(NAME, planted.TwoDevices, replace=True)
    for result in check_backend(planted_works.WorkOfADevice(NAME)):
        assert "device" not in result.name or result.outcome == "passed"


def test_declared_disturbance_is_no_bug(register: Any) -> None:
    register(planted.DestroyBreaksCapturesAndSaysSo)
    run("test_graphs_collected_during_a_capture_leave_it_valid")
    run("test_resetting_another_graph_during_a_capture_leaves_it_valid")


@pytest.mark.parametrize(
    ("call", "state"),
    [
        (call, state)
        for call, row in TABLE.items()
        for state, outcome in zip(STATES, row, strict=True)
        # these calls are refused a second time, further in
        if outcome == ERROR and call not in ("instantiate", "debug_dump", "raw_graph")
    ],
)
def test_every_cell_of_the_state_table_can_fail(
    call: str, state: str, register: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(planted.Whole)
    key = call if call in states.REFUSED else f"{call}()"
    assert states.REFUSED[key]
    monkeypatch.setitem(states.REFUSED, key, {})
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run(f"test_state_{call}_when_{state.replace(' ', '_')}")
    assert not isinstance(caught.value, SkipTest)


# ---- the kit around the rules --------------------------------------------------------------------


def test_failure_shows_the_sentence_of_the_rule(register: Any) -> None:
    register(planted.ReplaysTwice)
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

    register(planted.Hangs)
    with pytest.raises(
        AssertionError, match=r"still running after 0.3 s(.|\n)*planted, line \d+, in Hangs.synchronize"
    ):
        run("test_each_replay_runs_the_work_once", Impatient)


def test_test_that_leaves_a_capture_fails(register: Any) -> None:
    class Sloppy(Conformance):
        def test_that_leaves_a_capture(self) -> None:
            self.left = self.graph(self.stream())
            self.left.capture_begin()

        def test_that_leaves_a_stream_current(self) -> None:
            self.stream().__enter__()

    register(planted.Whole)
    with pytest.raises(AssertionError, match="left capturing"):
        run("test_that_leaves_a_capture", Sloppy)
    with pytest.raises(AssertionError, match="the current stream is"):
        run("test_that_leaves_a_stream_current", Sloppy)


def test_interrupt_out_of_a_test_is_a_failure_and_no_interrupt(register: Any) -> None:
    class Rude(Conformance):
        def test_that_is_rude(self) -> None:
            raise KeyboardInterrupt

    register(planted.Whole)
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        run("test_that_is_rude", Rude)


def test_expected_failure_is_a_skip_with_its_reason(register: Any) -> None:
    class Known(Conformance):
        expected_failures = {"test_each_replay_runs_the_work_once": "replays run twice"}  # noqa: RUF012

    register(planted.ReplaysTwice)
    with pytest.raises(SkipTest, match="replays run twice") as caught:
        run("test_each_replay_runs_the_work_once", Known)
    assert isinstance(caught.value.__cause__, AssertionError)


def test_expected_failure_that_passes_is_a_failure(register: Any) -> None:
    class Wrong(Conformance):
        expected_failures = {"test_each_replay_runs_the_work_once": "replays run twice"}  # noqa: RUF012

    register(planted.Whole)
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

    register(planted.Whole)
    run("test_each_replay_runs_the_work_once", Mended)


def test_rule_can_be_replaced_or_removed(register: Any) -> None:
    class Own(Conformance):
        ran = 0
        test_large_capture_is_whole = None

        def test_each_replay_runs_the_work_once(self) -> None:
            assert threading.current_thread() is not threading.main_thread()
            type(self).ran += 1

    register(planted.ReplaysTwice)
    run("test_each_replay_runs_the_work_once", Own)
    assert Own.ran == 1
    assert Own.test_large_capture_is_whole is None


def test_capability_that_is_missing_is_named(register: Any) -> None:
    register(planted.NothingButTheCore)
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


def test_check_backend_returns_how_each_rule_came_out(register: Any) -> None:
    register(planted.Whole)
    results = check_backend(HostWork(NAME))
    assert len(results) == len({result.name for result in results}) > 200
    assert CheckResult("test_each_replay_runs_the_work_once", "passed") in results
    outcomes = {result.name: result for result in results}
    skipped = outcomes["test_handle_stands_for_the_stream"]
    assert skipped.outcome == "skipped"
    assert "'handles'" in skipped.reason


ABOUT_EDGES = [
    "test_debug_dump_draws_every_dependency",
    "test_nodes_after_an_event",
    "test_nodes_of_a_fork_and_join",
    "test_nodes_of_a_line",
    "test_nodes_of_streams_that_take_turns",
]


def test_check_backend_raises_all_failures(register: Any) -> None:
    register(planted.HasNoEdges)
    with pytest.raises(ExceptionGroup, match="'planted' breaks 5 of the rules") as caught:
        check_backend(HostWork(NAME))
    assert [error.__notes__ for error in caught.value.exceptions] == [
        [f"The rule {name}: {getattr(BackendConformance, name).__doc__}"] for name in ABOUT_EDGES
    ]


def test_check_backend_takes_expected_failures(register: Any) -> None:
    register(planted.HasNoEdges)
    known = dict.fromkeys(ABOUT_EDGES, "no edges yet")
    results = check_backend(HostWork(NAME), expected_failures=known)
    assert [result.name for result in results if result.outcome == "expected failure"] == list(known)
    with pytest.raises(ValueError, match="test_of_nothing"):
        check_backend(HostWork(NAME), expected_failures={"test_of_nothing": "?"})


WITHOUT_PYTEST = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
class NoPytest:
    def find_spec(name, path, target=None):
        assert "pytest" not in name, name
sys.meta_path.insert(0, NoPytest)
from accelerator_graph.testing import check_backend
from accelerator_graph.testing.works.host import HostWork
print(sum(result.outcome == "passed" for result in check_backend(HostWork("cpu"))))
"""


def test_check_backend_needs_no_pytest() -> None:
    done = execute([sys.executable, "-I", "-W", "error", "-c", WITHOUT_PYTEST], timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200


def test_kit_refuses_to_run_without_assertions() -> None:
    done = execute([sys.executable, "-I", "-O", "-c", WITHOUT_PYTEST])
    assert done.returncode
    assert "without -O" in done.stderr


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
    assert "test_each_replay_runs_the_work_once" not in left_out
    assert WithoutHardware.left_out() == {}
