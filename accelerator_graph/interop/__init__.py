"""Which frameworks take part in captures, and how to add another one.

The functions come from `accelerator_graph.interop.registry`, which is imported on the first use of one.
If you write a framework's interop module, read `accelerator_graph.interop.base`.
"""

from __future__ import annotations

TYPE_CHECKING = bool()  # noqa: UP018 (as in the package itself)
if TYPE_CHECKING:
    from .registry import loaded, names, refresh, register, report, unregister

__all__ = ["loaded", "names", "refresh", "register", "report", "unregister"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from . import registry

        return getattr(registry, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
