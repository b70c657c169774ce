"""Which frameworks take part: the built-in ones, third parties' by entry points, and what was registered."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from .._process import after_fork
from ..backends._catalogue import Catalogue
from .base import INTEROP_API_VERSION, Framework

BUILTINS = {
    "torch": "accelerator_graph.interop.torch:Torch",
    "cupy": "accelerator_graph.interop.cupy:CuPy",
    "numba.cuda": "accelerator_graph.interop.numba:Numba",
    "warp": "accelerator_graph.interop.warp:Warp",
    "cuda.core": "accelerator_graph.interop.cuda_core:CudaCore",
}

_catalogue: Catalogue[Framework] = Catalogue(
    kind="framework",
    group="accelerator_graph.interop",
    base=Framework,  # type: ignore[type-abstract]
    api_version=INTEROP_API_VERSION,
    builtins=BUILTINS,
)
_made: dict[str, Framework] = {}
_left_out = 0
_lock = RLock()

names = _catalogue.names
refresh = _catalogue.refresh


def loaded() -> list[Framework]:
    """Return the frameworks that have been imported, in order of their names. Imports none.

    One that can't take part, because its module here fails, is left out.
    """
    return list(_loaded().values())


def _loaded() -> dict[str, Framework]:
    found = {}
    for name in () if _left_out else names():
        if name in sys.modules:
            framework = _made.get(name) or _make(name)
            if framework is not None:
                found[name] = framework
    return found


def active(backend: str) -> list[Framework]:
    """Return those that have been imported and have initialised this backend."""
    return list(active_by_name(backend).values())


def active_by_name(backend: str) -> dict[str, Framework]:
    """Return the same by the names that they are imported by."""
    return {name: framework for name, framework in _loaded().items() if framework.backend() == backend}


@contextmanager
def left_out() -> Iterator[None]:
    """Have no framework take part, in any thread: for tests of a backend alone."""
    global _left_out
    with _lock:
        _left_out += 1
    try:
        yield
    finally:
        with _lock:
            _left_out -= 1


def _make(name: str) -> Framework | None:
    try:
        framework = _catalogue.load(name)()
    except Exception:  # a broken one must not keep others from capturing
        return None
    with _lock:
        return _made.setdefault(name, framework)


def register(name: str, target: str | type[Framework], *, replace: bool = False) -> None:
    """Make a framework known for this process, by its import name. Raises as `backends.register`."""
    _catalogue.register(name, target, replace=replace)
    with _lock:
        _made.pop(name, None)


def unregister(name: str) -> None:
    """Forget a framework that was registered. ValueError if none was."""
    _catalogue.unregister(name)
    with _lock:
        _made.pop(name, None)


def _after_fork() -> None:
    global _lock
    _lock = RLock()


after_fork(_after_fork)
