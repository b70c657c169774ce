"""Which backends there are, and why one is or is not used.

The functions come from `accelerator_graph.backends.registry`, which is imported on the first use of one.
If you write a backend, read `accelerator_graph.backends.base`.
"""

from __future__ import annotations

TYPE_CHECKING: bool = False  # as in the package itself
if TYPE_CHECKING:
    from . import base as base
    from . import cpu as cpu
    from . import cuda as cuda
    from . import hip as hip
    from . import memory as memory
    from . import mixins as mixins
    from . import recording as recording
    from . import registry as registry
    from .registry import chosen, get, names, refresh, register, report, resolve, unregister, use_backend

__all__ = ["chosen", "get", "names", "refresh", "register", "report", "resolve", "unregister", "use_backend"]

_MODULES = ["base", "cpu", "cuda", "hip", "memory", "mixins", "recording", "registry"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from . import registry

        return getattr(registry, name)
    if name in _MODULES:
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
