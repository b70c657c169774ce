"""Which frameworks are installed, found out without importing them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.metadata import Distribution
from typing import Any

import accelerator_graph as ag


def facts() -> list[dict[str, Any]]:
    """Return the report about every framework, with its installed version."""
    named = [
        (each.metadata["Name"], each)
        for each in importlib.metadata.distributions()
        if "Name" in each.metadata  # what is left of one may have no metadata
    ]
    return [{**row._asdict(), "installed": installed(row.name, named)} for row in ag.interop.report()]


def installed(name: str, named: Sequence[tuple[str, Distribution]]) -> str | None:
    """Return the version of a framework, ``"?"`` if it can't be told, and None if it is not installed.

    `named` are the installed distributions and their names.
    """
    if not can_be_imported(name):
        return None
    package, own = name.partition(".")[0], name.replace(".", "-")
    for called, distribution in named:
        if called == own:
            return distribution.version
    for called, distribution in named:
        if called.partition("-")[0] == package and provides(distribution, package):
            return distribution.version
    return "?"


def provides(distribution: Distribution, package: str) -> bool:
    """Return True if a distribution has files of a package."""
    return any(file.parts[0] == package for file in distribution.files or ())


def can_be_imported(name: str) -> bool:
    """Return True if a module is there. Imports no parent, unlike `importlib.util.find_spec`."""
    path: Sequence[str] | None = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None:
            return False
        path = list(spec.submodule_search_locations or ())
    return True


def in_words(row: Mapping[str, Any]) -> str:
    """Return whether a framework takes part in captures, and why not."""
    if row["usable"]:
        return f"takes part in captures on {row['backend']}"
    if row["imported"] or row["reason"] != "it is not imported":
        return str(row["reason"])
    if row["installed"] is None:
        return "not installed"
    return "takes part once your program has imported it"
