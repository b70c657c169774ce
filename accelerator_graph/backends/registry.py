"""Which backends there are, which one is meant, and the one opened instance of each.

A built-in backend is a line of `BUILTINS` and needs no metadata. Third parties use the entry-point
group ``accelerator_graph.backends``; only the one that is named is loaded, and automatic choice
loads them when no built-in accelerator is usable. No lock is held across an import, a probe or an
open.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Real
from threading import RLock
from typing import Any

from .._interpreter.process import after_fork
from .._plugins.catalogue import Catalogue
from ..errors import BackendContractError, BackendLoadError, UnknownBackendError
from ._registry.choice import Decision, any_usable, decide, nothing_usable
from ._registry.claim import claim as _claim
from ._registry.instances import Instances
from ._registry.naming import VARIABLE, Block, by_block, by_environment
from ._registry.report import BackendReport
from ._registry.report import report as _report
from .base import BACKEND_API_VERSION, Backend

BUILTINS = {
    "cpu": "accelerator_graph.backends.cpu:CpuBackend",
    "cuda": "accelerator_graph.backends.cuda:CudaBackend",
    "hip": "accelerator_graph.backends.hip:HipBackend",
}


class Registry:
    """A table of built-in backends with everything that was added to it.

    The functions of this module are the methods of the one registry that the library uses.
    """

    def __init__(self, builtins: Mapping[str, str]) -> None:
        self._catalogue: Catalogue[Backend] = Catalogue(
            kind="backend",
            group="accelerator_graph.backends",
            base=Backend,  # type: ignore[type-abstract]
            api_version=BACKEND_API_VERSION,
            builtins=builtins,
            reserved={"cpu", "cuda", "hip"},
            problem=_problem,
        )
        self._instances = Instances(self._catalogue.load)
        self._lock = RLock()
        self._decision: Decision | None = None
        self._epoch = object()
        after_fork(self._after_fork)

    # ---- by name -------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all known backends, in order. Loads none of them."""
        return self._catalogue.names()

    def load(self, name: str) -> type[Backend]:
        """Return the class of a backend: imported and checked, not opened.

        Raises
        ------
        UnknownBackendError
            Nothing has that name. The message has the known names and the closest match.
        BackendLoadError
            It can't be imported, or several different ones have that name. Kept until `refresh`.
        BackendContractError
            It is not a backend; the message says what is missing. Kept until `refresh`.
        """
        return self._catalogue.load(name)

    def get(self, name: str) -> Backend:
        """Return the one opened instance of a backend, opening it on first use.

        The registry owns it. If several threads ask at once, one opens it and the others wait.

        Raises
        ------
        UnknownBackendError, BackendLoadError, BackendContractError
            As `load`.
        BackendUnavailableError
            It can't run here, or was opened before this process was forked. The next call tries again.
        """
        return self._instances.get(name)

    # ---- by choice -----------------------------------------------------------------------------

    def chosen(self) -> str | None:
        """Return the name that `use_backend` or the environment gives; None if neither names one.

        Raises
        ------
        ValueError
            The value of ``ACCELERATOR_GRAPH_BACKEND`` can't be a name. Empty counts as unset.
        """
        return by_block() or by_environment()

    def resolve(self, name: str | None = None, *, cpu_fallback: bool = False) -> Backend:
        """Return the opened backend that is meant.

        That is the one that is named here, else by `use_backend`, else by
        ``ACCELERATOR_GRAPH_BACKEND``; else the first of cuda and hip that can be opened, else the
        third party with the highest priority; one whose priority is None has to be named. The
        automatic choice is made once in a process, and again after `refresh`, `register`,
        `unregister` or a fork.

        Parameters
        ----------
        name : str, optional
            The backend's name.
        cpu_fallback : bool
            Return the cpu backend if nobody has named one and no accelerator is usable.

        Raises
        ------
        BackendError
            As `get`, if somebody has named one.
        BackendUnavailableError
            No accelerator is usable. `reasons` says why, by name.
        """
        if name is not None:
            return self.get(name)
        chosen = self.chosen()
        if chosen is not None:
            try:
                return self.get(chosen)
            except UnknownBackendError as error:
                if by_block() is not None:
                    raise
                raise UnknownBackendError(f"{VARIABLE} is set, but {error}") from None
        decision = self._decide()
        if decision.backend is not None:
            return decision.backend
        if cpu_fallback:
            return self.get("cpu")
        raise nothing_usable(decision.reasons)

    def _decide(self) -> Decision:
        decision = self._decision
        if decision is None:
            epoch = self._epoch
            decision = decide(self._catalogue, self._instances)
            with self._lock:
                if self._epoch is epoch:  # else the tables have changed meanwhile: don't keep it
                    decision = self._decision = self._decision or decision
        return decision

    def usable(self, name: str | None = None) -> bool:
        """Return True if a backend probes usable; without a name, if automatic choice has one that does.

        Opens nothing.

        Raises
        ------
        UnknownBackendError
            Nothing has that name. A plug-in that is known and broken is just not usable.
        """
        if name is None:
            return any_usable(self._catalogue, self._instances)
        try:
            return self._instances.availability(name).usable
        except (BackendLoadError, BackendContractError):
            return False

    def claim(self, obj: object, reasons: dict[str, str] | None = None) -> tuple[Backend, Any] | None:
        """Return the backend whose runtime defined a stream object, and the stream it stands for.

        The backends to ask follow from the packages that define the object's classes; the one that
        `chosen` names is asked first. None if no backend claims it. The object stays its owner's.

        Parameters
        ----------
        obj : object
            The stream object.
        reasons : dict of str to str, optional
            Why plug-ins could not be asked is added here, by name.

        Raises
        ------
        AcceleratorGraphError, ValueError
            No backend claims it, and one for the package that defines it can't be used or refuses it.
        """
        return _claim(
            obj, self.chosen(), self._catalogue, self._instances, {} if reasons is None else reasons
        )

    def use_backend(self, name: str) -> Block:
        """Name the backend for a ``with`` block, where no `backend` argument does.

        Applies to this thread (or task); threads that are started inside don't inherit it. It also
        decorates a function. Without either it does nothing, and a RuntimeWarning says so.

        Raises
        ------
        BackendError
            At once, as `get`: it is unknown, broken, or does not probe usable. It is not opened yet.
        """
        self._instances.require(name)
        return Block(name)

    # ---- the tables ----------------------------------------------------------------------------

    def register(self, name: str, target: str | type[Backend], *, replace: bool = False) -> None:
        """Make a backend known for this process, without an installed distribution.

        Parameters
        ----------
        name : str
            ``[a-z][a-z0-9_]*``, but not cpu, cuda or hip.
        target : str or type
            ``"module:Class"``, imported when the backend is first needed, or the class.
        replace : bool
            Replace what is registered under that name. Graphs of the former one keep it.

        Raises
        ------
        ValueError
            The name or the target has the wrong form, or the name is taken.
        BackendContractError
            The class is not a backend.

        Notes
        -----
        An installed plug-in of the same name is not replaced: choosing the name is then an error.
        """
        self._catalogue.register(name, target, replace=replace)
        self._instances.forget(name)
        self._start_over()

    def unregister(self, name: str) -> None:
        """Forget a backend that was registered. Graphs of it keep it. ValueError if none was."""
        self._catalogue.unregister(name)
        self._instances.forget(name)
        self._start_over()

    def refresh(self) -> None:
        """Look again: forget what was found installed, what failed, and the automatic choice.

        Opened backends stay opened.
        """
        self._catalogue.refresh()
        self._instances.forget_failures()
        self._start_over()

    def report(self) -> list[BackendReport]:
        """Load every backend, each on its own, and say what is known of it. Opens none; never raises.

        Entry points that take no part, because of their name, come last.
        """
        return _report(self._catalogue, self._instances)

    def _start_over(self) -> None:
        with self._lock:
            self._epoch = object()
            self._decision = None

    def _after_fork(self) -> None:
        self._lock = RLock()
        self._start_over()


def _problem(backend: type[Backend]) -> str:
    """Return what is wrong with the attributes of a class that decide about other backends, too."""
    priority: Any = backend.priority
    wrong = isinstance(priority, bool) or not isinstance(priority, Real) or priority != priority
    if priority is not None and wrong:
        return f"has a wrong priority: priority must be a number or None, not {priority!r}"
    modules: object = backend.stream_modules
    if (
        isinstance(modules, str)
        or not isinstance(modules, Collection)
        or not all(isinstance(module, str) for module in modules)
    ):
        return f"has wrong stream_modules: stream_modules must be a set of names, not {modules!r}"
    return ""


_registry = Registry(BUILTINS)

names = _registry.names
load = _registry.load
get = _registry.get
chosen = _registry.chosen
resolve = _registry.resolve
usable = _registry.usable
claim = _registry.claim
use_backend = _registry.use_backend
register = _registry.register
unregister = _registry.unregister
refresh = _registry.refresh
report = _registry.report
