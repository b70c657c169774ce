"""The columns in which a picture of a graph puts its nodes."""

from __future__ import annotations

from collections.abc import Sequence

from ..backends.base import GraphEdge

MOST_LANES = 16
"""Further branches share the last lane, so that a picture does not grow without end."""


def lanes(count: int, edges: Sequence[GraphEdge]) -> list[int]:
    """Return a lane for each of a number of nodes, which are one below the other in their order.

    A chain stays in its lane. Where it forks, the successor with the longest way to go keeps the lane. The
    others go to lanes that have been empty since the fork, so that the line to them passes no other node.
    """
    before: list[list[int]] = [[] for _ in range(count)]
    last, length, heir = [-1] * count, [0] * count, [-1] * count
    for edge in sorted(edges, key=lambda edge: edge.target, reverse=True):
        source, target = edge.source, edge.target
        before[target].append(source)
        last[source] = max(last[source], target)
        if length[target] + 1 >= length[source]:
            length[source], heir[source] = length[target] + 1, target
    placed: list[int] = []
    tips: list[int] = []
    for node in range(count):
        kept = [placed[source] for source in before[node] if source < node and heir[source] == node]
        lane = min((each for each in kept if heir[tips[each]] == node), default=-1)
        if lane < 0:
            since = min(before[node], default=node)
            free = (each for each, tip in enumerate(tips) if max(tip, last[tip]) <= since)
            lane = next(free, min(len(tips), MOST_LANES - 1))
        tips[lane : lane + 1] = [node]
        placed.append(lane)
    return placed
