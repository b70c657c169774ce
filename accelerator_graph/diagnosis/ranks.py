"""Do the graphs of all ranks fit together, before anybody replays them?"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from itertools import combinations, pairwise
from reprlib import repr as shortened
from typing import Any, NamedTuple, TypeVar

from .._core import capture_table
from .._interpreter import boolean
from ..api import Graph
from ..errors import GraphStateError, RanksDisagreeError, UnsupportedError
from ..inspection import serialization
from ..inspection.fingerprint import Fingerprint
from ..inspection.text import count
from ..interop.base import Collective
from .ranks_groups import NoAnswer, check_seconds, named, peers_of

T = TypeVar("T")
_TRANSFERS = ("send", "recv")


def check_ranks(
    graph: Graph | BaseException | None,
    group: Any = None,
    *,
    timeout: float = 60.0,
    strict: bool = False,
) -> RanksReport:
    """Compare the graphs of all ranks before the first replay, and raise on every rank if they don't fit.

    The ranks have to agree on the order of collectives in each group: their kinds, types, sizes and roots, as
    the capture asked for them (`Graph.collectives`). Each send needs its receive. Everything else, such as
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
        How many seconds to wait for the other ranks; and as long again, but at most 10 seconds, to know that
        they have heard from all, too.
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
    peers = peers_of(group, "check_ranks")
    if peers is None:
        raise ValueError(
            "check_ranks: torch.distributed has not been initialised, so there is no default group; pass a "
            "communicator of mpi4py, (store, rank, size), or a function that gathers from all ranks."
        )
    own = RankRecord.of(-1 if peers.own is None else peers.own, graph)
    try:
        answers = peers.exchange(to_text(own), timeout)
    except NoAnswer as error:
        raise _error(RanksReport(own.rank, 0, (str(error),), (), (own,))) from None
    records = {rank: from_text(text, rank) for rank, text in answers.texts.items() if text is not None}
    differences, notes = compare(records, answers.texts, strict)
    silent = [rank for rank, text in answers.texts.items() if text is None]
    if silent:
        have = "has" if len(silent) == 1 else "have"
        differences.insert(0, f"{named(silent)} {have} not called check_ranks within {timeout:g} s")
    elif not answers.confirmed:
        fact = "not every rank has heard from all in time: one has called too late, or given up"
        differences.insert(0, fact)
    size, said = len(answers.texts), tuple(records.values())
    report = RanksReport(answers.own, size, tuple(differences), tuple(notes), said)
    if report.differences:
        raise _error(report)
    return report


def _error(report: RanksReport) -> RanksDisagreeError:
    first, *more = report.differences
    others = f" (and {len(more)} more, in the report)" if more else ""
    return RanksDisagreeError(
        f"the ranks disagree: {first}{others}; replay on none of them.",
        report=report,
    )


# ---- what a rank says, and what comes out of it --------------------------------------------------


class RankRecord(NamedTuple):
    """The record of one rank, as the others get it."""

    rank: int
    """The rank, counted in the whole program."""
    failure: str = ""
    """Why there is no graph; empty if there is one."""
    collectives: tuple[Collective, ...] = ()
    fingerprint: Fingerprint | None = None
    no_fingerprint: str = ""
    """Why there is no fingerprint."""
    in_sequence: bool = False
    """Whether each node of the graph is known to wait for the one before."""

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
            described = graph.describe()
            waits = {(edge.source, edge.target) for edge in described.edges}
            nodes = [node.id for node in described.nodes]
            in_sequence = waits.issuperset(pairwise(nodes))
            return cls(rank, "", graph.collectives, Fingerprint.of(described), "", in_sequence)
        except GraphStateError:
            return cls(rank, "", graph.collectives, None, "its graph was made without keep_graph=True")
        except UnsupportedError:
            return cls(rank, "", graph.collectives, None, f"backend {graph.backend!r} can't list nodes")


def to_text(record: RankRecord) -> str:
    """Return a record as a text for the other ranks."""
    return serialization.written(record)


def from_text(text: str, rank: int) -> RankRecord:
    """Read what `to_text` has returned on a rank."""
    try:
        read = serialization.read_record(RankRecord, text, "a record of check_ranks", "record")
    except ValueError:
        fact = "it has sent a text that is not of check_ranks in this version"
        return RankRecord(rank, f"{fact}: {shortened(text)}")
    return read._replace(rank=rank)


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
        return serialization.written(self, indent, agree=self.agree)

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


Calls = dict[int, list[tuple[int, Collective]]]
"""By rank: what it asks a group for, each with its place among the collectives of the rank's graph."""


def compare(
    records: Mapping[int, RankRecord], asked: Collection[int], strict: bool
) -> tuple[list[str], list[str]]:
    """Compare what the ranks have said, by rank; return the differences and the notes.

    Ranks that were `asked` and have said nothing are not compared. With `strict`, everything has to agree.
    """
    graphs = {rank: record for rank, record in records.items() if not record.failure}
    failed = [record for record in records.values() if record.failure]
    differences = [f"{named([each.rank])} has no graph: {each.failure}" for each in failed]
    if not graphs:
        return [], ["no rank has a graph", *differences]
    calls = _by_group(graphs)
    for group, by_rank in calls.items():
        differences += [f"{group}: {clause}" for clause in (*_orders(by_rank), *_transfers(by_rank))]
    notes = [*_unseen(graphs)]
    if outside := {rank for group in calls for rank in group.ranks} - {*asked}:
        notes.append(f"not asked: {named(outside)}, in a group with the others")
    if not notes and not calls:
        notes.append("no collective was seen in any graph")
    if not differences:
        for clause, hangs in _interleaving(calls, graphs):
            (differences if hangs else notes).append(clause)
    (differences if strict else notes).extend(_fingerprints(graphs))
    return differences, notes


# ---- collectives -------------------------------------------------------------------------------


def _by_group(graphs: Mapping[int, RankRecord]) -> dict[Group, Calls]:
    """Return what the present members of each group ask for."""
    everyone = tuple(sorted(graphs))
    groups: dict[Group, Calls] = {}
    for rank, record in graphs.items():
        for place, each in enumerate(record.collectives):
            group = Group(each.group, each.ranks or everyone)
            if group not in groups:
                groups[group] = {member: [] for member in group.ranks if member in graphs}
            groups[group].setdefault(rank, []).append((place, each))
    return groups


def _orders(by_rank: Calls) -> Iterator[str]:
    """Compare the order of collectives in a group; yield a clause for each way in which ranks differ."""
    asked = {
        rank: [each for _, each in calls if each.kind not in _TRANSFERS] for rank, calls in by_rank.items()
    }
    essences = {rank: tuple(map(_essence, calls)) for rank, calls in asked.items()}
    for most, others in _classes(essences):
        pairs = zip(essences[most[0]], essences[others[0]], strict=False)
        index = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if index is None:  # one of them has more
            fewer, more = sorted((most, others), key=lambda ranks: len(asked[ranks[0]]))
            longer, shorter = asked[more[0]], asked[fewer[0]]
            yield (
                f"{named(more, asked)} {'asks' if len(more) == 1 else 'ask'} for "
                f"{count(len(longer), 'collective')} and {named(fewer, asked)} for {len(shorter) or 'none'}; "
                f"number {len(shorter) + 1} is {say(longer[len(shorter)])}"
            )
            continue
        swapped = Counter(essences[most[0]]) == Counter(essences[others[0]])
        yield (
            f"collective {index + 1} is {say(asked[most[0]][index])} on {named(most, asked)} and "
            f"{say(asked[others[0]][index])} on {named(others, asked)}"
            f"{'; they are in another order' if swapped else ''}"
        )


def _essence(call: Collective) -> tuple[object, ...]:
    """Return what has to agree."""
    return call.kind, call.dtype, call.elements, call.peer


def _transfers(by_rank: Calls) -> Iterator[str]:
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
                f"transfer {index + 1} from rank {source} to rank {target} is {say(gives[index])} and "
                f"{say(takes[index])}"
            )
        elif len(gives) != len(takes):
            extra = max(gives, takes, key=len)[min(len(gives), len(takes))]
            yield (
                f"rank {source} sends {count(len(gives), 'time')} to rank {target}, which receives "
                f"{count(len(takes), 'time')}; the first without a partner is {say(extra)}"
            )


def _interleaving(
    calls: Mapping[Group, Calls], graphs: Mapping[int, RankRecord]
) -> Iterator[tuple[str, bool]]:
    """Compare the order of two groups' collectives on the ranks that are in both.

    Yield a sentence for each difference, and whether the graphs are known to run one after the other.
    """
    for (a, in_a), (b, in_b) in combinations(calls.items(), 2):
        orders = {}
        for rank in in_a.keys() & in_b.keys():
            both = sorted(
                (place, which)
                for which, of in enumerate((in_a, in_b))
                for place, each in of[rank]
                if each.kind not in _TRANSFERS
            )
            orders[rank] = tuple(which for _, which in both)
        for most, others in _classes(orders):
            hangs = all(any(graphs[rank].in_sequence for rank in each) for each in (most, others))
            yield (
                f"the collectives of {a} and of {b} are in one order on {named(most)} and in another on "
                f"{named(others)}, which hangs{'' if hangs else ' unless the graph runs them side by side'}",
                hangs,
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
