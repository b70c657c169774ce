"""Which frameworks take part in captures, and how to add another one.

The functions come from `accelerator_graph.interop.registry`, which is imported on the first use of one.
If you write a framework's interop module, read `accelerator_graph.interop.base`.
"""

from __future__ import annotations

TYPE_CHECKING: bool = False  # as in the package itself
if TYPE_CHECKING:
    from . import base as base
    from . import cuda_core as cuda_core
    from . import cupy as cupy
    from . import numba as numba
    from . import registry as registry
    from . import torch as torch
    from . import warp as warp
    from .registry import loaded, names, refresh, register, report, unregister

__all__ = ["loaded", "names", "refresh", "register", "report", "unregister"]

_MODULES = ["base", "cuda_core", "cupy", "numba", "registry", "torch", "warp"]


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
