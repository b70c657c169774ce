"""Which backends there are, and why one is or is not used.

The functions come from `accelerator_graph.backends.registry`, which is imported when one of them is
asked for. What the author of a backend needs stands in `accelerator_graph.backends.base`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .registry import get, names, refresh, register, report, resolve, unregister, use_backend

__all__ = ["get", "names", "refresh", "register", "report", "resolve", "unregister", "use_backend"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from . import registry

        return getattr(registry, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
