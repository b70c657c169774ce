"""A description in a file, whose suffix says what it is."""

from __future__ import annotations

from .description import GraphDescription
from .drawing import FORMATS, draw, to_dot
from .profile import GraphProfile

SUFFIXES = (".html", ".json", *(f".{each}" for each in FORMATS), ".dot", ".gv")
"""The ends of the names of files that a graph is written to. Other files are DOT as well, as with torch."""


def write_description(
    description: GraphDescription, suffix: str, path: str, profile: GraphProfile | None = None
) -> None:
    """Write ``.json``, a page as ``.html``, a drawing as ``.svg``, ``.png`` or ``.pdf``, or else DOT.

    Raises
    ------
    TypeError
        The profile is something else.
    ValueError
        There is a profile, and the file is not a page, or the labels are others.
    """
    if profile is not None:
        if not isinstance(profile, GraphProfile):
            raise TypeError(f"debug_dump: profile must be what Graph.profile() returns, not {profile!r}.")
        if suffix != ".html":
            raise ValueError(f"only a page shows times; the name must end in .html, not {suffix!r}.")
        if not {each.label for each in profile.labels} <= set(description.labels):
            raise ValueError("the profile has labels that the graph has not; profile this graph.")
    if suffix.removeprefix(".") in FORMATS:
        draw(description, suffix.removeprefix("."), path)
        return
    if suffix == ".json":
        text = description.to_json(indent=1)
    elif suffix == ".html":
        from .page import to_html

        text = to_html(description, profile)
    else:
        text = to_dot(description)
    _write_text(path, text)


def write_difference(
    a: GraphDescription, b: GraphDescription, titles: tuple[str, str], suffix: str, path: str
) -> None:
    """Write a page with two graphs side by side.

    Raises
    ------
    ValueError
        The suffix is not ``.html``.
    """
    if suffix != ".html":
        raise ValueError(f"two graphs side by side are a page, whose name must end in .html, not {suffix!r}.")
    from .page import diff_to_html

    text = diff_to_html(a, b, titles)
    _write_text(path, text)


def _write_text(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
