"""A description in a file, whose suffix says what it is. The file is written as a whole, or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress

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


def write_file(path: str | os.PathLike[str], write: Callable[[str], object]) -> None:
    """Have `write` make a file, which replaces an existing one once it is whole.

    Parameters
    ----------
    path : path-like
        The file. A pipe or a device is written, not replaced.
    write : callable
        Takes the path to write to.

    Raises
    ------
    OSError
        The file can't be made; with `path` in the message.
    """
    path = os.path.realpath(os.fsdecode(path))
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if os.path.exists(path) and not os.path.isfile(path):
        write(path)
        return
    unfinished = ""
    try:
        while not unfinished:  # nobody can guess the name, so it is nobody else's file, or link to one
            name = os.path.join(os.path.dirname(path), f"{os.urandom(16).hex()}.tmp")
            try:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                unfinished = name
            except FileExistsError:
                continue
            except OSError as error:
                raise OSError(error.errno, error.strerror, path) from None
        write(unfinished)
        try:
            os.replace(unfinished, path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        unfinished = ""
    finally:
        if unfinished:
            with suppress(FileNotFoundError):
                os.unlink(unfinished)
