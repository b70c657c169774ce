"""Looking into a graph."""

from __future__ import annotations

import os
from ctypes import byref, c_int, c_size_t
from pathlib import Path
from tempfile import TemporaryDirectory

from accelerator_graph.backends.base import GraphEdge, GraphNode

from ._library import Handle, Library

KINDS = (
    "empty",
    "graph",
    "kernel",
    "memcpy",
    "memset",
    "memset",
    "prefetch",
    "memadvise",
    "empty",
    "host",
    "native",
    "malloc",
    "free",
)
"""What the library calls the members of ``sycl::ext::oneapi::experimental::node_type``, by number. A barrier
only joins dependencies: it is an empty node."""


def node_count(library: Library, graph: Handle) -> int:
    """Return the number of nodes, those of barriers included."""
    count = c_size_t()
    library.call("size", graph.address, byref(count), None)
    return count.value


def list_nodes(library: Library, graph: Handle) -> tuple[list[GraphNode], list[GraphEdge]]:
    """Return the nodes in the order of recording, and their dependencies."""
    found, edges = c_size_t(), c_size_t()
    library.call("size", graph.address, byref(found), byref(edges))
    count, edge_count = found.value, edges.value
    types, pairs = (c_int * count)(), (c_size_t * (2 * edge_count))()
    library.call("nodes", graph.address, types, pairs)
    nodes = [GraphNode(index, _kind(number)) for index, number in enumerate(types)]
    return nodes, [GraphEdge(pairs[at], pairs[at + 1]) for at in range(0, 2 * edge_count, 2)]


def draw(library: Library, graph: Handle, path: str, verbose: bool) -> None:
    """Let the runtime write a graph to `path` in the DOT language."""
    with TemporaryDirectory() as folder:  # the runtime wants this suffix, and hides that it can't write
        drawing = Path(folder, "graph.dot")
        library.call("print", graph.address, os.fsencode(drawing), verbose)
        Path(path).write_bytes(drawing.read_bytes())


def _kind(number: int) -> str:
    return KINDS[number] if 0 <= number < len(KINDS) else "other"
