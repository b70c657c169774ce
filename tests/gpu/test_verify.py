"""The record of a run on a GPU, written part by part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpu.parts import PARTS as ALL
from gpu.parts import TESTS, WITHOUT_A_GPU, Part
from gpu.verify import gains, read, write
from lanes import LANES

LINES = ["# Verified on a GPU", "", "- commit: 1"]
PARTS = {"a": Part("A", "..."), "b": Part("B (1)", "...")}
TITLES = [part.title for part in PARTS.values()]


def test_a_part_replaces_its_section_and_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "new" / "record.md"
    write(path, LINES, PARTS, {"B (1)": "## B (1)\n\nold\n\n## not a part\n"})
    assert "parts not run: a." in path.read_text(encoding="utf-8")
    found = read(path, LINES, TITLES)
    assert found == {"B (1)": "## B (1)\n\nold\n\n## not a part\n"}
    write(path, LINES, PARTS, found | {"A": "## A\n\nnew\n"})
    text = path.read_text(encoding="utf-8")
    assert text.splitlines()[: len(LINES)] == LINES
    assert text.index("## A\n\nnew") < text.index("## B (1)\n\nold")
    assert "parts not run: none." in text
    assert list(read(path, LINES, TITLES)) == TITLES


def reaching(path: Path, parts: Mapping[str, Part]) -> list[str]:
    """Return the parts whose pytest collects a module and leaves out none of its tests."""
    name = f"tests/{path.relative_to(TESTS).as_posix()}"
    found = []
    for key, part in parts.items():
        words = part.command.split()
        if part.title.startswith("Tests: ") and "-k" not in words:
            ignored = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
            named = [word for word in words if word.startswith("tests")]
            inside = [any(f"{name}/".startswith(f"{each}/") for each in some) for some in (named, ignored)]
            if inside == [True, False]:
                found.append(key)
    return found


@pytest.mark.parametrize(
    ("lane", "run"), [("gpu", ["cuda", "examples"]), ("gpus", ["gpus", "examples"]), ("hip_on_gpu", ["hip"])]
)
def test_every_module_of_the_lane_is_in_one_part(lane: str, run: list[str]) -> None:
    parts = {f"{name} {key}": part for name in run for key, part in ALL[name].items()}
    places = (TESTS / folder for folder in LANES[lane].folders)
    modules = [
        path for place in places for path in ([place] if place.is_file() else place.rglob("test_*.py"))
    ]
    modules = [path for path in modules if path.relative_to(TESTS).as_posix() not in WITHOUT_A_GPU]
    if lane == "gpus":  # only modules with such tests
        modules = [path for path in modules if re.search(r'(needs|require)\("gpus"', path.read_text("utf-8"))]
    if lane == "hip_on_gpu":  # this part leaves out the classes of other backends
        parts = {key: part._replace(command=part.command.partition(" -k ")[0]) for key, part in parts.items()}
    assert modules
    assert {path.name: reaching(path, parts) for path in modules if len(reaching(path, parts)) != 1} == {}


def test_a_record_of_another_commit_begins_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.md"
    assert read(path, LINES, TITLES) == {}
    assert capsys.readouterr().out == ""
    write(path, LINES, PARTS, {"A": "## A\n\nold\n"})
    assert read(path, [*LINES[:2], "- commit: 2"], TITLES) == {}
    assert "begins anew" in capsys.readouterr().out


def test_a_record_begins_with_what_its_examples_gained(tmp_path: Path) -> None:
    printed = "problem     small\neager       4.0 us per step\nas a graph  2.0 us per step\n"
    example = f"## A\n\n```\n{printed}gain        2.00 times as fast\nresults     equal, bit for bit\n```\n"
    row = "| A | 4.0 us per step | 2.0 us per step | 2.00 times as fast | equal, bit for bit |"
    path = tmp_path / "record.md"
    write(path, LINES, PARTS, {"A": example, "B (1)": "## B (1)\n\neager\n"})
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines.index(row) < lines.index("## A")
    assert read(path, LINES, TITLES)["A"].strip() == example.strip()
    assert gains(["## B (1)\n\neager\n"]) == []
