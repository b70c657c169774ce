"""Help with Python itself: forks and exits, ends of ``with`` blocks, threads, integers, exceptions."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any


@cache
def in_c() -> Any:
    """Return the C extension; None without one. Whoever asks first imports it."""
    return import_module("accelerator_graph._core.extension").fast
