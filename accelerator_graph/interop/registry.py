"""Which frameworks take part: built-in ones, third parties' with entry points, and registered ones.

`initialised`, `current_stream` and `as_stream` ask a framework. If it raises or gives a wrong answer, it is
left out with a warning, and the others go on working. The modules that call its other methods let
exceptions pass.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import index
from threading import RLock
from typing import TYPE_CHECKING, Final, TypeVar

from .._interpreter import imported_on_use, message_of, raises_again, text_of
from .._interpreter.interruptions import after_fork
from .._plugins import IMPORT_NAMES, Catalogue
from ..errors import BackendError, BackendLoadError
from . import base
from .base import INTEROP_API_VERSIONS, Framework, Inspectable, PoolId, has_hooks

if TYPE_CHECKING:
    from .records import FrameworkReport as FrameworkReport
else:
    __getattr__ = imported_on_use(__name__, {f"{__package__}.records": "FrameworkReport"})

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
    base=Framework,
    api_versions=INTEROP_API_VERSIONS,
    builtins=BUILTINS,
    allowed=IMPORT_NAMES,
    refreshed_by="accelerator_graph.interop.refresh()",
)
_made: dict[str, Framework] = {}
_initialised: dict[Framework, str] = {}
"""The backends of the frameworks that have named theirs: they are not asked again."""
_complaints: dict[tuple[str, str], str] = {}
"""The warnings so far, by the framework's name and the method that was the cause."""
_lock = RLock()


# ---- the tables --------------------------------------------------------------------------------


names: Final = _catalogue.names


def register(name: str, target: str | type[Framework], *, replace: bool = False) -> None:
    """Make a framework known for this process, by its import name. Raises as `backends.register`."""
    _catalogue.register(name, target, replace=replace)
    _forget(name)


def unregister(name: str) -> None:
    """Forget a registered framework. Raise ValueError if the name is not registered."""
    _catalogue.unregister(name)
    _forget(name)


def refresh() -> None:
    """Forget which plug-ins are installed, and which frameworks failed."""
    _catalogue.refresh()
    _complaints.clear()
    _initialised.clear()


def report() -> list[base.FrameworkReport]:
    """Return a row of facts about every framework. Imports no framework and never raises.

    Entry points that are ignored because of their names come last.
    """
    from .records import FrameworkReport

    rows = [_row(name) for name in names()]
    rows += [FrameworkReport(each.name, each.origin, reason=each.reason) for each in _catalogue.ignored()]
    return rows


def _row(name: str) -> base.FrameworkReport:
    from .records import FrameworkReport

    origin = _catalogue.origin(name)
    imported = name in sys.modules
    if not imported and len(_catalogue.find(name)) == 1:
        return FrameworkReport(name, origin, reason="it is not imported")
    try:
        framework = _instance(name)
    except BackendError as error:
        reason = message_of(error).removeprefix(f"framework {name!r}: ")
        return FrameworkReport(name, origin, imported, reason=reason)
    question = framework, "backend", _backend_name
    try:
        backend = _answer(*question)
        problems = [text for (each, _), text in list(_complaints.items()) if each == name]
    except (Exception, SystemExit) as error:
        if not raises_again(partial(_answer, *question)):
            raise
        backend, problems = None, [f"its backend() failed with {text_of(error)}"]
    reason = "" if backend else "it has not initialised a device"
    if problems:
        reason = problems[0].removeprefix(f"framework {name!r}: ")
    return FrameworkReport(name, origin, imported, True, not reason, reason, backend)


def _forget(name: str) -> None:
    with _lock:
        made = _made.pop(name, None)
        if made is not None:
            _initialised.pop(made, None)
        for key in list(_complaints):
            if key[0] == name:
                del _complaints[key]


# ---- asking ------------------------------------------------------------------------------------


def loaded() -> list[Framework]:
    """Return the frameworks that the program has imported, in alphabetical order. Imports none.

    A framework whose class can't be loaded or instantiated is left out with a warning.
    """
    modules = sys.modules
    return [made for name in names() if name in modules and (made := _made.get(name) or _usable(name))]


def _usable(name: str) -> Framework | None:
    """Return the instance of a framework; None, after a warning, if there can't be one."""
    try:
        return _instance(name)
    except BackendError as error:
        _complain(name, "__init__", message_of(error))
        return None


def initialised() -> list[tuple[Framework, str]]:
    """Return the frameworks that have initialised a backend, and that backend's name."""
    modules, found = sys.modules, []
    for name in _catalogue.known or names():
        if name in modules and (framework := _made.get(name) or _usable(name)) is not None:
            backend = _initialised.get(framework) or _ask_backend(framework)
            if backend is not None:
                found.append((framework, backend))
    return found


def _ask_backend(framework: Framework) -> str | None:
    backend = _ask(framework, "backend", _backend_name)
    if backend is not None:
        _initialised[framework] = backend
    return backend


def active(backend: str) -> list[Framework]:
    """Return the frameworks that have been imported and have initialised this backend."""
    return [framework for framework, name in initialised() if name == backend]


def inspectable(backend: str) -> list[Inspectable]:
    """Return those of the same frameworks that `verify` and `diagnose` can see into."""
    return [each for each in active(backend) if isinstance(each, Inspectable)]


def taking_part(backend: str) -> Sequence[Framework]:
    """Return those of the same frameworks that have something to do in a capture."""
    return those_taking_part(initialised(), backend)


def those_taking_part(found: Iterable[tuple[Framework, str]], backend: str) -> Sequence[Framework]:
    """Return the same of these frameworks, with the backends that they have initialised."""
    return [each for each, name in found if name == backend and has_hooks(type(each))]


def active_by_name(backend: str) -> dict[str, Framework]:
    """Return the same frameworks by their import names."""
    return {_name_of(framework): framework for framework in active(backend)}


def current_streams(backend: str | None = None) -> list[tuple[Framework, str, tuple[int, int] | None]]:
    """Return the frameworks that have initialised a backend, or this one, and their current streams.

    Each framework with the name of its backend, and handle and device of its current stream on this thread,
    or None without one.
    """
    found = []
    for framework, name in initialised():
        if backend is None or backend == name:
            stream = None
            try:
                answer = framework.current_stream()
                if answer is not None:
                    handle, device = answer
                    stream = index(handle), index(device)
            except (Exception, SystemExit) as error:
                if not _is_left_out(framework, "current_stream", error, _handle_and_device):
                    raise
            found.append((framework, name, stream))
    return found


def as_stream(framework: Framework, obj: object) -> int | None:
    """Return the handle of a framework's own stream object; None if `obj` is not one."""
    return _ask(framework, "as_stream", index, obj)


def pool_contents(frameworks: Iterable[Framework], pool: PoolId, device: int) -> base.PoolContents | None:
    """Return what these frameworks together have in a pool; None if one of them does not report."""
    from .records import PoolContents

    found = [_ask(each, "pool_contents", _contents, pool, device) for each in frameworks]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    used = [each.used for each in known if each.used is not None]
    segments = sorted(segment for each in known for segment in each.segments)
    return PoolContents(tuple(segments), sum(used) if len(used) == len(known) else None)


def complain(framework: Framework, method: str, problem: str) -> None:
    """Warn, once until `refresh`, that a framework is left out because of one of its methods."""
    name = _name_of(framework)
    _complain(name, method, f"framework {name!r}: its {method}() {problem}")


def _complain(name: str, method: str, message: str) -> None:
    if (name, method) not in _complaints:
        _complaints[name, method] = message
        warnings.warn(f"{message}; it is left out.", RuntimeWarning, stacklevel=2)


def _instance(name: str) -> Framework:
    """Return the one instance of a framework's class, made on first use."""
    framework = _made.get(name)
    if framework is not None:
        return framework
    kind = _catalogue.load(name)
    try:
        framework = kind()
    except (Exception, SystemExit) as error:
        if not raises_again(kind):
            raise
        problem = f"its __init__() failed with {text_of(error)}"
        raise BackendLoadError(f"framework {name!r}: {problem}.") from error
    with _lock:
        return _made.setdefault(name, framework)


def _ask(framework: Framework, method: str, read: Callable[..., T], *args: object) -> T | None:
    """Return a framework's answer; None, after a warning, if the method raises or the answer is wrong."""
    try:
        answer = getattr(framework, method)(*args)
        return None if answer is None else read(answer)
    except (Exception, SystemExit) as error:
        if not _is_left_out(framework, method, error, read, *args):
            raise
        return None


def _is_left_out(
    framework: Framework, method: str, error: BaseException, read: Callable[..., object], *args: object
) -> bool:
    """Warn that a framework is left out if its method raises again; return False if it does not."""
    if not raises_again(partial(_answer, framework, method, read, *args)):
        return False
    complain(framework, method, f"failed with {text_of(error)}")
    return True


def _answer(framework: Framework, method: str, read: Callable[..., T], *args: object) -> T | None:
    """Return a framework's answer, read by a function that checks it."""
    answer = getattr(framework, method)(*args)
    return None if answer is None else read(answer)


def _backend_name(answer: object) -> str:
    if not isinstance(answer, str):
        raise TypeError(f"the name of a backend must be a str, not {answer!r}")
    return answer


def _handle_and_device(answer: tuple[int, int]) -> tuple[int, int]:
    handle, device = answer
    return index(handle), index(device)


def _contents(answer: base.PoolContents) -> base.PoolContents:
    from .records import PoolContents

    if not isinstance(answer, PoolContents):
        raise TypeError(f"the contents of a pool must be PoolContents, not {answer!r}")
    return answer


def _name_of(framework: Framework) -> str:
    return next((name for name, made in _made.items() if made is framework), type(framework).__name__)


def _after_fork() -> None:
    global _lock
    _lock = RLock()
    _initialised.clear()  # a device that the parent has initialised is not usable here


after_fork(_after_fork)
