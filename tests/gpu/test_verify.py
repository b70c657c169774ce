"""The record of a run on a GPU, written part by part."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gpu.parts import PARTS as ALL
from gpu.parts import TESTS, Part
from gpu.verify import gains, read, write

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


def test_every_test_of_the_diagnosis_is_in_one_part() -> None:
    named = Counter(word for part in ALL["cuda"].values() for word in part.command.split())
    for path in (TESTS / "diagnosis").glob("test_*.py"):
        name = f"tests/diagnosis/{path.name}"
        assert named[name] == named[f"--ignore={name}"] <= 1
    assert named["tests/diagnosis"] == 1


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
