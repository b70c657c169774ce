"""What `verify` has found out."""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

Verdict = Literal["right", "wrong", "undecided"]
"""The replays agree with eager runs; they don't; or that can't be known."""

Cause = Literal["not_written", "stale_address", "frozen", "race", "random_repeats", "unknown"]
"""Why replays are wrong. ``"unknown"`` if no experiment has shown the cause."""


class Finding(NamedTuple):
    """One array that is wrong after a replay, or whose contents can't be judged."""

    array: str
    """Its name: ``"result['logits']"``, an argument's, or one of the state: ``"model.norm.running_mean"``."""
    cause: Cause | None
    """None if the array is not wrong."""
    text: str
    """The observation, in words."""
    elements: int = 0
    """How many elements are wrong or can't be judged."""
    of: int = 0
    """How many elements the array has."""
    largest: float | None = None
    """The largest difference from the eager run, for numbers."""


class Verification(NamedTuple):
    """The result of `verify`. ``str()`` is a report in words."""

    verdict: Verdict
    cause: Cause | None
    """The cause if the replay is wrong."""
    function: str
    """The name of the function, or of the graph's reference."""
    backend: str
    device: int
    findings: tuple[Finding, ...]
    """The arrays that are wrong or can't be judged."""
    where: str
    """The first module of torch whose output is wrong; empty if that is not known."""
    others: int
    """With how many other arguments replays were compared."""
    rounding: tuple[str, ...]
    """What differs by rounding, and by how much; empty if everything is equal in all bits, as far as eager
    runs are."""
    eager_runs: int
    replays: int
    notes: tuple[str, ...]
    """The parts that the comparison left out, and why."""

    def to_json(self, indent: int | None = None) -> str:
        """Return the report as JSON."""
        plain = {**self._asdict(), "findings": [each._asdict() for each in self.findings]}
        return json.dumps(plain, indent=indent)

    def summary(self) -> str:
        """Return the verdict as one sentence."""
        subject = f"the graph of {self.function!r}"
        if self.verdict == "right":
            others = "1 other" if self.others == 1 else f"{self.others} others"
            tried = f"for your arguments and {others}" if self.others else "for your arguments only"
            if not self.rounding:
                return f"{subject} gives the results of eager runs, {tried}."
            return f"{subject} gives the results of eager runs up to rounding, {tried}: {self.rounding[0]}."
        first = self.findings[0].text if self.findings else "nothing could be compared"
        if self.verdict == "undecided":
            return f"it can't be decided whether {subject} is right: {first}."
        where = f" The first that is wrong is {self.where}." if self.where else ""
        return f"{subject} gives wrong results: {first}. {_WAYS_OUT[self.cause or 'unknown']}{where}"

    def __str__(self) -> str:
        lines = [self.summary()]
        lines += [f"  {each.text}" for each in self.findings[1:]]
        lines += [f"  note: {note}" for note in self.notes]
        lines.append(f"  {self.eager_runs} eager runs, {self.replays} replays, on {self.backend!r}")
        return "\n".join(lines)


_WAYS_OUT: dict[Cause, str] = {
    "not_written": (
        "The work that writes it is not in the graph: it ran on another stream, or at once in Python; "
        "enqueue it on the current stream."
    ),
    "stale_address": (
        "The graph uses other memory than the function does now; keep the array in place and copy new "
        "contents into it, or capture again."
    ),
    "frozen": (
        "A number, a branch or a copy of the capture is repeated; compute it on the device from an array, or "
        "capture again when it changes."
    ),
    "race": "Work in the graph is not ordered; let streams wait for each other where they share memory.",
    "random_repeats": "Register the generator with the graph, or draw the numbers on the device.",
    "unknown": "The cause is not known; capture a part of the function, and verify that.",
}
