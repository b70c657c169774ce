"""The suite of faults finds bugs: each is planted in a copy of the library, and found for what it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from faults.on_a_copy import Copy
from faults.planted_cuda import BUGS, Bug
from simulators.cuda.build import environment


@pytest.fixture
def copy(software_driver: Path, tmp_path: Path) -> Copy:
    return Copy(tmp_path, [sys.executable], environment(software_driver))


@pytest.mark.parametrize("part", sorted({bug.part for bug in BUGS}), ids=" ".join)
def test_without_a_bug_nothing_is_found(copy: Copy, part: tuple[str, ...]) -> None:
    ended, said = copy.run(*part)
    assert ended == 0, said


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_is_found(copy: Copy, bug: Bug) -> None:
    copy.find(bug)
