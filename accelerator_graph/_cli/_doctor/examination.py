"""What disturbs graphs on this machine, and what to do about it.

The command ``info`` gathers the facts. The doctor adds a small capture on each usable backend, and what it
knows of drivers, libraries, packages and variables. Everything that loads a driver or a framework runs in a
process of its own: a crash is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import accelerator_graph as ag

from .. import packages
from ..trial import Finding, ProcessResult, Trial, library_findings, trial_of


class Diagnosis(NamedTuple):
    """What the doctor says."""

    trials: list[Trial]
    findings: list[Finding]
    passed: bool
    """Every usable backend has passed its trial, and the backend that is named, if any, can be used."""


def examine(
    gathered: ProcessResult, time_limit: float, during: Callable[[str], AbstractContextManager[None]]
) -> Diagnosis:
    """Try every usable backend, and look for what disturbs.

    Parameters
    ----------
    gathered : Ended
        The process that has reported the ``facts`` of `info`.
    time_limit : float
        How many seconds the trial of a backend, and the import of the frameworks, may take.
    during : callable
        Returns a context manager that shows what is being done.
    """
    facts = gathered.last("facts")
    unknown: list[dict[str, Any]] = [{"name": name, "usable": True} for name in ag.backends.names()]
    rows = facts["backends"] if facts else unknown
    trials = []
    for row in rows:
        if row["usable"]:
            with during(f"trying backend {row['name']!r}"):
                trials.append(trial_of(row["name"], time_limit))
        else:
            trials.append(Trial(row["name"], "unusable", row["reason"].rstrip(".")))
    found = list(of_trials(trials, facts))
    passed = bool(facts) and not facts["problem"] and all(each.outcome != "failed" for each in trials)
    if not facts:
        reason = gathered.failure or "reported nothing"
        found.insert(0, Finding("info", f"The process that gathers the facts {reason}.", LOOK_AT_TRIALS))
        return Diagnosis(trials, found, passed)
    with during("importing the frameworks"):
        names = [row["name"] for row in facts["frameworks"] if row["installed"]]
        imported = packages.import_result(names, time_limit)
    found += of_facts(facts)
    found += imported.findings
    found += packages.package_findings(facts)
    found += library_findings([*imported.libraries, *(file for each in trials for file in each.libraries)])
    hidden = {each.backend for each in trials if each.outcome == "unusable"} & packages.GPUS.keys()
    found += packages.variable_findings(facts["environment"], filter(packages.gpu_is_visible, hidden))
    return Diagnosis(trials, found, passed)


LOOK_AT_TRIALS = "If a backend failed as well, mend that first: `accelerator-graph info` fails in that way."


def of_trials(trials: Sequence[Trial], facts: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Yield what the trials have shown."""
    rows = {row["name"]: row for row in facts["backends"]} if facts else {}
    for trial in trials:
        name, row = trial.backend, rows.get(trial.backend, {})
        defect, way_out = parts(row.get("warning", ""))
        if trial.outcome == "failed":
            known = f"{defect} {way_out}".strip()
            advice = f"A known defect may be the cause: {known}" if known else FAILED.format(name)
            yield Finding(name, f"A small capture on backend {name!r} failed: {trial.detail}.", advice)
        elif defect:
            yield Finding(name, defect, way_out or "Nothing is known to help.")
        if trial.outcome == "unusable":
            fact, way_out = parts(trial.detail)
            if name in packages.GPUS and packages.gpu_is_visible(name):
                gpu = packages.GPUS[name][1]
                fact = f"This machine has {gpu}, but backend {name!r} can't be used: {fact}"
                yield Finding(name, fact, way_out or UNUSABLE)
            elif row and not row["loaded"]:
                yield Finding(name, f"Backend {name!r} can't be loaded: {fact}", way_out or "Uninstall it.")


FAILED = (
    "Run `accelerator-graph conformance {}` to see more. If a newer driver or runtime does not help, report "
    "it to its vendor."
)


UNUSABLE = (
    "Look whether another finding explains that, such as a second copy of a library or a variable that hides "
    "GPUs. Otherwise install the driver again."
)


def of_facts(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what `info` says of the choice of a backend and of the C extension."""
    if facts["problem"]:
        advice = "Name a backend that can be used, in ACCELERATOR_GRAPH_BACKEND, or unset that variable."
        yield Finding("ACCELERATOR_GRAPH_BACKEND", sentence(facts["problem"]), advice)
    if facts["extension"].startswith(("not built", "built from another", "can't be loaded")):
        fact, advice = parts(f"The C extension is {facts['extension']}".replace("is can't", "can't"))
        yield Finding("C extension", fact, advice)


def parts(text: str) -> tuple[str, str]:
    """Return the first sentence of a text, and the others."""
    fact, _, rest = text.partition(". ")
    return tuple(each and f"{each.rstrip('.')}." for each in (fact, rest))  # type: ignore[return-value]


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
