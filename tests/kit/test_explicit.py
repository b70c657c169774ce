"""The conformance kit finds what the author of a plug-in for a runtime unlike CUDA may get wrong."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import SkipTest

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership
from accelerator_graph.testing import BackendConformance, Work, check_backend
from accelerator_graph.testing.works.host import HostWork
from kit import planted_explicit as planted
from kit.explicit_runtime import Explicit

NAME = "explicit"

FOUND_BY = [
    (planted.RunsWhenAskedFor, "test_replay_is_behind_the_streams_work"),
    (planted.LatestRunWins, "test_asking_for_a_run_while_one_runs_is_no_error"),
    (planted.NeedsTheStreams, "test_graph_outlives_the_streams_that_took_part"),
    (planted.SynchronizeMissesReplays, "test_asking_for_a_run_while_one_runs_is_no_error"),
    (planted.ReusesEvents, "test_event_is_not_moved_by_later_ones"),
    (planted.MovesEvents, "test_nodes_after_an_event"),
    (planted.EventsNeedAKnownThread, "test_every_call_works_on_a_thread_that_never_saw_the_device"),
    (planted.AlwaysAnotherCurrentStream, "test_current_stream_of_the_runtime_stays_the_same"),
    (planted.EventsAreUsedUp, "test_several_streams_wait_for_one_event"),
    (planted.EventsDieWithTheirStream, "test_event_outlives_its_stream"),
    (planted.EventsMissReplays, "test_event_marks_the_replays_before_it"),
    (planted.ReplaysDoNotWait, "test_replays_wait_for_events"),
    (planted.WaitsForItselfForEver, "test_stream_that_waits_for_itself_goes_on"),
    (planted.AbandonLeavesForks, "test_reset_after_a_fork_frees_all_streams"),
    (planted.AbandonTakesTheGraph, "test_capture_abandon_after_the_end_leaves_the_graph"),
    (planted.RefusesWithTheVendorsError, "test_capture_is_a_graph_only_if_it_is_active"),
    (planted.QueryRaisesForWorkInProgress, "test_query_says_whether_work_is_done"),
    (planted.MakesAGraphOfABrokenRecording, "test_capture_is_a_graph_only_if_it_is_active"),
    (planted.MakesAGraphOfABrokenRecording, "test_swallowed_illegal_call_is_a_capture_error_at_the_end"),
    (planted.EndThatRaisesEndsNothing, "test_capture_end_that_raises_leaves_no_capture"),
    (planted.OneJoinIsEnough, "test_capture_end_that_raises_leaves_no_capture"),
    (planted.EndRefusesWithoutAReason, "test_unjoined_fork_is_a_capture_error"),
    (planted.RecordsForOneThread, "test_work_of_another_thread_on_the_captured_stream_is_recorded"),
    (planted.RecordsWhatIsUnderWay, "test_work_under_way_when_a_capture_begins_is_not_recorded"),
    (planted.LastWaitWins, "test_branches_are_all_replayed"),
    (planted.SharesTheRecording, "test_several_graphs_of_one_stream_are_independent"),
    (planted.ClipsMemory, "test_wrong_memory_is_refused_before_anything_is_enqueued"),
    (planted.CountsStreams, "test_nodes_of_a_fork_and_join"),
    (planted.DumpsNoEdges, "test_debug_dump_draws_every_dependency"),
]


class Conformance(BackendConformance):
    time_limit = 3.0

    def work(self) -> Work:
        return HostWork(NAME)


@pytest.fixture(name="register")
def register_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[type[Explicit]], None]]:
    yield lambda backend: ag.backends.register(NAME, backend)
    ag.backends.unregister(NAME)
    monkeypatch.setattr(sys, "excepthook", lambda *error: None)  # what a bug leaves behind is destroyed here
    ownership.drain()


@pytest.mark.parametrize(("backend", "test"), FOUND_BY, ids=lambda each: getattr(each, "__name__", each))
def test_bug_is_found(backend: type[Explicit], test: str, register: Any) -> None:
    register(backend)
    rule = getattr(Conformance(), test)
    with pytest.raises(Exception) as caught:  # noqa: PT011 (a kit that says why is tested in test_kit)
        rule()
    assert not isinstance(caught.value, SkipTest)


def test_every_bug_is_in_the_table() -> None:
    bugs = {each for each in vars(planted).values() if inspect.isclass(each) and issubclass(each, Explicit)}
    assert bugs - {Explicit} == {bug for bug, _ in FOUND_BY}


def test_without_a_bug_nothing_is_found(register: Any) -> None:
    register(Explicit)
    skipped = [result.reason for result in check_backend(HostWork(NAME)) if result.outcome == "skipped"]
    assert [reason for reason in skipped if "capability" not in reason and NAME not in reason] == []
