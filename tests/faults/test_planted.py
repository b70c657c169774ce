"""The suite of faults finds bugs that are planted in the library, each for what it is."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

import faults.wrapper
import inner
from faults import parts
from faults.planted import BUGS, Bug
from lanes import lacking
from simulators.amd import runtime as amd
from simulators.cuda.build import environment as cuda_environment

VERSION = "7.2"
BACKENDS = ("cuda", "hip")


def bugs(backend: str) -> dict[str, Bug]:
    return {name: bug for name, bug in BUGS.items() if bug.backend in ("", backend)}


FIRST = {(bug.part, bug.backend): bug for bug in reversed(BUGS.values())}
"""The first bug of each part, and of each that one backend can have."""


def plain(backend: str, bug: Bug) -> bool:
    """Whether a plain run plants the bug on this backend: it plants one of each part, on one of them."""
    return backend in (bug.backend, BACKENDS[0]) and bug is FIRST[bug.part, bug.backend]


def planted(backend: str) -> list[Bug]:
    """Return the bugs that this run plants on a backend."""
    everything = not lacking("rest")
    return [bug for bug in bugs(backend).values() if everything or plain(backend, bug)]


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
def run(lane: SimpleNamespace, tmp_path: Path) -> Callable[..., str]:
    """A function that runs tests of the suite with a bug, and returns the words of those that failed."""

    def run(bug: str, modules: Iterable[str], tests: str) -> str:
        variables = {"FAULTS_BUG": bug, "ACCELERATOR_GRAPH_PURE_PYTHON": "1"}
        arguments = parts.options([*modules, "-k", tests])
        log = tmp_path / "inner.jsonl"
        found = inner.run(lane.python, log, *arguments, env={**lane.env, **variables}, accounts=parts.PLUGIN)
        return re.sub("^E +", "", "\n".join(map(str, found.failures)), flags=re.MULTILINE)

    return run


@pytest.mark.parametrize("lane", BACKENDS, indirect=True)
def test_without_a_bug_nothing_is_found(lane: SimpleNamespace, run: Callable[..., str]) -> None:
    modules = {bug.part for bug in planted(lane.backend)}
    tests = {f"({bug.tests})" for bug in planted(lane.backend)}
    assert run("", sorted(modules), " or ".join(sorted(tests))) == ""


@pytest.mark.parametrize(
    ("lane", "name"),
    [
        pytest.param(each, name, marks=() if plain(each, bug) else pytest.mark.needs("rest"))
        for each in BACKENDS
        for name, bug in bugs(each).items()
    ],
    indirect=["lane"],
)
def test_the_bug_is_found(lane: SimpleNamespace, run: Callable[..., str], name: str) -> None:
    bug = BUGS[name]
    said = run(name, [bug.part], bug.tests)
    assert re.search(bug.says, said), said
