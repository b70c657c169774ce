"""What differs between the graphs of several ranks, in words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypeVar

from ..inspection.text import count
from ..interop.base import Collective
from .ranks_report import RankRecord, named, say

T = TypeVar("T")
_TRANSFERS = ("send", "recv")


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
