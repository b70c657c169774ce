"""The command ``doctor``: what disturbs graphs on this machine, and what to do about it.

The command ``info`` gathers the facts. The doctor adds a small capture on each usable backend, and what it
knows of drivers, libraries, packages and variables. Everything that loads a driver or a framework runs in a
process of its own: a crash is a finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import accelerator_graph as ag

from .._interpreter.terminal import progress, rows, wrapped
from . import info, packages
from .trial import Finding, ProcessResult, Trial, library_findings, report, run_in_process, trial_of

TIME_LIMIT = 120.0
"""Seconds that the trial of a backend may take. The first use of eight GPUs takes many."""


def print_diagnosis(backend: str | None, time_limit: float | None, *, as_json: bool) -> bool:
    """Print what was found, and return False if a usable backend fails, or the named one can't be used."""
    with progress("gathering facts"):
        gathered = run_in_process(__name__, "report_facts", time_limit=TIME_LIMIT)
    facts = gathered.last("facts")
    diagnosis = diagnosis_of(backend, gathered, TIME_LIMIT if time_limit is None else time_limit, progress)
    if as_json:
        trials, findings = ([each._asdict() for each in part] for part in diagnosis[:2])
        found = {"trials": trials, "findings": findings, "passed": diagnosis.passed}
        print(json.dumps({**(facts or {}), **found}, indent=2))
    else:
        print("\n".join(diagnosis_lines(facts, diagnosis)))
    return diagnosis.passed


def report_facts() -> None:
    """Report the facts of `info`. Called in a process of its own."""
    report(doing="gathering facts")
    report(facts=info.installation_facts(None))


def diagnosis_lines(facts: Mapping[str, Any] | None, diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the lines for people."""
    if facts:
        yield from info.library_lines(facts)
        yield ""
    known = {row["name"]: row for row in facts["backends"]} if facts else {}
    yield "Backends"
    for trial in diagnosis.trials:
        words = trial_in_words(trial, known.get(trial.backend, {}).get("versions", {}))
        yield from rows([(f"{trial.backend:6}", f"{trial.outcome:8}", words)], "  ")
        yield from (f"      {line}" for line in trial.errors.splitlines())
    yield ""
    yield "Findings"
    if not diagnosis.findings:
        yield "  none: nothing disturbs what can be used here"
    for number, finding in enumerate(diagnosis.findings, 1):
        yield from wrapped(f"{finding.about}: {finding.fact}", f"  {number:2}  ")
        yield from wrapped(finding.advice, "      -> ")


def trial_in_words(trial: Trial, versions: Mapping[str, str]) -> str:
    """Return how a trial came out."""
    if trial.outcome != "passed":
        return f"{trial.detail}."
    devices = f"{trial.devices} device{'s' if trial.devices != 1 else ''}"
    parts = (
        f"captured and replayed on {devices}",
        *(f"{name} {version}" for name, version in versions.items()),
    )
    return ", ".join(parts)


# ---- the examination -------------------------------------------------------------------------------


class Diagnosis(NamedTuple):
    """What the doctor says."""

    trials: list[Trial]
    findings: list[Finding]
    passed: bool
    """Every usable backend has passed its trial, and the backend that is named, if any, can be used."""


def diagnosis_of(
    backend: str | None,
    gathered: ProcessResult,
    time_limit: float,
    during: Callable[[str], AbstractContextManager[None]],
) -> Diagnosis:
    """Try every usable backend, or the named one, and look for what disturbs.

    Parameters
    ----------
    backend : str, optional
        The name of a known backend.
    gathered : ProcessResult
        The process that has reported the ``facts`` of `info`.
    time_limit : float
        How many seconds the trial of a backend may take.
    during : callable
        Returns a context manager that shows what is being done.
    """
    facts = gathered.last("facts")
    unknown: list[dict[str, Any]] = [{"name": name, "usable": True} for name in ag.backends.names()]
    rows = facts["backends"] if facts else unknown
    trials = []
    for row in rows:
        if backend not in (None, row["name"]):
            continue
        if row["usable"]:
            with during(f"trying backend {row['name']!r}"):
                trials.append(trial_of(row["name"], time_limit))
        else:
            trials.append(Trial(row["name"], "unusable", row["reason"].rstrip(".")))
    found = list(trial_findings(trials, facts, backend))
    passed = bool(facts) and not facts["problem"] and all(each.outcome != "failed" for each in trials)
    if backend is not None:
        passed = [each.outcome for each in trials] in (["passed"], ["untried"])
    if not facts:
        reason = gathered.failure or "reported nothing"
        found.insert(0, Finding("info", f"The process that gathers the facts {reason}.", MEND_TRIALS_FIRST))
        return Diagnosis(trials, found, passed)
    with during("importing the frameworks"):
        names = [row["name"] for row in facts["frameworks"] if row["installed"]]
        imported = packages.import_result(names, TIME_LIMIT)
    found += fact_findings(facts)
    found += imported.findings
    found += packages.package_findings(facts)
    found += library_findings([*imported.libraries, *(file for each in trials for file in each.libraries)])
    hidden = {each.backend for each in trials if each.outcome == "unusable"} & packages.GPUS.keys()
    found += packages.variable_findings(facts["environment"], filter(packages.gpu_is_visible, hidden))
    return Diagnosis(trials, found, passed)


MEND_TRIALS_FIRST = (
    "If a backend failed as well, mend that first: `accelerator-graph info` fails in that way."
)


def trial_findings(
    trials: Sequence[Trial], facts: Mapping[str, Any] | None, named: str | None = None
) -> Iterator[Finding]:
    """Yield what the trials have shown. It is a finding if the named backend can't be used."""
    rows = {row["name"]: row for row in facts["backends"]} if facts else {}
    for trial in trials:
        name, row = trial.backend, rows.get(trial.backend, {})
        defect, way_out = fact_and_advice(row.get("warning", ""))
        if trial.outcome == "failed":
            known = f"{defect} {way_out}".strip()
            advice = f"A known defect may be the cause: {known}" if known else FAILED_TRIAL.format(name)
            if trial.timed_out:
                advice = f"{MORE_TIME} {advice}"
            yield Finding(name, f"A small capture on backend {name!r} failed: {trial.detail}.", advice)
        elif defect:
            yield Finding(name, defect, way_out or "Nothing is known to help.")
        if trial.outcome == "unusable":
            fact, way_out = fact_and_advice(trial.detail)
            if name in packages.GPUS and packages.gpu_is_visible(name):
                gpu = packages.GPUS[name][1]
                fact = f"This machine has {gpu}, but backend {name!r} can't be used: {fact}"
                yield Finding(name, fact, way_out or UNUSABLE_BACKEND)
            elif row and not row["loaded"]:
                yield Finding(name, f"Backend {name!r} can't be loaded: {fact}", way_out or "Uninstall it.")
            elif name == named:
                yield Finding(name, f"Backend {name!r} can't be used: {fact}", way_out or UNUSABLE_BACKEND)


MORE_TIME = "Give the trial more time, with --time-limit."
FAILED_TRIAL = (
    "Run `accelerator-graph conformance {}` to see more. If a newer driver or runtime does not help, report "
    "it to its vendor."
)


UNUSABLE_BACKEND = (
    "Look whether another finding explains that, such as a second copy of a library or a variable that hides "
    "GPUs. Otherwise install the driver again."
)


def fact_findings(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what `info` says of the choice of a backend and of the C extension."""
    if facts["problem"]:
        advice = "Name a backend that can be used, in ACCELERATOR_GRAPH_BACKEND, or unset that variable."
        yield Finding("ACCELERATOR_GRAPH_BACKEND", sentence(facts["problem"]), advice)
    if facts["extension"].startswith(("not built", "built from another", "can't be loaded")):
        fact, advice = fact_and_advice(
            f"The C extension is {facts['extension']}".replace("is can't", "can't")
        )
        yield Finding("C extension", fact, advice)


def fact_and_advice(text: str) -> tuple[str, str]:
    """Return the first sentence of a text, and the others."""
    fact, _, rest = text.partition(". ")
    return tuple(each and f"{each.rstrip('.')}." for each in (fact, rest))  # type: ignore[return-value]


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
