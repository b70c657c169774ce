"""Descriptions of graphs as captures make them: long chains with some forks."""

from __future__ import annotations

import accelerator_graph as ag
from accelerator_graph.backends.base import GraphEdge, GraphNode
from accelerator_graph.inspection.contents import Label


def described(nodes: list[GraphNode], edges: list[GraphEdge]) -> ag.GraphDescription:
    return ag.GraphDescription.of("cuda", 0, (nodes, edges))


def forked_chain(count: int) -> ag.GraphDescription:
    """A chain in which each tenth node forks a branch of one copy, joined by the node after the next."""
    nodes, edges = [], []
    for node in range(count):
        if node % 10 == 2:
            nodes.append(GraphNode(node, "memcpy", source=4096, target=8192, nbytes=node * 100))
        else:
            nodes.append(GraphNode(node, "kernel", f"step_{node}", (8, 1, 1), (256, 1, 1), 0))
        before = {3: [node - 2], 4: [node - 2, node - 1]}.get(node % 10, [node - 1])
        edges += [GraphEdge(each, node) for each in before if each >= 0]
    return described(nodes, edges)


def chain(*names: str) -> ag.GraphDescription:
    nodes = [GraphNode(index, "kernel", name) for index, name in enumerate(names)]
    return described(nodes, [GraphEdge(index, index + 1) for index in range(len(names) - 1)])


def labelled(
    description: ag.GraphDescription, *labels: tuple[str, int, int, str, int]
) -> ag.GraphDescription:
    """A description with labels: name, first node, end, file and line."""
    return description._replace(labels=tuple(Label(*each) for each in labels))
