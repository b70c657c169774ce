"""Collectives of torch.distributed, and the comparison of three processes' graphs over gloo."""

import re
from pathlib import Path

import pytest

from processes import results_of_ranks
from torch_cpu.forks import popen

pytestmark = pytest.mark.needs("torch")

SIZE = 3
WORLD = "group '1' of ranks 0 to 2: "
WRONG = {
    "swapped": (
        f"{WORLD}collective 1 is broadcast of 8 float32 with root 0 (AT) on ranks 0 and 1 and all_reduce of "
        "8 float32 (AT) on rank 2; they are in another order"
    ),
    "another_type": (
        f"{WORLD}collective 1 is all_reduce of 8 float32 (AT) on ranks 0 and 2 and all_reduce of 8 float16 "
        "(AT) on rank 1"
    ),
    "another_count": (
        f"{WORLD}collective 1 is all_reduce of 8 float32 (AT) on ranks 0 and 2 and all_reduce of 4 float32 "
        "(AT) on rank 1"
    ),
    "missing": (
        f"{WORLD}ranks 1 and 2 ask for 1 collective and rank 0 for none; number 1 is all_reduce of 8 "
        "float32 (AT)"
    ),
}
RIGHT = {"equal": [2, 2, 2], "training": [1, 1, 1], "tensor_parallel": [2, 2, 1], "pipeline": [1, 2, 1]}
"""How many collectives each rank's graph has."""
KINDS = {
    "all_reduce": ("all_reduce", 8, None),
    "asynchronous": ("all_reduce", 8, None),
    "method": ("all_reduce", 8, None),
    "functional": ("all_reduce", 8, None),
    "compiled": ("all_reduce", 8, None),
    "coalesced": ("all_reduce", 16, None),
    "broadcast": ("broadcast", 8, 0),
    "reduce": ("reduce", 8, 0),
    "all_gather": ("all_gather", 8, None),
    "all_gather_into_tensor": ("all_gather", 8, None),
    "functional all_gather": ("all_gather", 8, None),
    "reduce_scatter": ("reduce_scatter", 8, None),
    "reduce_scatter_tensor": ("reduce_scatter", 8, None),
    "gather": ("gather", 8, 0),
    "scatter": ("scatter", 8, 0),
    "all_to_all": ("all_to_all", 8, None),
    "all_to_all_single": ("all_to_all", 8, None),
    "uneven": ("all_to_all", None, None),
    "send": ("send", 8, 0),
    "recv": ("recv", 8, 0),
    "barrier": ("barrier", 0, None),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each rank has found, by scenario."""
    folder = tmp_path_factory.mktemp("ranks")
    return results_of_ranks("torch_cpu.rank_program", SIZE, folder, timeout=240, start=popen())


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_are_not_accused(results, name):
    for rank, each in enumerate(results):
        assert each[name]["error"] == ""
        report = each[name]["report"]
        assert report["rank"] == rank
        assert [len(record["collectives"]) for record in report["records"]] == RIGHT[name]


@pytest.mark.parametrize("name", WRONG)
def test_every_rank_is_told_the_difference(results, name):
    for each in results:
        [said] = each[name]["report"]["differences"]
        assert re.sub(r"rank_program\.py:\d+", "AT", said) == WRONG[name]


def test_every_rank_learns_of_a_capture_that_failed(results):
    for each in results:
        [said] = each["failed"]["report"]["differences"]
        assert said.startswith("rank 2 has no graph: its capture failed with CaptureError: ")


def test_ranks_of_a_subgroup_are_counted_in_the_whole_program(results):
    for rank in (1, 2):
        report = results[rank]["subgroup"]["report"]
        assert report["rank"] == rank
        assert "(rank_program.py" in report["differences"][0]
        assert report["differences"][0].endswith(" on rank 2")
        assert report["notes"] == ["not asked: rank 0, in a group with the others"]


def test_the_line_is_the_users(results):
    [collective] = results[0]["another_type"]["report"]["records"][0]["collectives"]
    line = Path(collective["file"]).read_text(encoding="utf-8").splitlines()[collective["line"] - 1]
    assert "dist.all_reduce(x.half()" in line


@pytest.mark.parametrize("way", KINDS)
def test_every_way_to_ask_for_a_collective_is_seen(results, way):
    kind, elements, peer = KINDS[way]
    ranks = [0, 1, 2] if way == "uneven" else [0]
    dtype = "" if way == "barrier" else "float32"
    assert results[0]["kinds"][way] == [[kind, ranks, dtype, elements, peer]]


def test_no_way_is_left_out(results):
    assert {*results[0]["kinds"]} == {*KINDS}


def test_every_rank_says_where_each_rank_is(results):
    for rank, each in enumerate(results):
        assert each["watched"].splitlines()[:4] == [
            f"watchdog: rank {rank} is still waiting after 1 s",
            "  rank 0: the last run has ended",
            "  rank 1: in 'layer 1'",
            "  rank 2: the last run has ended",
        ]
        assert "in watched" in each["watched"]
