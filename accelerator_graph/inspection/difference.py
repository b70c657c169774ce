"""What differs between two graphs, in words."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from ..backends.base import GraphContents, GraphEdge, GraphNode
from .contents import runs, short_names
from .description import GraphDescription
from .names import case, function_of, printable, short_name, title
from .pairing import Place, paired
from .text import count, fitting, is_closed, listed, named, numbers, size


class Comparison(NamedTuple):
    """The differences between two graphs."""

    sentences: list[str]
    """All differences, in words."""
    pairs: dict[int, int]
    """The nodes that both graphs have: the id in the first one to the id in the second one."""
    changes: dict[int, list[str]]
    """The differences of each node that both have, in words, by its id in the second graph."""


_Said = list[tuple[tuple[int, int], str]]
"""Sentences with their places: after which node of the second graph, and of the first one."""


def diff(a: GraphDescription, b: GraphDescription) -> list[str]:
    """Return what is different in `b`, in a sentence for each difference; nothing if they are equal.

    Nodes are paired by their labels, parameters and order, as lines are in a comparison of two texts. So
    nodes that were added in the middle are one difference. What changed alike in several nodes of a label is
    one, too.

    Parameters
    ----------
    a, b : GraphDescription
        The earlier and the later one.

    Raises
    ------
    TypeError
        One of them is not a description.
    """
    for each in (a, b):
        if not isinstance(each, GraphDescription):
            raise TypeError(
                f"diff: the arguments must be descriptions, such as graph.describe(), not {each!r}."
            )
    return compare(a, b).sentences


def compare(a: GraphDescription, b: GraphDescription) -> Comparison:
    """Pair the nodes of two graphs, and say what differs."""
    said = [
        f"{what}: {new} instead of {old}"
        for what, old, new in (
            ("backend", a.backend, b.backend),
            ("device", a.device, b.device),
            ("capture mode", *_modes(a, b)),
            ("pool", *_pools(a, b)),
        )
        if old != new
    ]
    inside = _compared(a, b)
    return inside._replace(sentences=[*map(printable, said), *inside.sentences])


def _modes(a: GraphDescription, b: GraphDescription) -> tuple[str, str]:
    """Return the modes; equal ones if one of them is not known."""
    return (a.mode, b.mode) if a.mode and b.mode else ("", "")


def _pools(a: GraphDescription, b: GraphDescription) -> tuple[str, str]:
    """Return the pools in words. The number of a graph's own pool says nothing."""
    if not a.pool or not b.pool:
        return "", ""
    old, new = (str(pool) if not pool[0] else "its own" for pool in (a.pool, b.pool))
    return old, new


def _compared(a: GraphDescription, b: GraphDescription) -> Comparison:
    """Compare the contents of two graphs."""
    old, new = Labels(a), Labels(b)
    pairs = paired(_places(a, old), _places(b, new))
    back = {j: i for i, j in pairs.items()}
    same = matched(old, new, pairs)
    said: _Said = []
    changes: dict[int, list[str]] = {}
    alike: dict[Hashable, list[tuple[int, NodeChange]]] = {}
    for i, j in pairs.items():
        node, label = b.nodes[j], new.title_of(j)
        for change in changes_of(a.nodes[i], node):
            where = "" if change.is_address else label  # addresses differ everywhere, or nowhere
            alike.setdefault((where, title(node), change.key), []).append((j, change))
            changes.setdefault(j, []).append(f"{named(node)} {change.one}")
        for sentence in _inside(a.nodes[i], node):
            said.append(((j, -1), _located(label, sentence)))
            changes.setdefault(j, []).append(sentence)
    together: dict[tuple[int, ...], list[str]] = {}
    for found in alike.values():
        ids, change = tuple(j for j, _ in found), found[0][1]
        together.setdefault(ids, []).append(change.one if len(ids) == 1 else change.many)
    for ids, facts in together.items():
        node = b.nodes[ids[0]]
        which = named(node) if len(ids) == 1 else f"nodes {numbers(ids)} ({title(node)})"
        [label, *others] = {new.title_of(j) for j in ids}
        said.append(((node.id, -1), _located("" if others else label, f"{which} {_joined(facts)}")))
    for target, words in changed_dependencies(a.edges, b.edges, pairs):
        sentence = f"{named(b.nodes[target])} {words}"
        said.append(((target, -1), _located(new.title_of(target), sentence)))
        changes.setdefault(target, []).append(sentence)
    for first, sentence in _only(b.nodes, new, back, {*same.values()}, "new"):
        said.append(((first, -1), sentence))
    for first, sentence in _only(a.nodes, old, pairs, {*same}, "gone"):
        after = next((pairs[i] for i in range(first, -1, -1) if i in pairs), -1)
        said.append(((after, first), sentence))
    sentences = [sentence for _, sentence in sorted(said, key=lambda each: each[0])]
    sentences += changed_labels(old, new, pairs, same)
    changes = {j: [*map(printable, found)] for j, found in changes.items()}
    return Comparison([*map(printable, sentences)], pairs, changes)


def _places(description: GraphDescription, labels: Labels) -> list[Place]:
    starts = {label.start for label in description.labels}
    return [Place(node, labels.name_of(node.id), node.id in starts) for node in description.nodes]


def _inside(old: GraphNode, new: GraphNode) -> Iterator[str]:
    """Yield what differs between the bodies of two nodes."""
    for number, bodies in enumerate(zip(old.bodies, new.bodies, strict=False)):
        where = ", ".join(filter(None, (f"inside {named(new)}", case(new, number))))
        yield from (f"{where}: {each}" for each in _compared(*map(as_description, bodies)).sentences)


def as_description(contents: GraphContents) -> GraphDescription:
    """Return a description of what is inside a node."""
    nodes, edges = contents
    return GraphDescription("", 0, tuple(nodes), tuple(edges))


def _only(
    nodes: Sequence[GraphNode], labels: Labels, both: Collection[int], known: Collection[int], word: str
) -> Iterator[tuple[int, str]]:
    """Yield a sentence for each run of nodes of a label that only one of the graphs has, with the first id.

    If a label has no node in common with the other graph, it is all said with the label.
    """
    alone = {
        label
        for label, inside in enumerate(labels.nodes)
        if label not in known and not any(node in both for node in inside)
    }

    def where(place: tuple[int, GraphNode]) -> tuple[int | None, str, int]:
        index, node = place
        label = labels.outermost(node.id, alone)
        return label, "" if label is not None else labels.title_of(node.id), node.id - index

    missing = [node for node in nodes if node.id not in both]
    for (label, title_of_label, _), run in groupby(enumerate(missing), key=where):
        inside = [node for _, node in run]
        if label is not None:
            yield inside[0].id, f"label {labels.titles[label]} is {word}: {listed(inside)}"
        else:
            verb = "is" if len(inside) == 1 else "are"
            yield inside[0].id, _located(title_of_label, f"{listed(inside)} {verb} {word}")


def _joined(words: list[str]) -> str:
    *rest, last = words
    return f"{', '.join(rest)} and {last}" if rest else last


def _located(label: str, sentence: str) -> str:
    return f"in {label.rstrip(',')}: {sentence}" if label else sentence


# ---- labels ----------------------------------------------------------------------------------------


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
            title = repr(fitting(name))
            self.titles.append(f"{title}, number {used[name]}," if used[name] > 1 else title)

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


# ---- nodes that both graphs have -------------------------------------------------------------------


_WORDS = {
    "grid": "has the grid {0} instead of {1}",
    "block": "has the block {0} instead of {1}",
    "shared_bytes": "has {0} of shared memory instead of {1}",
    "nbytes": "is of {0} instead of {1}",
    "call": "is called with {0} instead of {1}",
    "value": "fills with {0} instead of {1}",
    "enabled": "is {0} instead of {1}",
}
_PLURALS = {"has": "have", "is": "are", "fills": "fill", "calls": "call"}
_ADDRESSES = {
    ("source", "memcpy"): ("reads at {0} instead of {1}", "read at other addresses"),
    ("target", "host"): ("calls {0} instead of {1}", "call other functions"),
    ("target", "mem_alloc"): ("allocates {0} instead of {1}", "allocate other addresses"),
    ("target", "mem_free"): ("frees {0} instead of {1}", "free other addresses"),
}
_WRITES = ("writes at {0} instead of {1}", "write at other addresses")


class NodeChange(NamedTuple):
    """One difference of a node: what follows its name in a sentence."""

    key: Hashable
    """Equal for changes that several nodes can share a sentence about."""
    one: str
    many: str
    """The words for one node and for several ones."""
    is_address: bool = False


def changes_of(old: GraphNode, new: GraphNode) -> Iterator[NodeChange]:
    """Yield the differences of two nodes, but for those inside them."""
    closed = is_closed(old) or is_closed(new)
    if function_of(old) != function_of(new) and not closed:
        yield _shared(_function(old, new))
    for field, words in _WORDS.items():
        before, after = getattr(old, field), getattr(new, field)
        if before != after:
            yield _shared(words.format(_shown(field, after), _shown(field, before)))
    for field in ("source", "target"):
        before, after = getattr(old, field), getattr(new, field)
        if before != after:
            one, many = _ADDRESSES.get((field, new.kind), _WRITES)
            yield NodeChange(many, one.format(_address(after), _address(before)), many, is_address=True)
    if closed and is_closed(old) != is_closed(new):
        yield _shared(
            f"has contents that are not known of the {'first' if is_closed(old) else 'second'} graph"
        )
    elif len(old.bodies) != len(new.bodies):
        yield _shared(f"has {count(len(new.bodies), 'body')} instead of {len(old.bodies)}")


def _shared(words: str) -> NodeChange:
    verb, _, rest = words.partition(" ")
    return NodeChange(words, words, f"{_PLURALS[verb]} {rest}")


def _function(old: GraphNode, new: GraphNode) -> str:
    if new.kind == "conditional":
        return f"is '{new.name}' instead of '{old.name}'"
    whole = [node.demangled or node.name for node in (new, old)]
    short = [short_name(name) for name in whole]
    names = whole if short[0] == short[1] else short
    if whole[0] == whole[1]:
        names = [
            f"{name} in {os.path.basename(node.file)}:{node.line}"
            for name, node in zip(short, (new, old), strict=True)
        ]
    now, before = (name or "a function without a name" for name in names)
    return f"calls {now} instead of {before}"


def _shown(field: str, value: object) -> str:
    if value is None or value == "":
        return "nothing"
    if field == "enabled":
        return "enabled" if value else "disabled"
    if field in ("nbytes", "shared_bytes") and isinstance(value, int):
        return size(value)
    return str(value)


def _address(value: int | None) -> str:
    return "nothing" if value is None else f"{value:#x}"


# ---- dependencies ----------------------------------------------------------------------------------


_Pair = tuple[int, int]


def changed_dependencies(
    edges: Sequence[GraphEdge], new_edges: Sequence[GraphEdge], pairs: Mapping[int, int]
) -> Iterator[tuple[int, str]]:
    """Yield the target, in the second graph, and what is different, of nodes that both graphs have.

    A node that was put between two others, or taken out from there, changes no dependency of those two.
    """
    back = {b: a for a, b in pairs.items()}
    old = {
        (pairs[e.source], pairs[e.target]): e.kind for e in edges if e.source in pairs and e.target in pairs
    }
    new = {(e.source, e.target): e.kind for e in new_edges if e.source in back and e.target in back}
    gone, added = old.keys() - new.keys(), new.keys() - old.keys()
    implied = _through(new_edges, gone, back)
    implied |= {
        (pairs[a], pairs[b]) for a, b in _through(edges, {(back[a], back[b]) for a, b in added}, pairs)
    }
    for source, target in sorted(old.keys() | new.keys(), key=lambda pair: (pair[1], pair[0])):
        if (source, target) in implied:
            continue
        before, after = (kinds.get((source, target)) for kinds in (old, new))
        if after is None:
            yield target, f"does not wait for node {source} any more"
        elif before is None:
            yield target, f"waits for node {source}"
        elif before != after:
            words = f"by a {after or 'ordinary'} dependency instead of {before or 'ordinary'}"
            yield target, f"waits for node {source} {words}"


def _through(edges: Sequence[GraphEdge], wanted: Collection[_Pair], both: Collection[int]) -> set[_Pair]:
    """Return those of the pairs that are connected by nodes that only one graph has."""
    before: dict[int, list[int]] = {}
    for edge in edges:
        before.setdefault(edge.target, []).append(edge.source)
    found = set()
    for target in {target for _, target in wanted}:
        seen = set()
        left = [target]
        while left:
            for source in before.get(left.pop(), ()):
                if source in seen:
                    continue
                seen.add(source)
                if source not in both:
                    left.append(source)
                elif (source, target) in wanted:
                    found.add((source, target))
    return found
