"""benchmarks/run.py measures every section where there is no GPU, and plot.py draws what it wrote."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from processes import execute
from simulators.amd.runtime import command as on_amd
from simulators.amd.runtime import environment as amd_environment
from simulators.cuda.build import environment

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
EVERY = {
    "cuda": {
        *("replay", "replay_pure_python", "capture", "torch", "inspect", "graphed", "growth", "diagnose"),
        *("threads", "memory", "import", "first", "serving", "update"),
    },
    "hip": {"replay", "replay_pure_python", "diagnose", "threads", "import"},
    "cpu": {"cpu", "import"},
}
MAY_BE_EMPTY = {"torch", "graphed", "serving", "replay_pure_python"}  # they want torch, and the C extension


@pytest.fixture(scope="module")
def driver(software_driver: Path) -> dict[str, str]:
    """The environment with the software driver."""
    return environment(software_driver)


@pytest.fixture(scope="module")
def measured(driver: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the results of a run on the software driver."""
    folder = tmp_path_factory.mktemp("results")
    done = run(driver, "--backend", "cuda", "--rounds", "3", "--out", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run(
    env: dict[str, str], *arguments: str, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    return execute(
        [python, str(BENCHMARKS / "run.py"), "--quick", *arguments], cwd=ROOT, env=env, timeout=600
    )


def checked(folder: Path, backend: str) -> dict[str, Any]:
    """Return the results, of which every section has to be whole."""
    results: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert set(results["sections"]) == EVERY[backend]
    for name, section in results["sections"].items():
        assert section["error"] == "", name
        assert section["rows"] or name in MAY_BE_EMPTY, name
        for row in section["rows"]:
            check(row)
    return results


def check(row: dict[str, Any]) -> None:
    low, high = row["range"]
    assert low <= row["median"] <= high, row
    is_difference = "memory" in row["case"] or "beyond" in row["case"]
    assert is_difference or low > 0, row
    assert row["rounds"] >= 1
    if "ratio" in row:
        low, high = row["quartiles"]
        assert 0 < low <= row["ratio"] <= high < math.inf, row
        assert row["variant"] != row["reference"] or row["ratio"] == 1, row


@pytest.mark.needs("rest")
def test_every_section_is_measured_on_the_software_driver(measured: Path) -> None:
    results = checked(measured, "cuda")
    replay = results["sections"]["replay"]["rows"]
    assert {row["n"] for row in replay} == {1, 10, 100, 1000}
    assert {row["case"] for row in replay} == {"burst", "launch and synchronise"}
    variants = {row["variant"] for row in replay}
    assert {"C loop", "accelerator_graph: bind()", "accelerator_graph: replay()"} <= variants
    assert results["commit"]
    assert results["machine"]["cores"] == os.cpu_count()
    assert {goal["reached"] for section in results["sections"].values() for goal in section["goals"]}


@pytest.mark.needs("rest")
def test_the_report_has_every_table(measured: Path) -> None:
    report = (measured / "report.md").read_text(encoding="utf-8")
    results = json.loads((measured / "results.json").read_text(encoding="utf-8"))
    for section in results["sections"].values():
        for row in section["rows"]:
            assert f"**{row['case']}**" in report
            assert f"| {row['variant']} |" in report
    widths = {line.count("|") for line in report.splitlines() if line.startswith("| --- |")}
    assert all(line.count("|") in widths for line in report.splitlines() if line.startswith("|"))


@pytest.mark.needs("rest")
def test_the_results_are_drawn(measured: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = execute(
        [sys.executable, str(BENCHMARKS / "plot.py"), str(measured / "results.json"), "--out", str(tmp_path)],
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"replay.svg", "growth.svg", "threads.svg"}
    for path in tmp_path.iterdir():
        root = ET.parse(path).getroot()
        assert root.tag.endswith("svg")
        assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 20


def test_the_cpu_backend(tmp_path: Path) -> None:
    done = run(
        {**os.environ, "PYTHONPATH": str(ROOT)}, "--backend", "cpu", "--rounds", "3", "--out", str(tmp_path)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    checked(tmp_path, "cpu")


@pytest.mark.needs("rest")
def test_amd_runtime(amd_runtime: Callable[[str], Path], tmp_path: Path) -> None:
    folder = amd_runtime("7.2")
    (python,) = on_amd(folder)
    done = run(
        amd_environment(folder), "--backend", "hip", "--rounds", "1", "--out", str(tmp_path), python=python
    )
    assert done.returncode == 0, done.stdout + done.stderr
    checked(tmp_path, "hip")


@pytest.mark.needs("rest")
def test_a_section_that_fails_is_written_down_and_the_others_are_measured(
    driver: dict[str, str], tmp_path: Path
) -> None:
    only = ("--only", "replay", "capture", "--rounds", "3")
    done = run({**driver, "CC": "no-such-compiler"}, "--backend", "cuda", *only, "--out", str(tmp_path))
    assert done.returncode == 1
    sections = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["sections"]
    assert "there is no C compiler 'no-such-compiler'" in sections["replay"]["error"]
    assert sections["capture"]["error"] == ""
    assert sections["capture"]["rows"]
    assert "there is no C compiler 'no-such-compiler'" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_no_section_begins_when_the_time_is_up(tmp_path: Path) -> None:
    done = run(
        {**os.environ, "PYTHONPATH": str(ROOT)}, "--backend", "cpu", "--limit", "1", "--out", str(tmp_path)
    )
    assert done.returncode == 1
    sections = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["sections"]
    assert {section["error"] for section in sections.values()} == {"not begun: the time is up."}


def test_ratios_are_of_the_same_round_and_a_variant_that_fails_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from _measure import Plan, above

    def taking(nanoseconds: int) -> Callable[[int], int]:
        """Return a variant that the machine slows down, from round to round."""
        slowness = iter((1, 1, 3, 9))
        return lambda calls: nanoseconds * next(slowness) * calls

    def broken(calls: int) -> int:
        raise RuntimeError("it is not there\nmore")

    plan = Plan("cuda", most=1)
    variants = {"base": taking(100), "twice": taking(200), "broken": broken}
    times = plan.compare("case", 1, variants, "base", calls=5, seconds=0)
    rows = {row["variant"]: row for row in plan.rows}
    assert set(rows) == {"base", "twice"}
    assert plan.skipped == {"broken": "RuntimeError: it is not there"}
    assert rows["base"]["ratio"] == 1
    assert rows["base"]["rounds"] == 3
    assert rows["base"]["median"] == 300
    assert rows["twice"]["ratio"] == 2
    assert rows["twice"]["quartiles"] == [2, 2]
    over = above(times, "twice", "base", "base")
    assert over == [1, 1, 1]
    plan.goal("above", over, 0.5)
    plan.goal("above", over, 0.5, least=True)
    assert [goal["reached"] for goal in plan.goals] == [False, True]
    with pytest.raises(RuntimeError, match="it is not there"):
        plan.compare("case", 1, {"base": taking(100), "broken": broken}, "broken")
