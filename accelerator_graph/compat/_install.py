"""Replacing torch's names, and restoring them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from operator import attrgetter
from typing import Any

from .._core import ownership

_PLACES = {
    "CUDAGraph": ("cuda", "cuda.graphs"),
    "graph": ("cuda", "cuda.graphs"),
    "Graph": ("accelerator", "accelerator.graphs"),
    "empty_cache": ("cuda", "cuda.memory"),
}
"""The modules of torch that have each name. The first of them always exists."""

_missing = object()


def classes() -> dict[str, Any]:
    """Return the classes that stand in for torch's. Each remembers the class that has its name now.

    Raises
    ------
    ImportError
        torch is not installed.
    """
    from ._context import graph
    from ._graphs import CUDAGraph, Graph, torch_module

    torch = torch_module()
    ours = {"CUDAGraph": CUDAGraph, "graph": graph, "Graph": Graph}
    for name, kind in ours.items():
        present = getattr(attrgetter(_PLACES[name][0])(torch), name, None)
        if not _stands_in(present, kind):
            kind.torchs_own = present  # type: ignore[attr-defined]
    return ours


def install() -> ExitStack:
    """Replace torch's names for graphs by this library's, for the whole process.

    `torch.cuda.empty_cache` is replaced as well: it first releases the memory of graphs that are gone. Names
    that were imported from torch before, and graphs that were made before, stay torch's own.

    Returns
    -------
    contextlib.ExitStack
        Its `close` restores the names, and so does leaving it as a context manager. If it is dropped, they
        stay replaced.

    Raises
    ------
    ImportError
        torch is not installed.
    """
    from ._graphs import torch_module

    ours = classes()
    torch = torch_module()
    if not hasattr(torch.cuda.empty_cache, "torchs_own"):
        ours["empty_cache"] = _emptying(torch.cuda.empty_cache)
    with ExitStack() as undo:
        for name, stand_in in ours.items():
            for place in _PLACES[name]:
                try:
                    module = attrgetter(place)(torch)
                except AttributeError:
                    continue  # torch 2.11 has no torch.accelerator.graphs
                present = getattr(module, name, _missing)
                if not _stands_in(present, stand_in):
                    undo.callback(_put_back, module, name, present, stand_in)
                    setattr(module, name, stand_in)
        return undo.pop_all()


def _stands_in(present: Any, stand_in: Any) -> bool:
    """Return True if a name has our class already, or a class derived from it."""
    return isinstance(present, type) and isinstance(stand_in, type) and issubclass(present, stand_in)


def _put_back(module: Any, name: str, before: Any, stand_in: Any) -> None:
    if getattr(module, name, None) is not stand_in:
        return  # somebody else has replaced it since
    if before is _missing:
        delattr(module, name)
    else:
        setattr(module, name, before)


def _emptying(torchs_own: Callable[[], None]) -> Callable[[], None]:
    def empty_cache() -> None:
        """As torch's own, after the memory of graphs that are gone has been released."""
        ownership.drain()
        torchs_own()

    empty_cache.torchs_own = torchs_own  # type: ignore[attr-defined]
    return empty_cache
