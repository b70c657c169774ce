"""The graphs of two processes, each with a GPU, are compared before their replay; a hang is located."""

import re

import pytest

import lanes
from processes import results_of_ranks

pytestmark = lanes.require("gpus", "torch")

SIZE = 2
WORLD = "group '0' of ranks 0 and 1: "
WRONG = {
    "swapped": (
        f"{WORLD}collective 1 is all_reduce of 16 float32 (AT) on rank 0 and all_gather of 32 float32 (AT) "
        "on rank 1; they are in another order"
    ),
    "another_count": (
        f"{WORLD}collective 1 is all_reduce of 16 float32 (AT) on rank 0 and all_reduce of 8 float32 (AT) on "
        "rank 1"
    ),
    "missing": (
        f"{WORLD}rank 0 asks for 1 collective and rank 1 for none; number 1 is all_reduce of 16 float32 (AT)"
    ),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    found = results_of_ranks("gpu.rank_program", SIZE, folder, NCCL_NVLS_ENABLE="0")
    for name in ("swapped", "another_count", "missing", "failed", "unseen", "equal", "hang"):
        print(f"---- {name}\n{found[0][name]['text']}")  # for the record
    return found


@pytest.mark.parametrize("name", WRONG)
def test_both_ranks_are_told_the_difference(results, name):
    for each in results:
        [said] = each[name]["report"]["differences"]
        assert re.sub(r"rank_program\.py:\d+", "AT", said) == WRONG[name]


def test_both_ranks_learn_of_a_capture_that_failed(results):
    for each in results:
        [said] = each["failed"]["report"]["differences"]
        assert said.startswith("rank 1 has no graph: its capture failed with CaptureError: ")


def test_collectives_that_nobody_saw_are_not_called_equal(results):
    for each in results:
        assert each["unseen"]["report"]["agree"]
        [note] = each["unseen"]["report"]["notes"]
        assert note.startswith(
            "ranks 0 and 1: the graph has kernels of NCCL or RCCL, but no collective was seen"
        )


def test_equal_graphs_agree_and_replay_right(results):
    once = 2.0 * 1 + 2.0 * 2
    twice = 2 * (2 * once)
    for each in results:
        assert each["equal"]["error"] == ""
        assert each["equal"]["report"]["notes"] == []
        assert each["replays"] == [[twice] * 16, [twice] * 32]


def test_the_watchdogs_say_who_is_where(results):
    for each in results:
        assert each["hang"]["places"] == ["in 'reduce'", "the last run has ended"]
    assert "synchronize" in results[0]["hang"]["text"]
