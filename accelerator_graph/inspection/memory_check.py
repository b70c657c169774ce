"""Whether a graph owns what it reads: what `Graph.check` returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..interop.base import BlockHistory, MemoryBlock
from .names import printable
from .serialization import read_record, written
from .text import count, numbers

WRONG = ("freed", "another's")


class MemoryFinding(NamedTuple):
    """An address of a graph that is not known to be its own."""

    verdict: str
    """``"freed"``, ``"another's"``, ``"note"``, ``"unknown"`` or ``"may"``."""
    why: str
    """Who says what about the address: a clause."""
    address: int | None
    """None for an array that no word of the graph is known to point to."""
    node: int | None = None
    """The number of the node, in `Graph.describe`; of a node inside others, that of the outermost."""
    title: str = ""
    """The kind and the name of the node."""
    argument: str = ""
    """Which of its parameters, such as ``"source"`` or ``"argument 2"``."""
    label: str = ""
    """The `label` of the node."""
    array: str = ""
    """The array, where it is known."""
    history: BlockHistory = BlockHistory()
    """Where the memory was allocated and freed, if somebody has recorded that."""
    block: MemoryBlock | None = None
    """The block of an allocator in which the address lies."""

    def __str__(self) -> str:
        where = f"node {self.node} ({self.title}), {self.argument}" if self.node is not None else ""
        label = f"in {self.label!r}" if self.label else ""
        address = "" if self.address is None else f"{self.address:#x}"
        parts = [", ".join(filter(None, (where, label))), " ".join(filter(None, (address, self.why)))]
        said = ": ".join(filter(None, parts))
        for fact, place in self.history._asdict().items():
            said += f", {fact} at {place}" if place else ""
        return printable(said)


class MemoryCheck(NamedTuple):
    """Whether a graph owns what it reads, as far as that is known. ``str()`` is a text for a terminal."""

    backend: str
    device: int
    addresses: int
    """How many addresses were looked up that are surely pointers."""
    findings: tuple[MemoryFinding, ...]
    """Those that are not known to be the graph's own; what is wrong comes first."""
    notes: tuple[str, ...] = ()
    """What could not be looked at, in sentences."""

    @property
    def wrong(self) -> tuple[MemoryFinding, ...]:
        """The findings that are errors: memory that was freed, or is another graph's."""
        return tuple(each for each in self.findings if each.verdict in WRONG)

    def to_json(self, indent: int | None = None) -> str:
        """Return this as JSON, which `from_json` reads."""
        return written(self, indent)

    @classmethod
    def from_json(cls, text: str) -> MemoryCheck:
        """Read what `to_json` has written. Raises ValueError if the text is something else."""
        return read_record(cls, text, "the check of a graph's memory", "check")

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(check: MemoryCheck) -> Iterator[str]:
    wrong = check.wrong
    verdict = f"{count(len(wrong), 'error')}" if wrong else "nothing is wrong"
    yield f"memory of a graph of {check.backend}, device {check.device}: {verdict}"
    for each in wrong:
        yield f"{each.verdict}: {each}"
    for kind in ("note", "unknown", "may"):
        yield from _together(kind, [each for each in check.findings if each.verdict == kind])
    yield from check.notes


def _together(kind: str, findings: Sequence[MemoryFinding]) -> Iterator[str]:
    """Yield a line for all findings with the same reason, which may be thousands."""
    for why, many in Counter(each.why for each in findings).items():
        alike = [each for each in findings if each.why == why]
        if many == 1:
            yield f"{kind}: {alike[0]}"
        else:
            nodes = sorted({each.node for each in alike if each.node is not None})
            yield f"{kind}: {many} addresses of node{'s' * (len(nodes) > 1)} {numbers(nodes)}: each {why}"
