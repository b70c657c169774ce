"""The command ``doctor``: what disturbs graphs on this machine, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .._interpreter.terminal import progress, rows, wrapped
from . import info
from ._doctor.examination import Diagnosis, examine
from .trial import Trial, report, run_in_process

TIME_LIMIT = 120.0
"""Seconds that the trial of a backend may take. The first use of eight GPUs takes many."""


def run(time_limit: float | None, *, as_json: bool) -> bool:
    """Print what was found, and return False if a usable backend fails."""
    limit = TIME_LIMIT if time_limit is None else time_limit
    with progress("gathering facts"):
        gathered = run_in_process(__name__, "gather", time_limit=limit)
    facts = gathered.last("facts")
    diagnosis = examine(gathered, limit, progress)
    if as_json:
        trials, findings = ([each._asdict() for each in part] for part in diagnosis[:2])
        print(
            json.dumps({"facts": facts, "trials": trials, "findings": findings, "passed": diagnosis.passed})
        )
    else:
        print("\n".join(text(facts, diagnosis)))
    return diagnosis.passed


def gather() -> None:
    """Report the facts of `info`. Called in a process of its own."""
    report(facts=info.facts(None))


def text(facts: Mapping[str, Any] | None, diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the lines for people."""
    if facts:
        yield from info.about(facts)
        yield ""
    known = {row["name"]: row for row in facts["backends"]} if facts else {}
    yield "Backends"
    for trial in diagnosis.trials:
        words = in_words(trial, known.get(trial.backend, {}).get("versions", {}))
        yield from rows([(f"{trial.backend:6}", f"{trial.outcome:8}", words)], "  ")
        yield from (f"      {line}" for line in trial.errors.splitlines())
    yield ""
    yield "Findings"
    if not diagnosis.findings:
        yield "  none: nothing disturbs what can be used here"
    for number, finding in enumerate(diagnosis.findings, 1):
        yield from wrapped(f"{finding.about}: {finding.fact}", f"  {number:2}  ")
        yield from wrapped(finding.advice, "      -> ")


def in_words(trial: Trial, versions: Mapping[str, str]) -> str:
    """Return how a trial came out."""
    if trial.outcome != "passed":
        return f"{trial.detail}."
    devices = f"{trial.devices} device{'s' if trial.devices != 1 else ''}"
    parts = (
        f"captured and replayed on {devices}",
        *(f"{name} {version}" for name, version in versions.items()),
    )
    return ", ".join(parts)
