"""The report of a run of the kit, in Markdown."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from accelerator_graph.backends.base import Backend, Capability

from . import rules
from ._conformance import BackendConformance

PROMISES = {
    Capability.EVENTS: "Streams can be forked and joined with events.",
    Capability.EXTERNAL_EVENTS: "Events are recorded and waited for across the border of a capture.",
    Capability.TIMING: "The host can wait for events, and read the time between two of them.",
    Capability.ENQUEUE: "Fills, copies and launches can be enqueued through the library.",
    Capability.PROGRESS: "A graph can write memory of the host, which shows how far a replay is.",
    Capability.HANDLES: "Streams, graphs and executables have handles that other libraries understand.",
    Capability.NODES: "The nodes of a graph and their dependencies can be listed.",
    Capability.CHILD_GRAPHS: "A replay onto a capturing stream is recorded into that capture.",
    Capability.SET_NODE: "Single nodes of an executable can be changed.",
    Capability.UPDATE: "An executable can get the work of another graph in place.",
    Capability.GRAPH_EVENTS: "Executables can record timed events, so that parts of a graph can be timed.",
    Capability.NODE_TIMES: "The vendor's profiler can time single nodes.",
    Capability.CONDITIONS: "The device tests the flags of loops and branches.",
}
"""The promise to users behind each capability."""

WORDS = {
    "passed": "passed",
    "skipped": "does not apply",
    "expected failure": "expected failure",
    "failed": "**failed**",
}
"""The word in a report for each outcome of a rule."""


class Row(NamedTuple):
    """How one rule came out, in words."""

    name: str
    outcome: str
    """A key of `WORDS`."""
    detail: str = ""
    """Why the rule does not apply or is expected to fail, or how it failed."""

    @property
    def rule(self) -> Any:
        """The method that checks the rule."""
        return getattr(BackendConformance, self.name)

    @property
    def sentence(self) -> str:
        """The rule in a sentence."""
        return " ".join(str(inspect.getdoc(self.rule)).split())


def markdown(backend: Backend, facts: Mapping[str, str], rows: Sequence[Row], *, time_limit: float) -> str:
    """Write the report. `facts` are lines of its first table."""
    parts: list[str] = [
        f"# Conformance report of the backend `{backend.name}`",
        verdict(rows),
        table(*facts.items()),
        "## What the backend promises",
        table(("Capability", "Promised", "Meaning", "Rules that passed"), *promises(backend, rows)),
        "The attributes of its class, which `accelerator_graph/backends/base.py` explains:",
        table(("Attribute", "Value"), *properties(type(backend))),
        *broken(rows),
        *expected(rows),
        *left_out(rows),
        "## All rules",
        f"A rule in which nothing happens for {time_limit:g} seconds, since a call hangs, has failed. "
        "The kit measures no speed.",
    ]
    for topic in rules.ALL:
        found = [row for row in rows if row.name in vars(topic)]
        if found:
            lines = ((row.sentence, WORDS[row.outcome]) for row in found)
            parts += [
                f"### {topic.__name__.removesuffix('Rules')}",
                str(inspect.getdoc(topic)),
                table(("Rule", "Outcome"), *lines),
            ]
    return "\n\n".join(parts) + "\n"


def verdict(rows: Sequence[Row]) -> str:
    """Return the result of a run in a sentence."""
    count = Counter(row.outcome for row in rows)
    checked = len(rows) - count["skipped"]
    if count["failed"]:
        fact = f"**breaks {count['failed']} of the {checked} rules**"
    elif count["expected failure"]:
        fact = f"**keeps {count['passed']} of the {checked} rules**"
    else:
        fact = f"**keeps all {checked} rules**"
    known = f", and breaks {count['expected failure']} as expected" if count["expected failure"] else ""
    others = "were not run" if any(row.detail.startswith("not run") for row in rows) else "do not apply"
    return f"The backend {fact} that apply to it{known}. {count['skipped']} other rules {others}."


def look_first(rows: Sequence[Row]) -> Iterator[str]:
    """Yield which of several broken rules to look at first, and which errors they share."""
    failed = [row for row in rows if row.outcome == "failed"]
    if len(failed) < 2:
        return
    yield f"Look at {failed[0].name} first: one fault breaks many rules, and those of one method come first."
    errors = Counter(re.sub(r"0x[0-9a-f]+", "0x...", row.detail.partition("\n")[0]) for row in failed)
    for error, count in errors.most_common(3):
        if count > 1:
            yield f"{count} of them fail with the same error: {error}"


def promises(backend: Backend, rows: Sequence[Row]) -> Iterator[tuple[str, str, str, str]]:
    """Yield for each capability whether the backend has it, and how many of its rules passed."""
    devices = range(backend.device_count)
    for capability, meaning in PROMISES.items():
        having = [device for device in devices if capability in backend.capabilities(device)]
        promised = "yes" if len(having) == len(devices) else "no"
        if 0 < len(having) < len(devices):
            promised = f"on device {', '.join(map(str, having))}"
        about = [row.outcome for row in rows if capability in getattr(row.rule, "needs", ())]
        applying = len(about) - about.count("skipped")
        yield (
            f"`{capability}`",
            promised,
            meaning,
            f"{about.count('passed')} of {applying}" if having else "-",
        )


def properties(kind: type[Backend]) -> Iterator[tuple[str, str]]:
    """Yield the facts that the class states."""
    for name in (
        "recording",
        "capture_modes",
        "cuda_like",
        "serialises_replays",
        "replay_ignores_captures",
        "survives_fork",
        "priority",
        "api_version",
    ):
        value = getattr(kind, name)
        yield f"`{name}`", ", ".join(value) if isinstance(value, tuple) else str(value)


def broken(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the part about rules that failed."""
    failed = [row for row in rows if row.outcome == "failed"]
    if failed:
        yield "## Broken rules"
        yield from look_first(failed)
    for row in failed:
        yield f"**{row.sentence}** (`{row.name}`)"
        yield fenced(row.detail)


def expected(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the part about rules that failed as expected."""
    failed = [
        (f"{row.sentence} (`{row.name}`)", row.detail) for row in rows if row.outcome == "expected failure"
    ]
    if failed:
        yield "## Expected failures"
        yield "The authors of the backend know that it breaks these rules. One that passes counts as broken."
        yield table(("Rule", "Reason"), *failed)


def left_out(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the part about rules that do not apply."""
    reasons = Counter(row.detail for row in rows if row.outcome == "skipped")
    if reasons:
        yield "## What does not apply"
        yield table(("Reason", "Rules"), *((reason, str(count)) for reason, count in reasons.items()))


def fenced(text: str) -> str:
    """Write a text as it is, between lines that are longer than any run of backticks in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def table(head: Sequence[str], *lines: Sequence[str]) -> str:
    """Write a table. A cell is one line."""
    rows = [head, ["---"] * len(head), *lines]
    cells = ([" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
