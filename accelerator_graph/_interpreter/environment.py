"""Environment variables. Some are read for every graph: a notebook can set one after a failure."""

from __future__ import annotations

import os
from functools import cache


def variable(name: str) -> str:
    """Return an environment variable without white space around it; empty if it is not set.

    `os.environ.get` raises and catches two exceptions if a variable is not set, which takes five times as
    long as to look into the dictionary beneath it first.
    """
    beneath = getattr(os.environ, "_data", None)
    if beneath is not None and _key(name) not in beneath:
        return ""
    return os.environ.get(name, "").strip()


def is_unset(*names: str) -> bool:
    """Return True if none of these environment variables is set, False if one is, or if that is not known."""
    beneath = getattr(os.environ, "_data", None)
    return beneath is not None and not any(map(beneath.__contains__, map(_key, names)))


_key = cache(os.environ.encodekey)
