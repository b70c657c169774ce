"""The suite of faults finds bugs of the HIP backend, too, on AMD's runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

import faults.wrapper
from faults.on_a_copy import Copy
from faults.planted_cuda import Bug
from faults.planted_hip import BUGS
from simulators.amd.runtime import command, environment

VERSION = "7.2"


@pytest.fixture
def copy(amd_runtime, tmp_path: Path) -> Copy:
    amd_runtime(VERSION)
    runtime = faults.wrapper.build(VERSION)
    env = environment(runtime, FAULTS_BACKEND="hip", SOFTWARE_HSA_DEVICES="2")
    return Copy(tmp_path, command(runtime), env)


@pytest.mark.parametrize("module", sorted({bug.part[0] for bug in BUGS}))
def test_without_a_bug_nothing_is_found(copy: Copy, module: str) -> None:
    tests = " or ".join(sorted({f"({bug.part[2]})" for bug in BUGS if bug.part[0] == module}))
    ended, said = copy.run(module, "-k", tests)
    assert ended == 0, said


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_it_is_found(copy: Copy, bug: Bug) -> None:
    copy.find(bug)
