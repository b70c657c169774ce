"""Graphs in files: what is in one, and what differs between two."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import accelerator_graph as ag

from ..inspection.files import write_description, write_difference, write_file
from ..inspection.text import table


def show_graph(path: str, output: str | None) -> None:
    """Print all nodes of a graph, or draw it into a file whose suffix says what it is."""
    description = read_graph(path)
    if output is None:
        print(table(description, most=len(description.nodes)))
    else:
        draw(output, partial(write_description, description))


def show_difference(old: str, new: str, output: str | None) -> bool:
    """Print what is different in the second graph, or draw both; return True if anything is different."""
    graphs = read_graph(old), read_graph(new)
    differences = ag.diff(*graphs)
    if output is None:
        print("\n".join(differences) if differences else "the graphs are equal")
    else:
        draw(output, partial(write_difference, *graphs, (old, new)))
    return bool(differences)


def draw(output: str, write: Callable[[str, str], None]) -> None:
    """Draw into a file with a function of the suffix and the path."""
    suffix = Path(output).suffix.lower()
    write_file(output, partial(write, suffix))


def read_graph(path: str) -> ag.GraphDescription:
    """Read the description of a graph; ValueError with the file's name if it is not one."""
    try:
        return ag.GraphDescription.from_json(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError) or isinstance(error.__cause__, json.JSONDecodeError):
            wanted = "name a .json file that Graph.debug_dump has written"
            raise ValueError(f"{path} is not JSON; {wanted}.") from error
        raise ValueError(f"{path}: {error}") from error
