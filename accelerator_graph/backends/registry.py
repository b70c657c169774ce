"""Which backends there are, which one is meant, and the one opened instance of each.

A built-in backend is a line of `BUILTINS` and needs no metadata. Third parties use the entry-point
group ``accelerator_graph.backends``. If you name one of them, only that one is loaded; automatic choice
loads all of them, but only if no built-in accelerator is usable. No lock is held during an import, a
probe or an open.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .._interpreter import imported_on_use, runs_later
from .._interpreter.outside import environment, keys, variable
from .._plugins import Catalogue, is_name
from ..errors import BackendContractError, BackendLoadError, UnknownBackendError
from . import _contract as contract
from ._registry.instances import Instances, problem_of
from .base import BACKEND_API_VERSIONS, AnyBackend, Backend

if TYPE_CHECKING:
    from ._contract import BackendReport as BackendReport
    from ._registry.choice import AutomaticChoice
else:
    __getattr__ = imported_on_use(__name__, {contract.__name__: "BackendReport"})

BUILTINS = {
    "cpu": "accelerator_graph.backends.cpu:CpuBackend",
    "cuda": "accelerator_graph.backends.cuda:CudaBackend",
    "hip": "accelerator_graph.backends.hip:HipBackend",
}
MEANT = {"gpu": "cuda", "nvidia": "cuda", "rocm": "hip", "amd": "hip"}
"""What people call a backend that has another name."""

_F = TypeVar("_F", bound=Callable[..., Any])

VARIABLE = "ACCELERATOR_GRAPH_BACKEND"
_KEYS = keys(VARIABLE)

_blocks: ContextVar[tuple[Block, ...]] = ContextVar("accelerator_graph_backend", default=())
"""The ``with`` blocks that this thread (or task) is in, the innermost last."""


# ---- the name that the user gives ----------------------------------------------------------------


def by_environment() -> str | None:
    """Return the name that ``ACCELERATOR_GRAPH_BACKEND`` gives; ValueError if it can't be a name."""
    name = variable(VARIABLE)
    if name and not is_name(name):
        raise ValueError(
            f"{VARIABLE} is {name!r}, which can't be the name of a backend; set it to one of "
            f"accelerator_graph.backends.names(), or unset it."
        )
    return name or None


class Block(ContextDecorator):
    """Names a backend for a ``with`` block, or for every call of the function that it decorates."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._used = False

    def __repr__(self) -> str:
        return f"use_backend({self.name!r})"

    def __enter__(self) -> None:
        self._used = True
        before = _blocks.get()
        try:
            _blocks.set((*before, self))
        except BaseException:  # an interrupt
            _blocks.set(before)
            raise

    def __exit__(self, *exc: object) -> None:
        blocks = _blocks.get()
        for index in reversed(range(len(blocks))):  # a generator may have left another block open
            if blocks[index] is self:
                _blocks.set(blocks[:index] + blocks[index + 1 :])
                return

    def __call__(self, function: _F) -> _F:
        """Return a function that runs with the backend named; TypeError for generators and coroutines."""
        self._used = True
        if runs_later(function):
            raise TypeError(
                f"use_backend can't decorate {function!r}, whose body runs after the call; write "
                f"`with {self!r}:` inside it."
            )
        return super().__call__(function)

    def __del__(self) -> None:
        if not self._used:
            warnings.warn(
                f"{self!r} did nothing: it names the backend of a `with` block; write `with {self!r}:`, or "
                f"set {VARIABLE} for the whole process.",
                RuntimeWarning,
                stacklevel=2,
            )


# ---- the registry --------------------------------------------------------------------------------


class Registry:
    """A table of built-in backends, with all backends that were added to it.

    The functions of this module are the methods of the one registry that the library uses.
    """

    def __init__(self, builtins: Mapping[str, str]) -> None:
        self._catalogue: Catalogue[Backend] = Catalogue(
            kind="backend",
            group="accelerator_graph.backends",
            base=Backend,
            api_versions=BACKEND_API_VERSIONS,
            builtins=builtins,
            reserved={"cpu", "cuda", "hip"},
            meant=MEANT,
            problem=problem_of,
            refreshed_by="accelerator_graph.backends.refresh()",
        )
        self._instances = Instances(self._catalogue.load)
        self._made: dict[str, AutomaticChoice] = {}

    def _choice(self) -> AutomaticChoice:
        """Return the automatic choice. Programs whose streams say which backend is meant need none."""
        choice = self._made.get("choice")
        if choice is None:
            from ._registry.choice import AutomaticChoice

            choice = self._made.setdefault("choice", AutomaticChoice(self._catalogue, self._instances))
        return choice

    # ---- by name -------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all known backends in alphabetical order. Loads none of them."""
        return self._catalogue.names()

    def load(self, name: str) -> type[Backend]:
        """Return the class of a backend, imported, checked and not opened. Raises as `get`."""
        return self._catalogue.load(name)

    def origin(self, name: str) -> str:
        """Return where a backend is from: ``"built-in"``, ``"registered"``, or distribution and version."""
        return self._catalogue.origin(name)

    def get(self, name: str) -> AnyBackend:
        """Return the one opened instance of a backend, opening it on first use.

        The registry owns it. If several threads ask at once, one of them opens it and the others wait.

        Raises
        ------
        UnknownBackendError
            No backend has that name. The message has the known names and the closest match.
        BackendLoadError
            It can't be imported, or several distributions offer different ones. Kept until `refresh`.
        BackendContractError
            It is not a backend; the message says what is missing. Kept until `refresh`.
        BackendUnavailableError
            It can't run here, or was opened before this process was forked. The next call tries again.
        """
        return self._instances.get(name)

    # ---- by choice -----------------------------------------------------------------------------

    def chosen(self) -> str | None:
        """Return the name that `use_backend` or the environment gives; None if neither names a backend.

        Raises
        ------
        ValueError
            The value of ``ACCELERATOR_GRAPH_BACKEND`` can't be a name. Empty counts as unset.
        """
        blocks = _blocks.get()
        if blocks:
            return blocks[-1].name
        return None if environment.keys().isdisjoint(_KEYS) else by_environment()

    def resolve(self, name: str | None = None, *, cpu_fallback: bool = False) -> AnyBackend:
        """Return the opened backend that is meant.

        That is the backend named by the argument, or else by `use_backend`, or by
        ``ACCELERATOR_GRAPH_BACKEND``. If none is named, the choice is automatic: the first of cuda and hip
        that can be opened, or else the third party with the highest priority (never one whose priority is
        None). It is made once in a process, and again after `refresh`, `register`, `unregister` or a fork.

        Parameters
        ----------
        name : str, optional
            The backend's name.
        cpu_fallback : bool
            Return the cpu backend if none is named and no accelerator is usable.

        Raises
        ------
        BackendError
            As `get`, if a backend is named.
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
                if _blocks.get():
                    raise
                raise UnknownBackendError(f"{VARIABLE} is set, but {error}") from None
        from ._registry.choice import nothing_usable

        decision = self._choice().decide()
        if decision.backend is not None:
            return decision.backend
        if cpu_fallback:
            return self.get("cpu")
        raise nothing_usable(decision.reasons)

    def usable(self, name: str | None = None) -> bool:
        """Return True if a backend's probe says usable; without a name, if any accelerator's probe does.

        Opens nothing. Raises UnknownBackendError for an unknown name; a broken plug-in is not usable.
        """
        if name is None:
            return self._choice().any_usable()
        try:
            return self._instances.availability(name).usable
        except (BackendLoadError, BackendContractError):
            return False

    def claim(self, obj: object, reasons: dict[str, str] | None = None) -> tuple[AnyBackend, Any] | None:
        """Return the backend whose runtime defined a stream object, and the stream that the object means.

        Asks the backends whose `stream_modules` include a package that defines the object's classes, first
        the one that `chosen` names. Returns None if no backend claims the object. The object's owner does
        not change. `reasons` gets the reasons why plug-ins could not be asked, by name. If a backend for the
        package can't be used or refuses the object, and no other claims it, raises that backend's error.
        """
        from ._registry.choice import claim

        return claim(obj, self.chosen(), self._catalogue, self._instances, {} if reasons is None else reasons)

    def use_backend(self, name: str) -> Block:
        """Name the backend for a ``with`` block, for all calls in it that have no `backend` argument.

        Applies to this thread (or task); threads that are started inside don't inherit it. The result also
        decorates a function. If it is used in neither way, it does nothing, and issues a RuntimeWarning.

        Raises
        ------
        BackendError
            At once, as `get`: the backend is unknown or broken, or its probe does not say usable. It is not
            opened yet.
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
            Replace the backend that is registered under that name. Graphs of the former one keep it.

        Raises
        ------
        ValueError
            The name or the target has the wrong form, or the name is taken.
        BackendContractError
            The class is not a backend.

        Notes
        -----
        This does not replace an installed plug-in of the same name: choosing the name is then an error.
        """
        self._catalogue.register(name, target, replace=replace)
        self._instances.forget(name)
        self._choice().start_over()

    def unregister(self, name: str) -> None:
        """Forget a registered backend; its graphs keep it. Raise ValueError if the name is not registered."""
        self._catalogue.unregister(name)
        self._instances.forget(name)
        self._choice().start_over()

    def refresh(self) -> None:
        """Forget which plug-ins are installed, which backends failed, and the automatic choice.

        Opened backends stay open.
        """
        self._catalogue.refresh()
        self._instances.forget_failures()
        self._choice().start_over()

    def report(self) -> list[contract.BackendReport]:
        """Load every backend and return a row of facts about each. Opens none and never raises.

        Entry points that are ignored because of their names come last.
        """
        rows = [self._instances.report(name, self._catalogue.origin(name)) for name in self.names()]
        ignored = self._catalogue.ignored()
        return rows + [contract.BackendReport(each.name, each.origin, reason=each.reason) for each in ignored]


_registry = Registry(BUILTINS)

names: Final = _registry.names
load: Final = _registry.load
origin: Final = _registry.origin
get: Final = _registry.get
chosen: Final = _registry.chosen
resolve: Final = _registry.resolve
usable: Final = _registry.usable
claim: Final = _registry.claim
use_backend: Final = _registry.use_backend
register: Final = _registry.register
unregister: Final = _registry.unregister
refresh: Final = _registry.refresh
report: Final = _registry.report
