"""A description in a file, whose suffix says what it is."""

from __future__ import annotations

from .description import GraphDescription
from .drawing import FORMATS, draw, to_dot


def write_description(description: GraphDescription, suffix: str, path: str) -> None:
    """Write ``.json``, a drawing as ``.svg``, ``.png`` or ``.pdf``, or for any other suffix DOT."""
    if suffix.removeprefix(".") in FORMATS:
        draw(description, suffix.removeprefix("."), path)
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(description.to_json(indent=1) if suffix == ".json" else to_dot(description))
