"""What one rank says of its graph, and what came out when all ranks' were compared."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from reprlib import repr as shortened
from typing import Any, NamedTuple

from ..errors import GraphStateError, UnsupportedError
from ..inspection.fingerprint import Fingerprint
from ..inspection.text import count
from ..interop.base import Collective

SCHEMA = 1
"""The version of the JSON that ranks exchange, and of the report's."""


class RankRecord(NamedTuple):
    """What one rank says."""

    rank: int
    """The rank, counted in the whole program."""
    failure: str = ""
    """Why there is no graph; empty if there is one."""
    collectives: tuple[Collective, ...] = ()
    fingerprint: Fingerprint | None = None
    no_fingerprint: str = ""
    """Why there is no fingerprint."""

    @classmethod
    def of(cls, rank: int, graph: Any) -> RankRecord:
        """Make the record of a graph, or of why there is none."""
        if graph is None:
            return cls(rank, "its capture failed")
        if isinstance(graph, BaseException):
            first = str(graph).partition("\n")[0].rstrip(".")
            return cls(rank, f"its capture failed with {type(graph).__name__}{f': {first}' if first else ''}")
        if graph.state == "empty":
            return cls(rank, "nothing was captured")
        try:
            return cls(rank, "", graph.collectives, graph.fingerprint())
        except GraphStateError:
            return cls(rank, "", graph.collectives, None, "its graph was made without keep_graph=True")
        except UnsupportedError:
            return cls(rank, "", graph.collectives, None, f"backend {graph.backend!r} can't list nodes")

    def as_json(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return {
            "rank": self.rank,
            "failure": self.failure,
            "collectives": [each._asdict() for each in self.collectives],
            "fingerprint": None if self.fingerprint is None else self.fingerprint._asdict(),
            "no_fingerprint": self.no_fingerprint,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RankRecord:
        """Read what `as_json` has returned."""
        collectives = [Collective(**{**each, "ranks": tuple(each["ranks"])}) for each in data["collectives"]]
        seen = data["fingerprint"]
        if seen is not None:
            seen = Fingerprint(**{**seen, "functions": tuple(tuple(each) for each in seen["functions"])})
        return cls(data["rank"], data["failure"], tuple(collectives), seen, data["no_fingerprint"])


def to_text(record: RankRecord) -> str:
    """Return a record as a text for the other ranks."""
    return json.dumps({"schema": SCHEMA, **record.as_json()})


def from_text(text: str, rank: int) -> RankRecord:
    """Read what `to_text` has returned on a rank."""
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            return RankRecord(
                rank, "it has another version of accelerator_graph, which can't be compared with"
            )
        return RankRecord.from_json(data)._replace(rank=rank)
    except (ValueError, LookupError, TypeError):
        return RankRecord(rank, f"it has sent a text that is not of check_ranks: {shortened(text)}")


class RanksReport(NamedTuple):
    """The result of `check_ranks`. ``str()`` is a text for a terminal."""

    rank: int
    """The rank that has this report, counted in the whole program; -1 if that could not be found out."""
    size: int
    """How many ranks were asked."""
    differences: tuple[str, ...]
    """The differences that forbid a replay, in words; empty if the ranks can replay together."""
    notes: tuple[str, ...]
    """Differences that are permitted, and facts that are not known."""
    records: tuple[RankRecord, ...]
    """The records of the ranks, in their order; without the ranks that have sent none."""

    @property
    def agree(self) -> bool:
        """True if nothing speaks against replaying on all ranks."""
        return not self.differences

    def to_json(self, indent: int | None = None) -> str:
        """Return the report as JSON."""
        data = {"schema": SCHEMA, "agree": self.agree, **self._asdict()}
        return json.dumps({**data, "records": [each.as_json() for each in self.records]}, indent=indent)

    def __str__(self) -> str:
        head = "agree" if self.agree else "disagree"
        lines = [f"{count(self.size, 'rank')} {head}: {self._collectives()}" if self.size else "no answer:"]
        lines += [f"  {each}" for each in self.differences]
        lines += [f"  note: {each}" for each in self.notes]
        return "\n".join(lines)

    def _collectives(self) -> str:
        numbers = {len(each.collectives) for each in self.records if not each.failure} or {0}
        low, high = min(numbers), max(numbers)
        return f"{count(low, 'collective') if low == high else f'{low} to {high} collectives'} in each graph"


def say(collective: Collective) -> str:
    """Return a collective in words."""
    size = "" if collective.elements is None else f" of {collective.elements}"
    dtype = f" {collective.dtype}" if collective.dtype else ""
    peer = {"send": " to rank {}", "recv": " from rank {}"}.get(collective.kind, " with root {}")
    root = "" if collective.peer is None else peer.format(collective.peer)
    place = f" ({os.path.basename(collective.file)}:{collective.line})" if collective.file else ""
    return f"{collective.kind}{size if size or not dtype else ' of'}{dtype}{root}{place}"


def named(ranks: Collection[int]) -> str:
    """Return ranks in words."""
    numbers = sorted(ranks)
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > 2 and numbers == [*range(numbers[0], numbers[-1] + 1)]:
        return f"ranks {numbers[0]} to {numbers[-1]}"
    shown = [str(each) for each in numbers]
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"
