"""What differs in the dependencies of two graphs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ..backends.base import GraphEdge

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
