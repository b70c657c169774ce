"""Run pytest on a simulator and write down what it showed: python -m simulators.report REPORT [...]

Further arguments go to pytest. The process has to be on the simulator already.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from accelerator_graph._core import ownership


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


def accounts() -> dict[str, Any]:
    """Return what the simulator has counted."""
    if os.environ["ACCELERATOR_GRAPH_TEST_SIMULATOR"] == "cuda":
        from .cuda.faults import Accounts as OfCuda

        cuda = OfCuda()
        return {"live": cuda.live(), "stale_handles": cuda.stale_handles, "unknown_calls": cuda.unknown_calls}
    from .amd.accounts import Accounts as OfAmd

    amd = OfAmd()
    return {
        "launches": amd.launches,
        "unknown_kernels": amd.unknown_kernels,
        "unknown_calls": amd.unknown_calls,
    }


def main(report: str, *arguments: str) -> int:
    outcomes = Outcomes()
    status = int(pytest.main([*arguments], plugins=[outcomes]))
    gc.collect()
    ownership.drain()
    found = {"status": status, "passed": outcomes.passed, "skipped": outcomes.skipped, **accounts()}
    Path(report).write_text(json.dumps(found, indent=2), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
