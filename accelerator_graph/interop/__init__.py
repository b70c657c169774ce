"""Which frameworks take part in captures, and how another one can.

The functions come from `accelerator_graph.interop.registry`, which is imported when one of them is
asked for. What the author of a framework's module needs stands in `accelerator_graph.interop.base`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in the package itself
if TYPE_CHECKING:
    from .registry import loaded, names, refresh, register, unregister

__all__ = ["loaded", "names", "refresh", "register", "unregister"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from . import registry

        value: object = getattr(registry, name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
