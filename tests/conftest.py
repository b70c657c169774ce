"""The lanes of a run: what can't run here is left out, and the end of the run says so."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import inner
import lanes
from simulators.amd import runtime as amd
from simulators.cuda.build import build
from torch_cpu import environment as torch_cpu
from torch_cpu import forks

TESTS = Path(__file__).resolve().parent
SIMULATOR_OF = {"software_driver": "cuda", "amd_runtime": "amd", "torch_python": "torch_cpu"}
"""The simulator that a fixture is for."""
NEED_OF = {
    (TESTS / "backends/cuda", "backend"): "cuda",
    (TESTS / "backends/hip", "backend"): "hip",
    (TESTS / "core/test_watched_arrays.py", "torch"): "torch",
    (TESTS / "graphed", "device"): "no_gpu",
}
"""What a fixture needs, by the folder or the module that it stands in."""


class Run:
    """What ran in each lane, and the needs of what was left out."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.ran: Counter[str] = Counter()
        self.left_out: set[str] = set()
        self.notes: list[str] = []
        self.kit: Sequence[str] = ()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: dict[str, Any] = dict(report.user_properties)
        if report.when == "call" and not report.skipped and "lane" in properties:
            self.ran[properties["lane"]] += properties.get("tests", 1)
            self.notes += [str(note) for name, note in report.user_properties if name == "note"]
            if not hasattr(self.config, "workerinput"):  # pytest-xdist's processes report their own tests
                for failure in properties.get("failures", ()):
                    self.config.hook.pytest_runtest_logreport(report=reported(inner.Failure(*failure)))


class Shown:
    """How pytest shows the failure of a test in another process."""

    def __init__(self, failure: inner.Failure) -> None:
        self.text = failure.text
        self.reprcrash = SimpleNamespace(message=failure.message)

    def __str__(self) -> str:
        return self.text

    def toterminal(self, out: Any) -> None:
        out.line(self.text)


def reported(failure: inner.Failure) -> pytest.TestReport:
    """Return the report of a test that failed in another process."""
    path, *_ = failure.name.partition("::")
    shown: Any = Shown(failure)
    return pytest.TestReport(failure.name, (path, None, failure.name), {}, "failed", shown, "call")


TOGETHER = {
    "plug-ins": r"tests/registry/test_plugins\.py",
    "distributions": r"tests/release/test_release\.py",
    "benchmarks": r"tests/test_benchmarks\.py",
    "torch": r"tests/torch_cpu/|tests/docs/test_snippets\.py.*-torch\]",
}
"""Tests that share a slow fixture, by the beginning of their names."""

RUN = pytest.StashKey[Run]()
HOMELESS = pytest.StashKey[str]()
"""Why nobody would run a test; empty if a lane does."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RUN] = Run(config)
    config.pluginmanager.register(config.stash[RUN])


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module whose needs are not met is no skip; see `lanes.require`."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        _, found, words = report.longrepr[2].partition(lanes.LEFT_OUT)
        if found:
            needs = words.partition(":")[0]
            if lanes.lanes_of(collector.path, needs.split()):
                collector.config.stash[RUN].left_out.add(needs)
                report.outcome, report.result = "passed", []
            else:
                report.outcome, report.longrepr = "failed", lanes.homeless(needs.split())
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what can't run here; begin with the tests that start a simulator, since they take longest."""
    chosen: list[tuple[bool, pytest.Item]] = []
    deselected = []
    for item in items:
        for (place, fixture), need in NEED_OF.items():
            if fixture in item.fixturenames and place in (item.path, *item.path.parents):
                item.add_marker(pytest.mark.needs(need))
        needs = {need for mark in item.iter_markers("needs") for need in mark.args}
        simulator = _simulator(item)
        homes = lanes.lanes_of(item.path, needs)
        unmet = [*filter(lanes.lacking, needs)] if homes else []
        if simulator and lanes.missing(simulator) and not os.environ.get(lanes.REQUIRED):
            unmet.append(simulator)
        if unmet or (homes and os.environ.get(lanes.SIMULATOR, homes[0]) not in homes):
            deselected.append(item)
            config.stash[RUN].left_out.add(" ".join(needs or lanes.LANES[simulator or "cpu"].needs))
        else:
            item.stash[HOMELESS] = "" if homes else lanes.homeless(needs)
            item.user_properties.append(("lane", simulator or (lanes.lane_here(homes) if homes else "")))
            chosen.append((not simulator, item))
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for _, item in sorted(chosen, key=lambda each: each[0])]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.stash[HOMELESS]:
        pytest.fail(item.stash[HOMELESS], pytrace=False)


def pytest_collection_finish() -> None:
    """Let the collections of garbage that tests ask for skip what is there before the first test."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """A test that raises where Python can not may leave its thread handling that error for ever."""
    before = sys.exc_info()[1]
    yield
    assert sys.exc_info()[1] is before, "the thread still handles an error of the test"


def _simulator(item: pytest.Item) -> str:
    """Return the simulator that a test starts, if it starts one."""
    if mark := item.get_closest_marker("starts"):
        return str(mark.args[0])
    return next((SIMULATOR_OF[name] for name in item.fixturenames if name in SIMULATOR_OF), "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give tests to the processes of pytest-xdist one by one, but for those that share a slow fixture."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((scope for scope, names in TOGETHER.items() if re.match(names, nodeid)), nodeid)

    return Scheduling(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # a process of pytest-xdist
        session.config.workeroutput["left_out"] = sorted(session.config.stash[RUN].left_out)
        if kit := session.config.pluginmanager.get_plugin("accelerator_graph.testing._selection"):
            session.config.workeroutput["kit"] = kit.lines()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a process of pytest-xdist has left out."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[RUN].left_out.update(output.get("left_out", ()))
    node.config.stash[RUN].kit = output.get("kit", ())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    run = config.stash[RUN]
    if lanes.SIMULATOR not in os.environ and not config.option.collectonly:
        terminalreporter.section("lanes")
        for line in (*lanes.summary(run.ran, run.left_out), *run.notes, *run.kit):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run that all processes of pytest-xdist share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture
def run_inner(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., inner.Outcome]:
    """`inner.run` with a log. What fails there is reported as tests of this run, and this test fails."""

    def run(python: Sequence[str | Path], *arguments: str, **how: Any) -> inner.Outcome:
        found = inner.run(python, tmp_path / "inner.jsonl", *arguments, **how)
        request.node.user_properties += [
            ("tests", found.passed.total() + len(found.failures)),
            ("failures", [[*failure] for failure in found.failures]),
        ]
        if found.failures:
            names = ", ".join(failure.name for failure in found.failures)
            passed = f"{found.passed.total()} passed in the process"
            pytest.fail(f"{passed}; these failed, and are reported beside this: {names}", pytrace=False)
        return found

    return run


@pytest.fixture(scope="session")
def software_driver() -> Path:
    """The folder with the libraries of the software driver."""
    lanes.lack(lanes.missing("cuda"))
    return build()


@pytest.fixture(scope="session")
def amd_runtime() -> Callable[[str], Path]:
    """Returns the folder with a version of AMD's runtime that runs on the CPU."""
    lanes.lack(lanes.missing("amd"))
    return amd.build


@pytest.fixture(scope="session")
def torch_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Python of an environment with torch's CPU build; programs can be a `forks.Fork` of it."""
    try:
        python = torch_cpu.make()
    except LookupError as error:
        lanes.lack(str(error))
        raise
    with forks.serving(python, tmp_path_factory.mktemp("torch")):
        yield python
