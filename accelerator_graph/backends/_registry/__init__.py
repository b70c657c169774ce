"""The opened backends of this process: one instance for each name, and the facts about each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from threading import Lock, RLock, get_ident
from typing import Any, cast

from ..._interpreter import message_of, raises_again, text_of
from ..._interpreter.interruptions import after_fork
from ...errors import BackendContractError, BackendError, BackendUnavailableError
from .. import _contract as contract
from ..base import AnyBackend, Availability, Backend

_FORKED = (
    "it was opened before this process was forked, and its driver does not survive a fork; start the "
    "process with the spawn or forkserver method"
)


class _Opening:
    """A backend that a thread is opening. It holds `lock` meanwhile, and other threads wait for that."""

    __slots__ = ("backend", "lock", "needs", "thread")

    def __init__(self) -> None:
        self.backend: Backend | None = None
        self.lock = Lock()
        self.needs: _Opening | None = None
        """What this thread waits for: its backend's `open` has asked for that one."""
        self.thread = get_ident()

    def waits_for(self, thread: int) -> bool:
        """Return True if it can't be done before a thread has opened a backend."""
        opening: _Opening | None = self
        while opening is not None and opening.thread != thread:
            opening = opening.needs
        return opening is not None


class Instances:
    """Opens each backend once, and returns the same instance for its name from then on."""

    def __init__(self, load: Callable[[str], type[Backend]]) -> None:
        self._load = load
        self._lock = RLock()
        self._opened: dict[str, Backend] = {}
        self._opening: dict[str, _Opening] = {}
        self._failures: dict[str, str] = {}
        self._forked: set[type[Backend]] = set()
        after_fork(self._after_fork)

    def availability(self, name: str) -> Availability:
        """Return the result of the backend's probe, even if the probe raises. Exceptions of `load` pass."""
        return self._availability(self._load(name))

    def _availability(self, backend: type[Backend]) -> Availability:
        if backend in self._forked:
            return Availability(False, _FORKED)
        try:
            found = backend.probe()
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and not raises_again(backend.probe):
                raise
            return Availability(False, f"its probe() must not raise, but raised {text_of(error)}")
        try:
            return _checked(found)
        except TypeError as error:
            return Availability(False, f"its probe() returned {message_of(error)}")
        except Exception as error:  # from a property or method of the object that it returned
            return Availability(False, f"its probe() returned an object that raised {text_of(error)}")

    def require(self, name: str) -> type[Backend]:
        """Return the class of a backend; BackendUnavailableError if its probe does not say usable."""
        backend = self._load(name)
        availability = self._availability(backend)
        if not availability.usable:
            raise unavailable(name, availability.reason)
        return backend

    def report(self, name: str, origin: str) -> contract.BackendReport:
        """Load a backend and return the facts about it. Never raises."""
        try:
            backend = self._load(name)
        except BackendError as error:
            return contract.BackendReport(name, origin, reason=reason_of(error, name))
        found, failure = self._availability(backend), self._failures.get(name, "")
        return contract.BackendReport(
            name,
            origin,
            loaded=True,
            opened=name in self._opened,
            usable=found.usable and not failure,
            reason=found.reason or failure,
            versions=found.versions,
            devices=found.devices,
            only_named=backend.priority is None,
            warning=found.warning,
        )

    def lost_by_fork(self, name: str) -> bool:
        """Return True if the backend was opened before this process was forked and did not survive it."""
        return self._load(name) in self._forked

    def get(self, name: str) -> AnyBackend:
        """Return the opened instance. Opens it first if it is not open."""
        if not isinstance(name, str):
            raise TypeError(f"backend must be a str, the backend's name, not {name!r}.")
        backend = self._opened.get(name)
        if backend is None:
            mine = _Opening()
            with mine.lock:
                backend = self._get(name, mine)
        return cast("AnyBackend", backend)

    def _get(self, name: str, mine: _Opening) -> Backend:
        while True:
            with self._lock:
                backend = self._opened.get(name)
                if backend is not None:
                    return backend
                opening = self._opening.get(name)
                if opening is None or not opening.lock.locked():  # an interrupt may have left it there
                    self._opening[name] = mine
                    break
                if opening.waits_for(get_ident()):
                    raise unavailable(name, "its open() asks for the backend that it opens")
                here = [each for each in self._opening.values() if each.thread == get_ident()]
                for each in here:
                    each.needs = opening
            try:
                with opening.lock:
                    pass
            finally:
                for each in here:
                    each.needs = None
        try:
            backend = self._open(name, mine)
            with self._lock:
                if self._opening.get(name) is mine:  # else the name was registered anew meanwhile
                    self._opened[name] = backend
                    self._failures.pop(name, None)
            return backend
        finally:
            with self._lock:
                if self._opening.get(name) is mine:
                    del self._opening[name]

    def _open(self, name: str, opening: _Opening) -> Backend:
        backend = self.require(name)

        def opened() -> Backend:
            instance = opening.backend = backend()
            instance.name = name
            instance.open()
            if problem := _unfounded(instance):
                raise BackendContractError(f"backend {name!r} {problem}.")
            return instance

        try:
            return opened()
        except BackendUnavailableError as error:
            self._failures[name] = reason_of(error, name)
            raise unavailable(name, self._failures[name]) from error
        except BackendContractError as error:
            self._failures[name] = message_of(error)
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and not raises_again(opened):
                raise
            self._failures[name] = f"its open() raised {text_of(error)}"
            raise unavailable(name, self._failures[name]) from error

    def forget(self, name: str) -> None:
        """Forget the backend of that name. Streams and graphs that use the instance keep it."""
        with self._lock:
            self._opened.pop(name, None)
            self._opening.pop(name, None)
            self._failures.pop(name, None)

    def forget_failures(self) -> None:
        """Forget why opening failed."""
        self._failures.clear()

    def _after_fork(self) -> None:
        self._lock = RLock()
        half_open = [opening.backend for opening in self._opening.values() if opening.backend is not None]
        for backend in [*self._opened.values(), *half_open]:
            if type(backend).survives_fork is not True:
                self._forked.add(type(backend))
        self._opened.clear()
        self._opening.clear()


def _unfounded(backend: Backend) -> str:
    """Return the end of a sentence if a backend claims a capability whose class it does not inherit."""
    for device in range(backend.device_count):
        wrong = backend.capabilities(device) - backend.inherited
        if wrong:
            listed = ", ".join(sorted(map(repr, map(str, wrong))))
            return (
                f"claims the capabilities {listed} and does not inherit their classes; the table in "
                "accelerator_graph.backends.base has them"
            )
    return ""


def unavailable(name: str, reason: str) -> BackendUnavailableError:
    """Make the error for one backend that can't run here."""
    reason = reason.strip().rstrip(".") or "it gives no reason"
    return BackendUnavailableError(f"backend {name!r} is not available: {reason}.", reasons={name: reason})


def reason_of(error: BackendError, name: str) -> str:
    """Return why a backend can't be used, without the words that `unavailable` puts in front."""
    given = getattr(error, "reasons", {}).get(name)
    text = str(given) if given else message_of(error)
    return text.strip().removeprefix(f"backend {name!r} is not available: ").rstrip(".")


def _checked(found: Any) -> Availability:
    """Return the result of a probe in plain types; TypeError if it is not an `Availability`."""
    if not isinstance(found, Availability):
        raise TypeError(f"{type(found).__name__}, not Availability")
    usable, reason, versions = found.usable, found.reason, found.versions
    devices: Any = found.devices
    warning = found.warning
    if type(usable) is not bool:
        raise TypeError(f"usable={usable!r}, which must be True or False")
    for name, text in (("reason", reason), ("warning", warning)):
        if not isinstance(text, str):
            raise TypeError(f"{name}={text!r}, which must be a str")
    if not isinstance(versions, Mapping) or not all(
        isinstance(text, str) for item in versions.items() for text in item
    ):
        raise TypeError(f"versions={versions!r}, which must map str to str")
    if devices is not None:
        if isinstance(devices, bool) or not isinstance(devices, Integral) or int(devices) < 0:
            raise TypeError(f"devices={devices!r}, which must be a number of devices or None")
        devices = int(devices)
    return Availability(usable, reason, dict(versions), devices, warning)


def problem_of(backend: type[Backend]) -> str:
    """Return the end of a sentence that begins with the class, or an empty string if all is well."""
    priority: Any = backend.priority
    wrong = isinstance(priority, bool) or not isinstance(priority, Real) or priority != priority
    if priority is not None and wrong:
        return f"has a wrong priority: priority must be a number or None, not {priority!r}"
    recording: object = getattr(backend, "recording", None)
    if recording not in ("stream", "explicit"):
        return (
            f'does not say how it records: recording must be "stream" or "explicit", not {recording!r}; '
            "write it in the class"
        )
    modules: object = backend.stream_modules
    if (
        isinstance(modules, str)
        or not isinstance(modules, Collection)
        or not all(isinstance(module, str) for module in modules)
    ):
        return f"has wrong stream_modules: stream_modules must be a set of names, not {modules!r}"
    return ""
