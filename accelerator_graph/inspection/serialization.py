"""Descriptions and memory reports as JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from reprlib import repr as shortened
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from ..backends.base import Frame, GraphContents, GraphEdge, GraphNode
from .contents import Label, all_nodes

if TYPE_CHECKING:
    from .description import GraphDescription

T = TypeVar("T")

SCHEMA = 1
"""The version of the schema. It changes when a field goes or changes its meaning; new fields do not count."""

_DEFAULTS = GraphNode._field_defaults


def to_json(description: GraphDescription, indent: int | None) -> str:
    """Return a description as JSON. Fields of nodes that say nothing are left out.

    Names as they are written in C++ are long, so they are in one table for all nodes. The frames of stacks,
    which nodes share, are in another.
    """
    shared = dict.fromkeys(frame for node in all_nodes(description.nodes) for frame in node.stack)
    frames = {frame: number for number, frame in enumerate(shared)}
    names = {node.name: node.demangled for node in all_nodes(description.nodes) if node.demangled}
    return json.dumps(
        {
            "schema": SCHEMA,
            "backend": description.backend,
            "device": description.device,
            **({"mode": description.mode} if description.mode else {}),
            **({"pool": description.pool} if description.pool else {}),
            **_contents(description.nodes, description.edges, frames),
            **({"labels": [label._asdict() for label in description.labels]} if description.labels else {}),
            **({"demangled": names} if names else {}),
            **({"frames": list(frames)} if frames else {}),
        },
        indent=indent,
    )


def from_json(text: str, kind: type[GraphDescription]) -> GraphDescription:
    """Return a description that was written as JSON, as an object of this class."""

    def read(data: dict[str, Any]) -> GraphDescription:
        frames = [record(Frame, each) for each in data.get("frames", ())]
        contents = _contents_of(data, _names(data.get("demangled", {})), frames)
        labels = _labels(data.get("labels", ()), len(contents[0]))
        rest = record(kind, data, nodes=(), edges=(), labels=())
        return kind.of(rest.backend, rest.device, contents, labels, rest.mode, rest.pool)

    return read_json(text, "the description of a graph", "description", SCHEMA, read)


def _contents(nodes: Any, edges: Any, frames: dict[Frame, int]) -> dict[str, Any]:
    return {
        "nodes": [_node(node, frames) for node in nodes],
        "edges": [list(filter(_said, edge)) for edge in edges],
    }


def _said(value: object) -> bool:
    return value != ""


def _node(node: GraphNode, frames: dict[Frame, int]) -> dict[str, Any]:
    said: dict[str, Any] = {
        name: value
        for name, value in node._asdict().items()
        if name != "demangled" and value != _DEFAULTS.get(name, ())
    }
    if node.bodies:
        said["bodies"] = [_contents(*body, frames) for body in node.bodies]
    if node.stack:
        said["stack"] = [frames[frame] for frame in node.stack]
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


def _contents_of(data: Any, names: dict[str, str], frames: list[Frame]) -> GraphContents:
    nodes = []
    for each in data["nodes"]:
        node = record(GraphNode, each, bodies=(), demangled="", stack=())
        bodies, at = (each.get(name, ()) if isinstance(each, dict) else () for name in ("bodies", "stack"))
        inside = tuple(_contents_of(body, names, frames) for body in bodies)
        stack = tuple(frames[number] for number in value(tuple[int, ...], [*at]))
        nodes.append(node._replace(bodies=inside, stack=stack, demangled=names.get(node.name, "")))
    edges = [record(GraphEdge, edge) for edge in data["edges"]]
    ids = range(len(nodes))
    if [node.id for node in nodes] != [*ids]:
        raise IndexError("the nodes are not numbered in their order")
    if not all(edge.source in ids and edge.target in ids for edge in edges):
        raise IndexError("a dependency names a node that does not exist")
    return nodes, edges


# ---- named tuples ---------------------------------------------------------------------------------


def written(value: tuple[Any, ...], indent: int | None = None, **others: object) -> str:
    """Return a named tuple as JSON, which `read_record` reads, with other facts that it does not read."""
    return json.dumps({"schema": SCHEMA, **others, **_plain(value)}, indent=indent)


def _plain(value: Any) -> Any:
    """Return named tuples as dicts."""
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def read_record(kind: Callable[..., T], text: str, what: str, short: str) -> T:
    """Return a named tuple that was written as JSON, or raise ValueError: see `read_json`."""
    return read_json(text, what, short, SCHEMA, partial(record, kind))


# ---- values that are read, with their types checked ------------------------------------------------


def read_json(text: str, what: str, short: str, newest: int, make: Callable[[dict[str, Any]], T]) -> T:
    """Return what `make` makes of the data, or raise ValueError.

    Parameters
    ----------
    text : str
        The JSON.
    what, short : str
        What it should be, for messages: at length, and in one word.
    newest : int
        The latest version of the schema that can be read.
    make : callable
        Raises KeyError, TypeError or IndexError if the data is damaged.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"the text is not JSON; read {what} that to_json() has written, or what is in its file."
        ) from error
    except RecursionError as error:
        raise ValueError(f"the {short} is nested too deeply; read one that to_json() has written.") from error
    if not isinstance(data, dict) or "schema" not in data:
        raise ValueError(f"the text is not {what}; read one that to_json() has written.")
    if data["schema"] not in range(1, newest + 1):
        raise ValueError(
            f"the {short} has schema {data['schema']!r}, and this accelerator_graph reads up to {newest}; "
            "read it with the version that wrote it, or a later one."
        )
    try:
        return make(data)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the {short} is damaged ({error!r}); write it again with to_json().") from error


def record(kind: Callable[..., T], data: Any, **others: object) -> T:
    """Return a named tuple of the fields that JSON has by their names, or in their order.

    Fields that are not known are ignored.

    Parameters
    ----------
    kind : type
        The class of named tuples.
    data : dict or list
        What JSON has.
    others
        Fields that are not taken from `data`.

    Raises
    ------
    TypeError
        A value is not of its field's type.
    KeyError
        A field is missing that has no default.
    """
    types, defaults = _types(kind), getattr(kind, "_field_defaults", {})
    if isinstance(data, list) and len(data) <= len(types):
        data = dict(zip(types, data, strict=False))
    if not isinstance(data, dict):
        raise TypeError(f"{getattr(kind, '__name__', kind)} can't be {shortened(data)}")
    read = {
        name: value(types[name], data[name], repr(name))
        for name in types
        if name not in others and (name in data or name not in defaults)
    }
    return kind(**read, **others)


def value(wanted: Any, data: object, name: str = "a value") -> Any:
    """Return what JSON has for a value of a type; TypeError, with its name, if it is of another one."""
    try:
        return _typed(wanted, data)
    except ValueError as error:
        raise TypeError(f"{name} can't be {shortened(data)}") from error


@cache
def _types(kind: Callable[..., object]) -> dict[str, Any]:
    return get_type_hints(kind)


def _typed(wanted: Any, value: Any) -> Any:
    """Return a value of a type; ValueError if it is none."""
    if type(value) is wanted:
        return value
    parts = get_args(wanted)
    if get_origin(wanted) is UnionType:
        if value is None and NoneType in parts:
            return None
        [wanted] = set(parts) - {NoneType}
        return _typed(wanted, value)
    if get_origin(wanted) is tuple and isinstance(value, list):
        if parts[-1] is ...:
            parts = parts[:1] * len(value)
        return tuple(_typed(part, each) for part, each in zip(parts, value, strict=True))
    if hasattr(wanted, "_fields"):
        return record(wanted, value)
    raise ValueError
