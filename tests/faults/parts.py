"""The parts of the suite, run at once, each in a process of its own; and what they found together."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulators.cuda.build import ROOT

TIMEOUT = 280
PARTS = {
    "calls": ("every_call", "opening", "lost"),
    "rest": ("threads", "replays", "collection", "processes", "interrupts"),
}


def run(
    python: Sequence[str], env: Mapping[str, str], folder: Path, parts: Mapping[str, tuple[str, ...]] = PARTS
) -> dict[str, dict[str, Any]]:
    """Run parts at once with an interpreter and return what they wrote down."""
    running = {}
    for part, arguments in parts.items():
        command = [*python, "-m", "faults", str(folder / f"{part}.json"), *arguments]
        with open(folder / f"{part}.txt", "wb") as output:
            running[part] = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT
            )
    found = {}
    try:
        for part, process in running.items():
            process.wait(TIMEOUT)
            report = folder / f"{part}.json"
            found[part] = json.loads(report.read_text()) if report.exists() else {}
            found[part]["output"] = (folder / f"{part}.txt").read_text(errors="replace")
            found[part]["ended"] = process.returncode
    finally:
        for process in running.values():
            process.kill()
    return found


def check(report: Mapping[str, Any]) -> None:
    """Find that a part passed and left nothing behind."""
    assert report["ended"] == 0, report["output"][-8000:]
    assert report["leaks"] == 0
    assert report["stale_handles"] == 0
    assert report["unknown_calls"] == 0


def figures(reports: Mapping[str, Mapping[str, Any]], prefix: str) -> tuple[set[str], int, int]:
    """Print what all parts did; return the functions that failed, and the numbers of faults and checks."""
    injected = sum((Counter(report["injected"]) for report in reports.values()), Counter[str]())
    outcomes = sum((Counter(report["outcomes"]) for report in reports.values()), Counter[str]())
    total = {
        key: sum(report[key] for report in reports.values())
        for key in ("states_checked", "leaks", "left_by_destruction", "left_by_interrupts")
    }
    calls = {name for name in injected if name.startswith(prefix)}
    print(
        f"\nfaults: {len(calls)} driver calls covered, {sum(injected.values())} faults injected, "
        f"{total['states_checked']} states checked, leaks: {total['leaks']}"
        f"\n        ({total['left_by_destruction']} objects whose own destruction was made to fail, "
        f"{total['left_by_interrupts']} interrupted on their way to an owner; {dict(outcomes)})"
    )
    return calls, sum(injected.values()), total["states_checked"]
