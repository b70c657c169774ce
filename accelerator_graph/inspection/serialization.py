"""Descriptions as JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from ..backends.base import GraphContents, GraphEdge, GraphNode
from .contents import DescribedGraph, Label, all_nodes
from .records import record
from .schema import read_json

D = TypeVar("D", bound=DescribedGraph)

SCHEMA = 1
"""The version of the schema. It changes when a field goes or changes its meaning; new fields do not count."""

_DEFAULTS = GraphNode._field_defaults


def to_json(description: DescribedGraph, indent: int | None) -> str:
    """Return a description as JSON. Fields of nodes that say nothing are left out.

    Names as they are written in C++ are long, so they are in one table for all nodes.
    """
    names = {node.name: node.demangled for node in all_nodes(description.nodes) if node.demangled}
    return json.dumps(
        {
            "schema": SCHEMA,
            "backend": description.backend,
            "device": description.device,
            **({"mode": description.mode} if description.mode else {}),
            **({"pool": description.pool} if description.pool else {}),
            **_contents(description.nodes, description.edges),
            **({"labels": [label._asdict() for label in description.labels]} if description.labels else {}),
            **({"demangled": names} if names else {}),
        },
        indent=indent,
    )


def from_json(text: str, make: Callable[..., D]) -> D:
    """Return what `make`, which is `GraphDescription.of`, makes of a description that was written as JSON."""
    return read_json(
        text, "the description of a graph", "description", SCHEMA, lambda data: make(*_description(data))
    )


def _description(data: dict[str, Any]) -> tuple[object, ...]:
    contents = _read(data, _names(data.get("demangled", {})))
    labels = _labels(data.get("labels", ()), len(contents[0]))
    rest = record(DescribedGraph, data, nodes=(), edges=(), labels=())
    return rest.backend, rest.device, contents, labels, rest.mode, rest.pool


def _contents(nodes: Any, edges: Any) -> dict[str, Any]:
    return {"nodes": [_node(node) for node in nodes], "edges": [list(filter(_said, edge)) for edge in edges]}


def _said(value: object) -> bool:
    return value != ""


def _node(node: GraphNode) -> dict[str, Any]:
    said: dict[str, Any] = {
        name: value
        for name, value in node._asdict().items()
        if name != "demangled" and value != _DEFAULTS.get(name, ())
    }
    if node.bodies:
        said["bodies"] = [_contents(*body) for body in node.bodies]
    return said


def _labels(data: Any, count: int) -> tuple[Label, ...]:
    labels = tuple(record(Label, each) for each in data)
    if not all(0 <= label.start < label.stop <= count for label in labels):
        raise IndexError("a label names nodes that do not exist")
    return labels


def _names(data: Any) -> dict[str, str]:
    if not isinstance(data, dict) or not all(isinstance(name, str) for name in data.values()):
        raise TypeError("the table of names is not a table")
    return data


def _read(data: Any, names: dict[str, str]) -> GraphContents:
    nodes = []
    for each in data["nodes"]:
        node = record(GraphNode, each, bodies=(), demangled="")
        bodies = each.get("bodies", ()) if isinstance(each, dict) else ()
        inside = tuple(_read(body, names) for body in bodies)
        nodes.append(node._replace(bodies=inside, demangled=names.get(node.name, "")))
    edges = [record(GraphEdge, edge) for edge in data["edges"]]
    ids = range(len(nodes))
    if [node.id for node in nodes] != [*ids]:
        raise IndexError("the nodes are not numbered in their order")
    if not all(edge.source in ids and edge.target in ids for edge in edges):
        raise IndexError("a dependency names a node that does not exist")
    return nodes, edges
