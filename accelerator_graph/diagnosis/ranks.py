"""Do the graphs of all ranks fit together, before anybody replays them?"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from reprlib import repr as shortened
from typing import Any, NamedTuple, TypeVar

from .._core import capture_table
from .._interpreter.outside import boolean
from ..api import Graph
from ..errors import GraphStateError, RanksDisagreeError, UnsupportedError
from ..inspection.fingerprint import Fingerprint
from ..inspection.text import count
from ..interop.base import Collective
from .ranks_groups import NoAnswer, check_seconds, exchange_over, members_of, named

T = TypeVar("T")
_TRANSFERS = ("send", "recv")
SCHEMA = 1
"""The version of the JSON that ranks exchange, and of the report's."""


def check_ranks(
    graph: Graph | BaseException | None,
    group: Any = None,
    *,
    timeout: float = 60.0,
    strict: bool = False,
) -> RanksReport:
    """Compare the graphs of all ranks before the first replay, and raise on every rank if they don't fit.

    What has to agree is the order of collectives in each group: their kinds, types, sizes and roots, as they
    were asked for in the capture (`Graph.collectives`). Each send needs its receive. Everything else, such as
    kernels and sizes, is a note in the report, since pipeline and expert ranks rightly differ.

    Every rank of the group has to call this, also one whose capture failed. Nothing runs on the device.

    Parameters
    ----------
    graph : Graph, BaseException or None
        This rank's graph. If there is none, the exception of its capture, or None.
    group
        A process group of torch.distributed, by default the one of all ranks; a communicator of mpi4py;
        ``(store, rank, size)`` with a store of torch.distributed; or a function that takes this rank's string
        and returns those of all ranks in their order. The function runs in a thread of its own.
    timeout : float
        How many seconds to wait for the other ranks.
    strict : bool
        Everything has to agree. Needs graphs made with ``keep_graph=True``.

    Returns
    -------
    RanksReport
        The same on every rank, but for `rank`.

    Raises
    ------
    RanksDisagreeError
        The graphs don't fit together, a rank has none, or a rank did not call in time.
    GraphStateError
        This thread is capturing.
    TypeError, ValueError
        An argument is of the wrong type or value.
    """
    if graph is not None and not isinstance(graph, Graph | BaseException):
        raise TypeError(f"check_ranks: the graph must be a Graph, an exception or None, not {graph!r}.")
    if capture_table.thread.unfinished:
        raise GraphStateError("check_ranks: this thread is capturing; call it after the capture has ended.")
    check_seconds(timeout, "check_ranks: timeout")
    strict = boolean(strict, "check_ranks: strict")
    exchange = exchange_over(group, "check_ranks")
    members = members_of(group)
    own = RankRecord.of(-1 if members is None else members.own, graph)
    try:
        answers = exchange(to_text(own), timeout)
    except NoAnswer as error:
        raise _error(RanksReport(-1, 0, (str(error),), (), (own,))) from None
    ranks = [*range(answers.size)] if members is None else members.ranks
    records = {ranks[place]: from_text(text, ranks[place]) for place, text in sorted(answers.texts.items())}
    found = compare(records, ranks, strict)
    silent = [
        f"{named([rank])} has not called check_ranks within {timeout:g} s"
        for place, rank in enumerate(ranks)
        if place not in answers.texts
    ]
    if not answers.confirmed:
        silent.append("not every rank has heard from all in time: one has called too late, or given up")
    report = RanksReport(
        ranks[answers.rank],
        answers.size,
        (*silent, *found.differences),
        tuple(found.notes),
        tuple(records.values()),
    )
    if report.differences:
        raise _error(report)
    return report


def _error(report: RanksReport) -> RanksDisagreeError:
    first, *more = report.differences
    others = f" (and {len(more)} more, in the report)" if more else ""
    return RanksDisagreeError(
        f"the ranks disagree: {first.removeprefix('check_ranks: ')}{others}; replay on none of them.",
        report=report,
    )


# ---- what a rank says, and what comes out of it --------------------------------------------------


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


# ---- what differs --------------------------------------------------------------------------------


class Group(NamedTuple):
    """A communicator: its name and the ranks in it."""

    name: str
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        of = f"group {self.name!r} of " if self.name else "the group of "
        return f"{of}{named(self.ranks)}"


class Comparison(NamedTuple):
    """What differs."""

    differences: list[str]
    """What has to agree."""
    notes: list[str]
    """What may differ, and what is not known."""


def compare(records: Mapping[int, RankRecord], asked: Collection[int], strict: bool) -> Comparison:
    """Compare what the ranks have said, by rank. With `strict`, everything has to agree.

    Those that were asked and have said nothing are not compared.
    """
    failed = [record for record in records.values() if record.failure]
    graphs = {rank: record for rank, record in records.items() if not record.failure}
    differences = [f"{named([each.rank])} has no graph: {each.failure}" for each in failed]
    if not graphs:
        return Comparison([], ["no rank has a graph", *differences])
    calls = _by_group(graphs)
    for group, by_rank in calls.items():
        differences += _orders(group, by_rank)
        differences += _transfers(group, by_rank)
    notes = [*_unseen(graphs)]
    if outside := {rank for group in calls for rank in group.ranks} - {*asked}:
        notes.append(f"not asked: {named(outside)}, in a group with the others")
    if not notes and not calls:
        notes.append("no collective was seen in any graph")
    if not differences:
        notes += _interleaving(calls)
    (differences if strict else notes).extend(_fingerprints(graphs))
    return Comparison(differences, notes)


# ---- collectives -------------------------------------------------------------------------------


def _by_group(graphs: Mapping[int, RankRecord]) -> dict[Group, dict[int, list[tuple[int, Collective]]]]:
    """Return what the present members of each group ask for, with its place in their graphs."""
    everyone = tuple(sorted(graphs))
    groups: dict[Group, dict[int, list[tuple[int, Collective]]]] = {}
    for rank, record in graphs.items():
        for place, each in enumerate(record.collectives):
            group = Group(each.group, each.ranks or everyone)
            if group not in groups:
                groups[group] = {member: [] for member in group.ranks if member in graphs}
            groups[group].setdefault(rank, []).append((place, each))
    return groups


def _orders(group: Group, by_rank: Mapping[int, Sequence[tuple[int, Collective]]]) -> Iterator[str]:
    """Compare the order of collectives in a group; yield a sentence for each way in which ranks differ."""
    asked = {
        rank: [each for _, each in calls if each.kind not in _TRANSFERS] for rank, calls in by_rank.items()
    }
    for most, others in _classes({rank: tuple(map(_essence, calls)) for rank, calls in asked.items()}):
        yield f"{group}: {_first_difference(asked[most[0]], most, asked[others[0]], others)}"


def _first_difference(
    most_calls: Sequence[Collective],
    most: Sequence[int],
    other_calls: Sequence[Collective],
    others: Sequence[int],
) -> str:
    both = zip(most_calls, other_calls, strict=False)
    index = next((i for i, (a, b) in enumerate(both) if _essence(a) != _essence(b)), None)
    if index is None:  # one of them has more
        more, fewer = (most, others) if len(most_calls) > len(other_calls) else (others, most)
        longer, shorter = sorted((most_calls, other_calls), key=len, reverse=True)
        return (
            f"{_ask(more)} for {count(len(longer), 'collective')} and {named(fewer)} for "
            f"{len(shorter) or 'none'}; "
            f"number {len(shorter) + 1} is {say(longer[len(shorter)])}"
        )
    swapped = Counter(map(_essence, most_calls)) == Counter(map(_essence, other_calls))
    return (
        f"collective {index + 1} is {say(most_calls[index])} on {named(most)} and "
        f"{say(other_calls[index])} on {named(others)}{'; they are in another order' if swapped else ''}"
    )


def _ask(ranks: Collection[int]) -> str:
    return f"{named(ranks)} {'asks' if len(ranks) == 1 else 'ask'}"


def _essence(call: Collective) -> tuple[object, ...]:
    """Return what has to agree."""
    return call.kind, call.dtype, call.elements, call.peer


def _transfers(group: Group, by_rank: Mapping[int, Sequence[tuple[int, Collective]]]) -> Iterator[str]:
    """Compare each rank's sends with what the receiver expects of it."""
    sent: dict[tuple[int, int], list[Collective]] = defaultdict(list)
    received: dict[tuple[int, int], list[Collective]] = defaultdict(list)
    from_anyone = set()
    for rank, calls in by_rank.items():
        for _, each in calls:
            if each.kind == "send" and each.peer is not None:
                sent[rank, each.peer].append(each)
            elif each.kind == "recv" and each.peer is not None:
                received[each.peer, rank].append(each)
            elif each.kind == "recv":
                from_anyone.add(rank)
    for source, target in sorted({*sent, *received}):
        if source not in by_rank or target not in by_rank or target in from_anyone:
            continue
        gives, takes = sent[source, target], received[source, target]
        pairs = zip(gives, takes, strict=False)
        index = next((i for i, (a, b) in enumerate(pairs) if _essence(a)[1:3] != _essence(b)[1:3]), None)
        if index is not None:
            yield (
                f"{group}: transfer {index + 1} from rank {source} to rank {target} is {say(gives[index])} "
                f"and {say(takes[index])}"
            )
        elif len(gives) != len(takes):
            extra = max(gives, takes, key=len)[min(len(gives), len(takes))]
            yield (
                f"{group}: rank {source} sends {count(len(gives), 'time')} to rank {target}, which receives "
                f"{count(len(takes), 'time')}; the first without a partner is {say(extra)}"
            )


def _interleaving(calls: Mapping[Group, Mapping[int, Sequence[tuple[int, Collective]]]]) -> Iterator[str]:
    """Compare the order of two groups' collectives on the ranks that are in both."""
    for (a, in_a), (b, in_b) in combinations(calls.items(), 2):
        orders = {
            rank: tuple(
                which
                for _, which in sorted(
                    (place, which)
                    for which, calls_in_group in enumerate((in_a[rank], in_b[rank]))
                    for place, each in calls_in_group
                    if each.kind not in _TRANSFERS
                )
            )
            for rank in in_a.keys() & in_b.keys()
        }
        for most, others in _classes(orders):
            yield (
                f"the collectives of {a} and of {b} are in one order on {named(most)} and in another on "
                f"{named(others)}, which hangs unless the graph runs them side by side"
            )


# ---- everything else ---------------------------------------------------------------------------


def _fingerprints(graphs: Mapping[int, RankRecord]) -> Iterator[str]:
    missing: dict[str, list[int]] = defaultdict(list)
    for rank, record in graphs.items():
        if record.fingerprint is None:
            missing[record.no_fingerprint].append(rank)
    for why, ranks in missing.items():
        yield f"the nodes of {named(ranks)} are not known: {why}"
    known = {rank: record.fingerprint for rank, record in graphs.items() if record.fingerprint is not None}
    for most, others in _classes(known):
        words = known[most[0]].differences(known[others[0]])
        shown = [*words[:3], *([f"{len(words) - 3} more"] if len(words) > 3 else [])]
        yield f"the graph of {named(others)} is not that of {named(most)}: {', '.join(shown)}"


def _unseen(graphs: Mapping[int, RankRecord]) -> Iterator[str]:
    """Find graphs with kernels of a library of collectives, in which no collective was seen."""
    found = [
        rank
        for rank, record in graphs.items()
        if not record.collectives
        and record.fingerprint is not None
        and any("nccl" in name.lower() for kind, name, _ in record.fingerprint.functions if kind == "kernel")
    ]
    if found:
        yield (
            f"{named(found)}: the graph has kernels of NCCL or RCCL, but no collective was seen, so their "
            "order is not known; note them with note_collective()"
        )


def _classes(values: Mapping[int, T]) -> Iterable[tuple[list[int], list[int]]]:
    """Put the ranks with equal values together; return the largest class with each of the others."""
    classes: dict[Hashable, list[int]] = defaultdict(list)
    for rank in sorted(values):
        classes[values[rank]].append(rank)
    most, *others = sorted(classes.values(), key=lambda ranks: (-len(ranks), ranks[0])) or [[]]
    return [(most, each) for each in others]
