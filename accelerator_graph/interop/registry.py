"""Which frameworks take part: the built-in ones, third parties' by entry points, and what was registered.

`initialised`, `current_stream` and `as_stream` ask a framework. If it raises or answers nonsense, it is left
out with a warning, and all others go on working. Its other methods are called by the modules that need them,
and their exceptions pass.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import index
from threading import RLock
from typing import TypeVar

from .._interpreter.process import after_fork
from .._plugins.catalogue import Catalogue, raises_again
from .._plugins.entry_points import IMPORT_NAMES
from ..errors import BackendError, text_of
from .base import INTEROP_API_VERSION, Framework

T = TypeVar("T")

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
    allowed=IMPORT_NAMES,
)
_made: dict[str, Framework] = {}
_complaints: set[tuple[str, str]] = set()
"""Of which frameworks, and of which of their methods, has been complained."""
_left_out = 0
_lock = RLock()

names = _catalogue.names


def refresh() -> None:
    """Look again: forget what was found installed, and what failed."""
    _catalogue.refresh()
    _complaints.clear()


def loaded() -> list[Framework]:
    """Return the frameworks that have been imported, in order of their names. Imports none.

    A framework whose class can't be loaded or instantiated is left out with a warning.
    """
    return list(_loaded().values())


def initialised() -> Iterator[tuple[Framework, str]]:
    """Yield the frameworks that have initialised a backend, and that backend's name."""
    for framework in loaded():
        backend = _ask(framework, "backend", _backend_name)
        if backend is not None:
            yield framework, backend


def current_stream(framework: Framework) -> tuple[int, int] | None:
    """Return handle and device of a framework's current stream on this thread, if it has one."""
    return _ask(framework, "current_stream", _handle_and_device)


def as_stream(framework: Framework, obj: object) -> int | None:
    """Return the handle of a framework's own stream object; None if `obj` is not one."""
    return _ask(framework, "as_stream", index, obj)


def complain(framework: Framework, method: str, problem: str) -> None:
    """Warn, once until `refresh`, that a framework is left out because of what one of its methods did."""
    name = _name_of(framework)
    _complain(name, method, f"framework {name!r}: its {method}() {problem}")


def _loaded() -> dict[str, Framework]:
    found = {}
    for name in () if _left_out else names():
        if name in sys.modules:
            framework = _made.get(name)
            if framework is None:
                framework = _make(name)
            if framework is not None:
                found[name] = framework
    return found


def active(backend: str) -> list[Framework]:
    """Return the frameworks that have been imported and have initialised this backend."""
    return [framework for framework, name in initialised() if name == backend]


def active_by_name(backend: str) -> dict[str, Framework]:
    """Return the same by the names that they are imported by."""
    return {_name_of(framework): framework for framework in active(backend)}


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
        found = _catalogue.load(name)
    except BackendError as error:
        _complain(name, "", str(error))
        return None
    try:
        framework = found()
    except (Exception, SystemExit) as error:
        if not raises_again(found):
            raise
        _complain(name, "__init__", f"framework {name!r}: its __init__() failed with {text_of(error)}")
        return None
    with _lock:
        return _made.setdefault(name, framework)


def _ask(framework: Framework, method: str, read: Callable[..., T], *args: object) -> T | None:
    """Return what a framework answers, checked; None if it has no answer, or none that can be used."""

    def asked() -> T | None:
        answer = getattr(framework, method)(*args)
        return None if answer is None else read(answer)

    try:
        return asked()
    except (Exception, SystemExit) as error:
        if not raises_again(asked):
            raise
        complain(framework, method, f"failed with {text_of(error)}")
        return None


def _backend_name(answer: object) -> str:
    if not isinstance(answer, str):
        raise TypeError(f"the name of a backend must be a str, not {answer!r}")
    return answer


def _handle_and_device(answer: tuple[int, int]) -> tuple[int, int]:
    handle, device = answer
    return index(handle), index(device)


def _name_of(framework: Framework) -> str:
    return next((name for name, made in _made.items() if made is framework), type(framework).__name__)


def _complain(name: str, method: str, message: str) -> None:
    """Warn that a framework is left out: once for each method, until `refresh`."""
    if (name, method) not in _complaints:
        _complaints.add((name, method))
        warnings.warn(f"{message.rstrip('.')}; it is left out.", RuntimeWarning, stacklevel=2)


def register(name: str, target: str | type[Framework], *, replace: bool = False) -> None:
    """Make a framework known for this process, by its import name. Raises as `backends.register`."""
    _catalogue.register(name, target, replace=replace)
    _forget(name)


def unregister(name: str) -> None:
    """Forget a framework that was registered. ValueError if none was."""
    _catalogue.unregister(name)
    _forget(name)


def _forget(name: str) -> None:
    global _complaints
    with _lock:
        _made.pop(name, None)
        _complaints = {each for each in _complaints if each[0] != name}


def _after_fork() -> None:
    global _lock
    _lock = RLock()


after_fork(_after_fork)
