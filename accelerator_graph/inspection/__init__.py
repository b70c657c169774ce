"""Seeing what is in a graph: descriptions, what differs between two of them, files and pictures."""

from __future__ import annotations

TYPE_CHECKING: bool = False  # as in the package itself
if TYPE_CHECKING:
    from .description import GraphDescription as GraphDescription
    from .profile import GraphProfile as GraphProfile


def __getattr__(name: str) -> object:
    if name == "GraphDescription":
        from .description import GraphDescription

        return GraphDescription
    if name == "GraphProfile":
        from .profile import GraphProfile

        return GraphProfile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
