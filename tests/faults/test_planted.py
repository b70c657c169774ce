"""The suite of faults finds bugs that are planted in the library, each for what it is."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import faults.wrapper
from faults.planted import BUGS, Bug
from processes import execute
from simulators.amd import runtime as amd
from simulators.compiling import ROOT
from simulators.cuda.build import environment as cuda_environment

TIMEOUT = 240
FAILED = 1
"""What pytest answers if tests fail: not if it is used wrongly, finds no test or can't collect them."""
VERSION = "7.2"
BACKENDS = ("cuda", "hip")


def bugs(backend: str) -> dict[str, Bug]:
    return {name: bug for name, bug in BUGS.items() if bug.backend in ("", backend)}


def parts(backend: str) -> list[str]:
    return sorted({bug.part for bug in bugs(backend).values()})


@pytest.fixture(scope="module")
def lane(request: pytest.FixtureRequest) -> SimpleNamespace:
    """How to start Python where the suite can run."""
    if request.param == "cuda":
        env = cuda_environment(request.getfixturevalue("software_driver"))
        return SimpleNamespace(backend="cuda", python=[sys.executable], env=env)
    request.getfixturevalue("amd_runtime")(VERSION)
    runtime = faults.wrapper.build(VERSION)
    env = amd.environment(runtime, FAULTS_BACKEND="hip", SOFTWARE_HSA_DEVICES="2")
    return SimpleNamespace(backend="hip", python=amd.command(runtime), env=env)


@pytest.fixture
def run(lane: SimpleNamespace, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """A function that runs tests of the suite with a bug, and returns how that ended and its words."""

    def run(bug: str, part: str, tests: str) -> tuple[int, str]:
        report = tmp_path / f"{part}.json"
        done = execute(
            [*lane.python, "-m", "faults", str(report), part, "-k", tests],
            cwd=ROOT,
            env={**lane.env, "FAULTS_BUG": bug, "ACCELERATOR_GRAPH_PURE_PYTHON": "1"},
            timeout=TIMEOUT,
            merged=True,
        )
        assert report.exists(), done.stdout
        return done.returncode, re.sub("^E +", "", done.stdout, flags=re.MULTILINE)

    return run


@pytest.mark.parametrize(
    ("lane", "part"), [(each, part) for each in BACKENDS for part in parts(each)], indirect=["lane"]
)
def test_without_a_bug_nothing_is_found(
    lane: SimpleNamespace, run: Callable[..., tuple[int, str]], part: str
) -> None:
    tests = sorted({f"({bug.tests})" for bug in bugs(lane.backend).values() if bug.part == part})
    ended, said = run("", part, " or ".join(tests))
    assert ended == 0, said


def chosen(backend: str, bug: Bug) -> tuple[pytest.MarkDecorator, ...]:
    """Return the marks of a bug on a backend: a plain run plants each on one of them."""
    return () if backend in (bug.backend, BACKENDS[0]) else (pytest.mark.needs("rest"),)


@pytest.mark.parametrize(
    ("lane", "name"),
    [
        pytest.param(each, name, marks=chosen(each, bug))
        for each in BACKENDS
        for name, bug in bugs(each).items()
    ],
    indirect=["lane"],
)
def test_the_bug_is_found(lane: SimpleNamespace, run: Callable[..., tuple[int, str]], name: str) -> None:
    bug = BUGS[name]
    ended, said = run(name, bug.part, bug.tests)
    assert ended == FAILED, said
    assert re.search(bug.says, said), said
