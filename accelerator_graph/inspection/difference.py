"""What differs between two graphs, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from ..backends.base import GraphEdge, GraphNode
from .description import GraphDescription, Label
from .grouping import short_names
from .names import title
from .text import count, size

_FIELDS = {
    "name": "calls {0} instead of {1}",
    "grid": "has the grid {0} instead of {1}",
    "block": "has the block {0} instead of {1}",
    "shared_bytes": "has {0} of shared memory instead of {1}",
    "nbytes": "is of {0} instead of {1}",
    "value": "fills with {0} instead of {1}",
    "source": "reads at {0} instead of {1}",
    "target": "writes at {0} instead of {1}",
}

_MOST_PAIRS = 4_000_000
"""Beyond this many pairs of nodes, difflib leaves out very frequent ones, so that it takes seconds."""


class Comparison(NamedTuple):
    """What differs between two graphs."""

    sentences: list[str]
    """All differences, in words."""
    pairs: dict[int, int]
    """The nodes that both graphs have: the id in the first one to the id in the second one."""
    changes: dict[int, list[str]]
    """What is different in a node that both have, in words, by its id in the second graph."""


def diff(a: GraphDescription, b: GraphDescription) -> list[str]:
    """Return what is different in `b`, in a sentence for each difference; nothing if they are equal.

    Nodes are paired by their order, kind and function, as lines are in a comparison of two texts. So a node
    that was added in the middle is one difference. Labels are paired by their names.

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
    inside = _contents(a.nodes, a.edges, b.nodes, b.edges, "")
    return inside._replace(sentences=[*said, *inside.sentences, *_labels(a, b)])


def _modes(a: GraphDescription, b: GraphDescription) -> tuple[str, str]:
    """Return the modes; equal ones if one of them is not known."""
    return (a.mode, b.mode) if a.mode and b.mode else ("", "")


def _pools(a: GraphDescription, b: GraphDescription) -> tuple[str, str]:
    """Return the pools in words. The number of a graph's own pool says nothing."""
    if not a.pool or not b.pool:
        return "", ""
    old, new = (str(pool) if not pool[0] else "its own" for pool in (a.pool, b.pool))
    return old, new


def _contents(
    nodes: Sequence[GraphNode],
    edges: Sequence[GraphEdge],
    new_nodes: Sequence[GraphNode],
    new_edges: Sequence[GraphEdge],
    where: str,
) -> Comparison:
    said: list[str] = []
    pairs: dict[int, int] = {}
    changes: dict[int, list[str]] = {}
    for operation, i, i_end, j, j_end in _operations(nodes, new_nodes):
        if operation == "equal":
            for old, new in zip(nodes[i:i_end], new_nodes[j:j_end], strict=True):
                pairs[old.id] = new.id
                if different := _parameters(old, new, where):
                    changes[new.id] = different
                    said += different
        else:
            said += [f"{where}node {old.id} ({title(old)}) is gone" for old in nodes[i:i_end]]
            said += [f"{where}node {new.id} ({title(new)}) is new" for new in new_nodes[j:j_end]]
    for target, sentence in _dependencies(edges, new_edges, pairs, where):
        changes.setdefault(target, []).append(sentence)
        said.append(sentence)
    return Comparison(said, pairs, changes)


def _operations(
    nodes: Sequence[GraphNode], new_nodes: Sequence[GraphNode]
) -> list[tuple[str, int, int, int, int]]:
    """Return how to make the new list of nodes from the old one, as difflib does."""
    old, new = ([(node.kind, node.name) for node in each] for each in (nodes, new_nodes))
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    old_end, new_end = len(old) - end, len(new) - end
    middle_old, middle_new = old[start:old_end], new[start:new_end]
    frequent = len(middle_old) * len(middle_new) > _MOST_PAIRS
    middle = SequenceMatcher(None, middle_old, middle_new, autojunk=frequent).get_opcodes()
    return [
        ("equal", 0, start, 0, start),
        *((what, i + start, i_end + start, j + start, j_end + start) for what, i, i_end, j, j_end in middle),
        ("equal", old_end, len(old), new_end, len(new)),
    ]


def _common(old: list[tuple[str, str]], new: list[tuple[str, str]]) -> int:
    """Return how many elements two lists have in common at their beginnings."""
    return next(
        (index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )


def _parameters(old: GraphNode, new: GraphNode, where: str) -> list[str]:
    place = f"{where}node {new.id} ({title(new)})"
    said = [
        f"{place} {text.format(_shown(name, getattr(new, name)), _shown(name, getattr(old, name)))}"
        for name, text in _FIELDS.items()
        if getattr(old, name) != getattr(new, name)
    ]
    if len(old.bodies) != len(new.bodies):
        said.append(f"{place} has {count(len(new.bodies), 'body')} instead of {len(old.bodies)}")
    for before, after in zip(old.bodies, new.bodies, strict=False):
        said += _contents(*before, *after, f"inside {place}: ").sentences
    return said


def _dependencies(
    edges: Sequence[GraphEdge], new_edges: Sequence[GraphEdge], pairs: dict[int, int], where: str
) -> Iterator[tuple[int, str]]:
    """Compare the dependencies between nodes that both graphs have; yield a sentence with its target."""
    known = set(pairs.values())
    old = {
        (pairs[edge.source], pairs[edge.target]): edge.kind
        for edge in edges
        if edge.source in pairs and edge.target in pairs
    }
    new = {
        (edge.source, edge.target): edge.kind
        for edge in new_edges
        if edge.source in known and edge.target in known
    }
    for source, target in sorted(old.keys() | new.keys()):
        place = f"{where}node {target}"
        if (source, target) not in new:
            yield target, f"{place} does not wait for node {source} any more"
        elif (source, target) not in old:
            yield target, f"{place} waits for node {source}"
        elif old[source, target] != new[source, target]:
            kinds = old[source, target] or "ordinary", new[source, target] or "ordinary"
            sentence = f"{place} waits for node {source} by a {kinds[1]} dependency instead of {kinds[0]}"
            yield target, sentence


def _labels(a: GraphDescription, b: GraphDescription) -> list[str]:
    """Compare the labels by their names and those around them; where they are written does not count."""
    old, new = _sizes(a), _sizes(b)
    said = [f"{name} is gone" for name in old if name not in new]
    for name, nodes in new.items():
        if name not in old:
            said.append(f"{name} is new")
        elif nodes != old[name]:
            said.append(f"{name} has {count(nodes, 'node')} instead of {old[name]}")
    return said


def _sizes(description: GraphDescription) -> dict[str, int]:
    """Return how many nodes each label has. A name that is used again gets a number."""
    used: Counter[str] = Counter()
    sizes = {}
    around: list[Label] = []
    for label in description.labels:
        around = [outer for outer in around if label.stop <= outer.stop and label.start < outer.stop]
        around.append(label)
        name = f"label {' / '.join(short_names(around))!r}"
        used[name] += 1
        sizes[f"{name}, number {used[name]}," if used[name] > 1 else name] = label.stop - label.start
    return sizes


def _shown(name: str, value: object) -> str:
    match name, value:
        case _, None:
            return "nothing"
        case (("nbytes" | "shared_bytes"), int(nbytes)):
            return size(nbytes)
        case (("source" | "target"), int(address)):
            return f"{address:#x}"
    return str(value)
