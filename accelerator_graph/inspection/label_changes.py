"""What differs between the labels of two graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from .description import GraphDescription
from .grouping import runs, short_names
from .text import listed


class Labels:
    """The labels of a graph.

    Attributes
    ----------
    description : GraphDescription
        The graph.
    names : list of str
        The name of each label, with the names of those around it.
    titles : list of str
        The same; a name that occurs again has a number.
    around : list of tuple of int
        The labels of each node, outermost first.
    nodes : list of range
        The nodes of each label.
    """

    def __init__(self, description: GraphDescription) -> None:
        self.description = description
        index_of = {id(label): index for index, label in enumerate(description.labels)}
        self.names: list[str] = [""] * len(index_of)
        self.around: list[tuple[int, ...]] = []
        self.nodes: list[range] = [range(label.start, label.stop) for label in description.labels]
        for labels, start, stop in runs(description):
            stack = tuple(index_of[id(label)] for label in labels)
            self.around += [stack] * (stop - start)
            shown = short_names(labels)
            for depth, index in enumerate(stack):
                self.names[index] = self.names[index] or " / ".join(shown[: depth + 1])
        used: Counter[str] = Counter()
        self.titles: list[str] = []
        for name in self.names:
            used[name] += 1
            self.titles.append(f"{name!r}, number {used[name]}," if used[name] > 1 else repr(name))

    def name_of(self, node: int) -> str:
        """Return the name of a node's innermost label; nothing without labels."""
        return self.names[self.around[node][-1]] if self.around[node] else ""

    def title_of(self, node: int) -> str:
        """Return the title of a node's innermost label; nothing without labels."""
        return self.titles[self.around[node][-1]] if self.around[node] else ""

    def outermost(self, node: int, among: set[int]) -> int | None:
        """Return the outermost of a node's labels that is among these."""
        return next((label for label in self.around[node] if label in among), None)


def matched(old: Labels, new: Labels, pairs: Mapping[int, int]) -> dict[int, int]:
    """Return the labels that both graphs have: of the same name, and with most nodes in common."""
    votes: Counter[tuple[int, int]] = Counter()
    for a, b in pairs.items():
        by_name = {new.names[label]: label for label in new.around[b]}
        votes.update(
            (label, by_name[old.names[label]]) for label in old.around[a] if old.names[label] in by_name
        )
    found: dict[int, int] = {}
    taken: set[int] = set()
    without = ((a, b) for b, name in enumerate(new.names) for a in _named(old, name))
    for a, b in (*(each for each, _ in votes.most_common()), *without):
        if a not in found and b not in taken:
            found[a] = b
            taken.add(b)
    return found


def _named(labels: Labels, name: str) -> list[int]:
    return [index for index, each in enumerate(labels.names) if each == name]


def changed_labels(
    old: Labels, new: Labels, pairs: Mapping[int, int], same: Mapping[int, int]
) -> Iterator[str]:
    """Yield what is different, but for labels of which no node is in both graphs."""
    back = {b: a for a, b in pairs.items()}
    kept = {b: a for a, b in same.items()}
    before = [frozenset(pairs[node] for node in nodes if node in pairs) for nodes in old.nodes]
    lost = {before[label]: label for label in range(len(before)) if label not in same and before[label]}
    for label, nodes in enumerate(new.nodes):
        title, now = new.titles[label], frozenset(node for node in nodes if node in back)
        if label in kept:
            for moved, words in (
                (before[kept[label]] - now, "not in {} any more"),
                (now - before[kept[label]], "in {} now"),
            ):
                if moved:
                    verb = "is" if len(moved) == 1 else "are"
                    which = listed([new.description.nodes[node] for node in sorted(moved)])
                    yield f"{which} {verb} {words.format(f'label {title}'.rstrip(','))}"
        elif now in lost:
            was = lost.pop(now)
            if _own(old.names[was]) != _own(new.names[label]):
                yield f"label {title} was called {old.titles[was].rstrip(',')}"
        elif now:
            yield f"label {title} is new"
    yield from (f"label {old.titles[label]} is gone" for label in lost.values())


def _own(name: str) -> str:
    return name.rpartition(" / ")[2]
