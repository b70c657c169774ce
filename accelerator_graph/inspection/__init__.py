"""Seeing what is in a graph: descriptions, what differs between two of them, files and pictures."""

from __future__ import annotations

TYPE_CHECKING: bool = False  # as in the package itself
if TYPE_CHECKING:
    from .description import GraphDescription as GraphDescription
    from .fingerprint import Fingerprint as Fingerprint
    from .memory import GraphMemory as GraphMemory
    from .memory_check import MemoryCheck as MemoryCheck
    from .profile import GraphProfile as GraphProfile

_HOMES = {
    "Fingerprint": "fingerprint",
    "GraphDescription": "description",
    "GraphMemory": "memory",
    "MemoryCheck": "memory_check",
    "GraphProfile": "profile",
}
"""What methods of `Graph` return, by the module that defines it, which is imported on first use."""


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
