"""The suite of faults finds bugs: each is planted in a copy of the library, and found for what it is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from driver.build import ROOT, environment
from planted_bugs import BUGS, Bug

TIMEOUT = 60
PACKAGE = "accelerator_graph"
FAILED = 1
"""What pytest answers if tests fail: not if it is used wrongly, finds no test or can't collect them."""


def run(software_driver: Path, folder: Path, *part: str) -> tuple[int, str]:
    """Run a part of the suite on the copy of the library in a folder; return how it ended, and its words."""
    report = folder / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "faults", str(report), *part],
        cwd=folder,
        env=environment(
            software_driver, PYTHONPATH=f"{folder}:{ROOT / 'tests'}", PYTHONDONTWRITEBYTECODE="1"
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert report.exists(), done.stdout
    found = json.loads(report.read_text(encoding="utf-8"))
    assert found["library"] == str(folder / PACKAGE / "__init__.py")
    return done.returncode, done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of the library."""
    shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize("part", sorted({bug.part for bug in BUGS}), ids=" ".join)
def test_without_a_bug_nothing_is_found(software_driver: Path, copy: Path, part: tuple[str, ...]) -> None:
    ended, said = run(software_driver, copy, *part)
    assert ended == 0, said


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_is_found(software_driver: Path, copy: Path, bug: Bug) -> None:
    file = copy / PACKAGE / bug.file
    text = file.read_text(encoding="utf-8")
    assert text.count(bug.right) == 1, f"{bug.file} has changed: plant this bug anew"
    file.write_text(text.replace(bug.right, bug.wrong), encoding="utf-8")
    ended, said = run(software_driver, copy, *bug.part)
    assert ended == FAILED, said
    explained = re.sub("^E +", "", said, flags=re.MULTILINE)
    assert re.search(bug.says, explained), said
