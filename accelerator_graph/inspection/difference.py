"""What differs between two graphs, in words."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ..backends.base import GraphContents, GraphNode
from .dependencies import changed_dependencies
from .description import GraphDescription
from .label_changes import Labels, changed_labels, matched
from .names import case, printable, title
from .node_changes import NodeChange, changes_of
from .pairing import Place, paired
from .text import listed, named, numbers


class Comparison(NamedTuple):
    """What differs between two graphs."""

    sentences: list[str]
    """All differences, in words."""
    pairs: dict[int, int]
    """The nodes that both graphs have: the id in the first one to the id in the second one."""
    changes: dict[int, list[str]]
    """What is different in a node that both have, in words, by its id in the second graph."""


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
