"""Run pytest on the software driver and write down what it showed: python -m simulators.cuda REPORT [...]

Further arguments go to pytest. The library path has to name the software driver already (`build`).
"""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from accelerator_graph._core import ownership

from .faults import Accounts, Faults


class Outcomes:
    """A plug-in of pytest that counts."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "wasxfail"):
            self.skipped[report.wasxfail] += 1
        elif report.skipped:
            assert isinstance(report.longrepr, tuple)
            self.skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1
        elif report.passed and report.when == "call":
            self.passed[report.nodeid.partition("::")[0].removeprefix("tests/")] += 1


def main(report: str, *arguments: str) -> int:
    outcomes = Outcomes()
    status = pytest.main([*arguments], plugins=[outcomes])
    gc.collect()
    ownership.drain()
    accounts = Accounts()
    found = {
        "status": int(status),
        "passed": outcomes.passed,
        "skipped": outcomes.skipped,
        "live": accounts.live(),
        "stale_handles": accounts.stale_handles,
        "unknown_calls": accounts.unknown_calls,
        "calls": Faults("libcuda.so.1").calls(),
    }
    Path(report).write_text(json.dumps(found, indent=2), encoding="utf-8")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
