"""Tests that run in a process of their own, for a test of this one: on a simulator, or with torch.

The process (`inner.__main__`) logs each result as it comes. So a test that ends the process, or hangs, costs
no other result: it fails with what the process said, and a new process takes the tests behind it. The fixture
`run_inner` reports each failure under the name of the test that failed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from processes import ROOT, execute

TIMEOUT = 120
"""Seconds without a result, and without use of the CPU, after which a test hangs."""
MOST_ENDS = 10
"""How many tests may end their process before no further one is started."""
LAST_WORDS = 6000
"""How many characters of what a process has said at its end are kept."""


class Failure(NamedTuple):
    """A test that failed in the inner process."""

    name: str
    message: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}\n{self.text}"


@dataclass
class Outcome:
    """What the tests of a process have shown."""

    passed: Counter[str] = field(default_factory=Counter)
    """How many passed, by file below ``tests``."""
    skipped: Counter[str] = field(default_factory=Counter)
    """How many were skipped, or expected to fail, by reason."""
    failures: list[Failure] = field(default_factory=list)
    accounts: dict[str, Any] = field(default_factory=dict)
    """What was counted beside the tests."""

    def fewer(self, least: Mapping[str, int]) -> dict[str, int]:
        """Return how many tests passed of the files and folders in which fewer passed than that."""
        passed = {
            name: sum(count for path, count in self.passed.items() if f"{path}/".startswith(f"{name}/"))
            for name in least
        }
        return {name: count for name, count in passed.items() if count < least[name]}


def run(
    python: Sequence[str | Path],
    log: Path,
    *arguments: str,
    env: Mapping[str, str],
    accounts: str = "-",
    timeout: float = TIMEOUT,
    start: Callable[..., Any] = subprocess.Popen,
) -> Outcome:
    """Run pytest with an interpreter and return what its tests have shown.

    Parameters
    ----------
    python : sequence of str or Path
        The command that starts the interpreter.
    log : Path
        The file that gets a line for each result.
    *arguments : str
        The files of tests, from the root of the project, and options of pytest.
    accounts : str
        The module whose function `accounts` is called in the process when the tests are over.
    env, timeout, start :
        As for `execute`; the timeout begins anew with each test.

    Raises
    ------
    AssertionError
        The process ended outside of a test.
    """
    paths = (str(ROOT / "tests"), *filter(None, [env.get("PYTHONPATH")]))
    variables = {**env, "PYTHONPATH": os.pathsep.join(paths)}
    command = [*python, "-m", "inner", str(log), accounts, "-q", "--tb=short", *arguments]
    for _ in range(MOST_ENDS):
        try:
            done = execute(
                command,
                cwd=ROOT,
                env=variables,
                merged=True,
                timeout=timeout,
                progress=lambda: log.exists() and log.stat().st_size,
                start=start,
            )
            how, said, status = _how(done.returncode), done.stdout, done.returncode
        except subprocess.TimeoutExpired as error:
            how, said, status = "hangs", str(error.output), None
        found, running, ended = read(log)
        if status is not None and ended == status and (status == 0 or found.failures):
            return found
        if running is None:
            raise AssertionError(f"the process {how}, outside of a test:\n{_last(said)}")
        message = f"the process {how} in this test"
        with log.open("a", encoding="utf-8") as file:
            print(json.dumps({"failed": [running, message, f"{message}:\n{_last(said)}"]}), file=file)
    found = read(log)[0]
    found.failures.append(
        Failure(str(log), f"{MOST_ENDS} tests ended the process", "The tests behind the last were not run.")
    )
    return found


def read(log: Path) -> tuple[Outcome, str | None, int | None]:
    """Return what a log says, the test that its last process was in, and the status of that process."""
    found, running, ended = Outcome(), None, None
    for entry in entries(log):
        match entry:
            case {"started": name}:
                running, ended = name, None
            case {"finished": _}:
                running = None
            case {"passed": name}:
                found.passed[name.partition("::")[0].removeprefix("tests/")] += 1
            case {"skipped": reason}:
                found.skipped[reason] += 1
            case {"failed": [name, message, text]}:
                found.failures.append(Failure(name, message, text))
            case {"ended": ended, "accounts": accounts}:
                found.accounts = accounts
    return found, running, ended


def entries(log: Path) -> Iterator[dict[str, Any]]:
    """Yield what a log says, line by line."""
    if log.exists():
        yield from map(json.loads, log.read_text(encoding="utf-8").splitlines())


def _last(said: str) -> str:
    """Return what a process said last: from where Python's fault handler began, if it did."""
    begun = said.rfind("Fatal Python error")
    return said[begun:][:LAST_WORDS] if begun >= 0 else said[-LAST_WORDS:]


def _how(status: int) -> str:
    return f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
