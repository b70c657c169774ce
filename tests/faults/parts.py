"""The parts of the suite, each in a process of its own; and what they found together."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import inner
from lanes import sampled

PLUGIN = "faults.plugin"
REST = ("opening", "lost", "threads", "replays", "collection", "processes")


def slices(module: str, count: int, *more: str) -> dict[str, tuple[str, ...]]:
    """Return the parts that a module is cut into."""
    return {f"{module} {n}": (module, f"--slice={n}/{count}", *more) for n in range(1, count + 1)}


def run(
    run_inner: Callable[..., inner.Outcome],
    python: Sequence[str],
    env: Mapping[str, str],
    report: Path,
    arguments: Sequence[str],
) -> None:
    """Run a part with an interpreter, see that it passes, and write down what it counted."""
    found = run_inner(python, *options(arguments), env=env, accounts=PLUGIN).accounts
    assert found["leaks"] == 0
    assert found["stale_handles"] == 0
    assert found["unknown_calls"] == 0
    unfinished = report.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(found, indent=2), encoding="utf-8")
    unfinished.replace(report)


def options(arguments: Iterable[str]) -> list[str]:
    """Return arguments of pytest for modules of the suite, up to the first that begins with a dash."""
    modules = [*takewhile(lambda argument: not argument.startswith("-"), arguments)]
    return ["-p", PLUGIN, *(f"tests/faults/{name}.py" for name in modules), *[*arguments][len(modules) :]]


def together(folder: Path, parts: Iterable[str]) -> list[dict[str, Any]]:
    """Return the reports of all parts, or nothing as long as one is missing."""
    paths = [folder / f"{part}.json" for part in parts]
    complete = all(path.exists() for path in paths)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths] if complete else []


def figures(reports: Sequence[Mapping[str, Any]], prefix: str) -> tuple[set[str], int, int, str]:
    """Return the functions that failed, the numbers of faults and of checks, and a sentence about all."""
    injected = sum((Counter(report["injected"]) for report in reports), Counter[str]())
    total = {
        key: sum(report[key] for report in reports)
        for key in ("states_checked", "leaks", "left_by_destruction", "left_by_interrupts")
    }
    calls = {name for name in injected if name.startswith(prefix)}
    said = (
        f"{len(calls)} driver calls covered, {sum(injected.values())} faults injected, "
        f"{total['states_checked']} states checked, leaks: {total['leaks']} "
        f"({total['left_by_destruction']} objects whose own destruction was made to fail, "
        f"{total['left_by_interrupts']} interrupted on their way to an owner)"
    )
    if sample := sampled():
        said = f"{said}; {sample}"
    return calls, sum(injected.values()), total["states_checked"], said
