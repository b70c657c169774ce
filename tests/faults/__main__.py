"""Run modules of the suite and write down what they showed: python -m faults REPORT MODULE [...] [-k ...]

From the first argument with a dash on, they go to pytest; --slice=2/3 after the modules takes every third
test, from the second. The process has to be where the driver can fail:
with the software CUDA driver on its library path (`simulators.cuda.build`), or, if FAULTS_BACKEND is hip,
on AMD's runtime with the library of `faults.wrapper` before it. FAULTS_BUG plants a bug (`faults.planted`).
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import Counter
from itertools import takewhile
from pathlib import Path

import pytest

import accelerator_graph
from accelerator_graph._core import ownership

from . import figures

HERE = Path(__file__).resolve().parent


class Outcomes:
    """A plug-in of pytest that counts."""

    def __init__(self, first: int, step: int) -> None:
        self.counts: Counter[str] = Counter()
        self.slice = slice(first - 1, None, step)

    def pytest_configure(self) -> None:
        helpers = ("faults.bench", "faults.operations", "core.random_signals", "core.test_interrupts")
        pytest.register_assert_rewrite(*helpers)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = items[self.slice]

    def pytest_collection_finish(self) -> None:
        gc.collect()
        gc.freeze()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.counts["xfailed" if hasattr(report, "wasxfail") else report.outcome] += 1


def main(report: str, *arguments: str) -> int:
    if bug := os.environ.get("FAULTS_BUG"):
        from . import planted

        planted.plant(bug)
    modules = [*takewhile(lambda argument: not argument.startswith("-"), arguments)]
    more = list(arguments[len(modules) :])
    part = more.pop(0).removeprefix("--slice=") if more and more[0].startswith("--slice=") else "1/1"
    outcomes = Outcomes(*map(int, part.split("/")))
    paths = [str(HERE / f"{module}.py") for module in modules]
    options = ("-q", "-p", "no:cacheprovider", "--tb=short", "-rfE")
    status = int(pytest.main([*options, *paths, *more], plugins=[outcomes]))
    gc.collect()
    ownership.drain()
    from .bench import accounts  # not before pytest, which explains its assertions

    found = {
        "status": status,
        "library": accelerator_graph.__file__,
        "outcomes": outcomes.counts,
        "injected": figures.injected,
        "states_checked": figures.states_checked,
        "left_by_destruction": figures.left_by_destruction,
        "left_by_interrupts": figures.left_by_interrupts,
        "leaks": figures.leaks,
        "stale_handles": accounts.stale_handles,
        "unknown_calls": accounts.unknown_calls,
    }
    unfinished = Path(report).with_suffix(".unfinished")
    unfinished.write_text(json.dumps(found, indent=2), encoding="utf-8")
    unfinished.replace(report)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
