"""Run pytest and log each result as it comes: python -m inner LOG ACCOUNTS [arguments of pytest]

Tests that the log has already are left out. ACCOUNTS is a module with a function `accounts`, or ``-``.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from inner import entries


class Log:
    """A plug-in of pytest that writes a line for whatever happens."""

    def __init__(self, path: Path) -> None:
        self.before = {entry["started"] for entry in entries(path) if "started" in entry}
        self.file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def write(self, **entry: Any) -> None:
        os.write(self.file, f"{json.dumps(entry)}\n".encode())

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.before]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write(started=nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.write(finished=nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "wasxfail"):
            self.write(skipped=report.wasxfail)
        elif report.skipped:
            assert isinstance(report.longrepr, tuple)
            self.write(skipped=report.longrepr[2].removeprefix("Skipped: "))
        elif report.failed:
            self.failed(report)
        elif report.when == "call":
            self.write(passed=report.nodeid)

    def failed(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = crash.message if crash else report.longreprtext.strip().rpartition("\n")[2]
        sections = "".join(f"\n--- {title}\n{text}" for title, text in report.sections)
        self.write(failed=[report.nodeid, message, report.longreprtext + sections])


def main(log: str, accounts: str, *arguments: str) -> int:
    plugin = Log(Path(log))
    options = ("-p", "no:cacheprovider", "--color=no")
    status = int(pytest.main([*options, *arguments], plugins=[plugin]))
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and plugin.before:
        status = 0  # the test that ended the process before was the last one
    gc.collect()
    counted = {} if accounts == "-" else importlib.import_module(accounts).accounts()
    plugin.write(ended=status, accounts=counted)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
