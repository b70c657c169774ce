"""The comparison of three processes' graphs over a communicator of mpi4py."""

import json
import sys
from pathlib import Path

import pytest

import lanes
from processes import execute

pytestmark = lanes.require("mpi")

SIZE = 3


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    done = execute(
        [lanes.mpiexec(), "-n", str(SIZE), sys.executable, "-m", "diagnosis.mpi_program", folder],
        cwd=Path(__file__).resolve().parents[1],
        timeout=120,
        merged=True,
    )
    assert done.returncode == 0, done.stdout
    return [json.loads((folder / f"results-{rank}.json").read_text()) for rank in range(SIZE)]


def test_right_programs_are_not_accused(results):
    for rank, each in enumerate(results):
        assert each["equal"]["error"] == ""
        assert each["equal"]["report"]["rank"] == rank


@pytest.mark.promise("all-ranks-get-the-error")
def test_every_rank_is_told_the_difference(results):
    for each in results:
        assert each["swapped"]["report"]["differences"] == results[0]["swapped"]["report"]["differences"]
        assert "they are in another order" in each["swapped"]["error"]
        assert "rank 2 has no graph: its capture failed with CaptureError" in each["failed"]["error"]


def test_a_rank_that_does_not_call_is_named(results):
    for rank in (0, 2):
        assert "rank 1 has not called check_ranks within 2 s" in results[rank]["late"]["error"]


def test_ranks_that_are_out_of_step_do_not_agree(results):
    """Rank 1 has called once less than the others, and takes their answers of before for those of now."""
    for each in results:
        assert each["after"]["error"] != ""
