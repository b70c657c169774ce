"""The attributes of a backend's class that decide about other backends, too."""

from __future__ import annotations

from collections.abc import Collection
from numbers import Real
from typing import Any

from ..base import Backend


def problem_of(backend: type[Backend]) -> str:
    """Return the end of a sentence that begins with the class, or an empty string if all is well."""
    priority: Any = backend.priority
    wrong = isinstance(priority, bool) or not isinstance(priority, Real) or priority != priority
    if priority is not None and wrong:
        return f"has a wrong priority: priority must be a number or None, not {priority!r}"
    modules: object = backend.stream_modules
    if (
        isinstance(modules, str)
        or not isinstance(modules, Collection)
        or not all(isinstance(module, str) for module in modules)
    ):
        return f"has wrong stream_modules: stream_modules must be a set of names, not {modules!r}"
    return ""
