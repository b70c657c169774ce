"""Environment variables, read for every graph: a notebook can set one after a failure."""

from __future__ import annotations

import os


def variable(name: str) -> str:
    """Return an environment variable without white space around it; empty if it is not set.

    `os.environ.get` raises and catches two exceptions if a variable is not set, which takes five times as
    long as to look into the dictionary beneath it first.
    """
    environ = os.environ
    beneath = getattr(environ, "_data", None)
    if beneath is not None and environ.encodekey(name) not in beneath:
        return ""
    return environ.get(name, "").strip()
