"""Which backends there are, and why one is or is not used.

The functions come from `accelerator_graph.backends.registry`, which is imported on the first use of one.
If you write a backend, read `accelerator_graph.backends.base`.
"""

from __future__ import annotations

TYPE_CHECKING = bool()  # noqa: UP018 (as in the package itself)
if TYPE_CHECKING:
    from .registry import chosen, get, names, refresh, register, report, resolve, unregister, use_backend

__all__ = ["chosen", "get", "names", "refresh", "register", "report", "resolve", "unregister", "use_backend"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from . import registry

        return getattr(registry, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
