"""How plug-ins are found, loaded and checked: the same for backends, frameworks and hooks of backends.

Only `installed` and `may_be_installed` read the machine's metadata. The other functions on entry points work
on lists, which tests can write down.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from importlib import import_module, invalidate_caches
from importlib.machinery import PathFinder
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .._interpreter import Record, raises_again, text_of, variable
from .._interpreter.interruptions import after_fork
from ..errors import BackendContractError, BackendError, BackendLoadError, UnknownBackendError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

SWITCH = "ACCELERATOR_GRAPH_DISABLE_PLUGINS"
"""The environment variable is read when entry points are scanned: at first use, and after a `refresh`."""


_METADATA = (".dist-info", "egg-info")


class Names:
    """Which names are allowed."""

    __slots__ = ("allows", "rule")

    def __init__(self, allows: Callable[[str], bool], rule: str) -> None:
        self.allows = allows
        self.rule = rule
        """The rule in words, for a sentence that begins with "the name does not"."""


class Candidate(Record):
    """An implementation that is offered under a name.

    `target` is ``"module:Class"``, or the class itself; `origin` is ``"built-in"``, ``"registered"``, or the
    distribution and its version.
    """

    __slots__ = ("name", "origin", "target")

    def __init__(self, name: str, target: str | type, origin: str) -> None:
        self.name = name
        self.target = target
        self.origin = origin

    @property
    def path(self) -> str:
        """The target as ``"module:Class"``. Two candidates with the same path are the same implementation."""
        if isinstance(self.target, type):
            return f"{self.target.__module__}:{self.target.__qualname__}"
        return self.target

    @property
    def provider(self) -> str:
        """The distribution; the top-level package if no distribution is known."""
        distribution, _, version = self.origin.rpartition(" ")
        return distribution if version[:1].isdigit() else self.path.partition(":")[0].partition(".")[0]


class Ignored:
    """An entry point that the library ignores, and why."""

    __slots__ = ("name", "origin", "reason")

    def __init__(self, name: str, origin: str, reason: str) -> None:
        self.name = name
        self.origin = origin
        self.reason = reason


class Scan:
    """The result of reading all entry points of a group."""

    __slots__ = ("ignored", "offers")

    def __init__(self, offers: dict[str, list[Candidate]], ignored: list[Ignored]) -> None:
        self.offers = offers
        self.ignored = ignored


def is_name(name: str) -> bool:
    """Return True if `name` matches ``[a-z][a-z0-9_]*``."""
    return name.isascii() and name.isidentifier() and name.islower() and name[0] != "_"


def is_import_name(name: str) -> bool:
    """Return True if `name` is a valid full name of a module."""
    return all(part.isidentifier() for part in name.split("."))


BACKEND_NAMES = Names(is_name, "match [a-z][a-z0-9_]*")
IMPORT_NAMES = Names(is_import_name, "have the form of a module name such as 'numpy' or 'numpy.linalg'")


def is_target(target: str) -> bool:
    """Return True if `target` has the form ``"module:Class"``."""
    module, colon, path = target.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), *path.split(".")])


def switched_off() -> bool:
    """Return True if the environment variable switches plug-ins off."""
    return variable(SWITCH) not in ("", "0")


def may_be_installed(group: str) -> bool:
    """Return False if no installed distribution has entry points in a group.

    Takes a fifth of the time that `importlib.metadata` takes to find none, and needs no import.
    """
    if any(hasattr(each, "find_distributions") and each is not PathFinder for each in sys.meta_path):
        return True
    section = f"[{group}]".encode()
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except FileNotFoundError:
            continue
        except OSError:  # an archive, for example
            return True
        for name in names:
            if name.lower().endswith(_METADATA):
                path = f"{folder or '.'}/{name}/entry_points.txt"
                if os.access(path, os.F_OK) and section in _contents(path):  # most have no such file
                    return True
    return False


def _contents(path: str) -> bytes:
    """Return the contents of a file; nothing if it can't be read. Takes half the time of `open`."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(file, os.fstat(file).st_size)
    except IsADirectoryError:
        return b""
    finally:
        os.close(file)


def installed(group: str) -> list[EntryPoint]:
    """Return the entry points that all installed distributions have in a group."""
    if not may_be_installed(group):
        return []
    from importlib.metadata import MetadataPathFinder, entry_points

    invalidate_caches()  # a distribution may have been installed a moment ago
    MetadataPathFinder().invalidate_caches()  # the call above does not reach this cache on Python 3.11
    return list(entry_points(group=group))


def readable(group: str) -> tuple[list[EntryPoint], list[Ignored]]:
    """As `installed`, but ask one distribution after the other, and leave out those that can't be read."""
    from importlib.metadata import distributions

    found: list[EntryPoint] = []
    ignored = []
    for each in distributions():
        try:
            found += each.entry_points.select(group=group)
        except Exception as error:
            path = getattr(each, "_path", "a distribution")  # its name may be what can't be read
            ignored.append(Ignored("*", str(path), f"its entry points can't be read: {text_of(error)}"))
    return found, ignored


def scan(group: str, reserved: Set[str], names: Names = BACKEND_NAMES) -> Scan:
    """Read all entry points of a group. Leave out what can't be read, and note why."""
    unreadable: list[Ignored] = []
    try:
        try:
            found = installed(group)
        except Exception:  # one distribution is enough for it
            found, unreadable = readable(group)
    except Exception as error:
        reason = f"the metadata of the installed distributions can't be read: {text_of(error)}"
        return Scan({}, [Ignored("*", "entry points", reason)])
    sorted_out = sort_out(found, reserved, names)
    return Scan(sorted_out.offers, unreadable + sorted_out.ignored)


def sort_out(entry_points: Iterable[EntryPoint], reserved: Set[str], names: Names = BACKEND_NAMES) -> Scan:
    """Group entry points by name, in an order that does not depend on the file system."""
    offers: dict[str, list[Candidate]] = {}
    ignored = []
    found = map(candidate, entry_points)
    for each in sorted(found, key=lambda each: (each.name, each.path, each.origin)):
        name, origin = each.name, each.origin
        if not names.allows(name):
            ignored.append(Ignored(name, origin, f"the name {name!r} does not {names.rule}"))
        elif name in reserved:
            ignored.append(Ignored(name, origin, f"the name {name!r} is reserved for the built-in one"))
        else:
            offers.setdefault(name, []).append(each)
    return Scan({name: distinct(offered) for name, offered in offers.items()}, ignored)


def candidate(entry_point: EntryPoint) -> Candidate:
    """Return the candidate that an entry point offers, without its extras."""
    target = "".join(entry_point.value.partition("[")[0].split())
    return Candidate(entry_point.name, target, distribution(entry_point))


def distribution(entry_point: EntryPoint) -> str:
    """Return name and version of an entry point's distribution, if its metadata has them."""
    try:
        name, version = entry_point.dist.name, entry_point.dist.version  # type: ignore[union-attr]
    except Exception:  # no distribution, or one that was uninstalled only in part
        name = version = ""
    return f"{name} {version}" if name else "a distribution without metadata"


def distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Drop every candidate with the same path as an earlier one (editable installs make such pairs)."""
    return list({candidate.path: candidate for candidate in reversed(list(candidates))}.values())[::-1]


def import_target(target: str) -> object:
    """Import the object that ``"module:Class"`` names. Raises whatever the import raises."""
    module, _, path = target.partition(":")
    found: object = import_module(module)
    for attribute in filter(None, path.split(".")):
        found = getattr(found, attribute)
    return found


# ---- catalogues ----------------------------------------------------------------------------------


class Catalogue(Generic[T]):
    """All implementations of one kind: built in, registered, or installed with an entry point.

    `kind` is the noun that messages use, such as ``"backend"``, and `group` the entry-point group. Every
    implementation derives from `base`, if there is one, and has one of `api_versions`, which ascend, unless
    there are none. `builtins` has ``"module:Class"`` by name: these need no metadata, and nothing can replace
    them. Plug-ins can take the names that are `allowed`, except the built-in and `reserved` ones. `meant` has
    names by other words for them, for the error about an unknown name. `problem` checks a class further, and
    returns the end of a sentence that begins with the class, or an empty string. `refreshed_by` is the public
    call that makes the catalogue try again, if there is one.
    """

    def __init__(
        self,
        *,
        kind: str,
        group: str,
        base: type[T] | None = None,
        api_versions: Sequence[int] = (),
        builtins: Mapping[str, str],
        reserved: Set[str] = frozenset(),
        meant: Mapping[str, str] = MappingProxyType({}),
        allowed: Names = BACKEND_NAMES,
        problem: Callable[[type[T]], str] = lambda found: "",
        refreshed_by: str = "",
    ) -> None:
        self.builtins = builtins
        self._kind = kind
        self._group = group
        self._base = base
        self._api_versions = api_versions
        self._reserved = frozenset(builtins) | reserved
        self._meant = meant
        self._allowed = allowed
        self._further_problem = problem
        self._refreshed_by = refreshed_by
        self._lock = RLock()
        self._registered: dict[str, Candidate] = {}  # replaced, never changed
        self._scan: Scan | None = None
        self.known: tuple[str, ...] | None = None
        """The names, once they are found, until that may have changed."""
        self._results: dict[Candidate, type[T] | BackendError] = {}
        after_fork(self._after_fork)

    # ---- names ---------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return all names in alphabetical order. Loads nothing."""
        known = self.known
        while known is None:
            scanned, registered = self._scanned(), self._registered
            known = self.known = tuple(sorted({*self.builtins, *registered, *scanned.offers}))
            if self._scan is not scanned or self._registered is not registered:  # in another thread
                known = self.known = None
        return list(known)

    def third_parties(self) -> list[str]:
        """Return the names that are not built in, in alphabetical order. Loads nothing."""
        return [name for name in self.names() if name not in self.builtins]

    def ignored(self) -> list[Ignored]:
        """Return the entry points that the library ignores."""
        return self._scanned().ignored

    def find(self, name: str) -> list[Candidate]:
        """Return the candidates for a name: several if distributions disagree about it."""
        if name in self.builtins:
            return [Candidate(name, self.builtins[name], "built-in")]
        registered = self._registered.get(name)
        known = self._scan
        offers = self._scanned().offers.get(name, [])
        if not offers and registered is None and known is not None and name not in self._reserved:
            self._scan = self.known = None  # the distribution may have been installed since the last scan
            offers = self._scanned().offers.get(name, [])
        return distinct(offers if registered is None else [registered, *offers])

    def origin(self, name: str) -> str:
        """Return where a name comes from: ``"built-in"``, ``"registered"``, or distribution and version."""
        return " and ".join(candidate.origin for candidate in self.find(name))

    def _scanned(self) -> Scan:
        scanned = self._scan
        if scanned is None:
            scanned = Scan({}, []) if switched_off() else scan(self._group, self._reserved, self._allowed)
            self._scan = scanned
            self.known = None
        return scanned

    # ---- loading -------------------------------------------------------------------------------

    def load(self, name: str) -> type[T]:
        """Return the class of that name, imported and checked. A failure is kept until `refresh`.

        Raises UnknownBackendError, BackendLoadError (also if several distributions offer different classes)
        or BackendContractError.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a {self._kind} must be a str, not {name!r}.")
        candidates = self.find(name)
        if not candidates:
            raise self._unknown(name)
        if len(candidates) > 1:
            offers = " and ".join(f"{found.origin} ({found.path})" for found in candidates)
            raise BackendLoadError(
                f"{self._kind} {name!r} is ambiguous: {offers} offer it; uninstall or unregister all but one."
            )
        [candidate] = candidates
        result = self._results.get(candidate)
        if result is None:
            result = self._results.setdefault(candidate, self._examine(candidate))
        if isinstance(result, BackendError):
            raise type(result)(str(result)) from result.__cause__
        return result

    def _examine(self, candidate: Candidate) -> type[T] | BackendError:
        """Import and check a candidate. Returns an error instead of raising it."""
        subject = f"{self._kind} {candidate.name!r}"
        if candidate.origin != "built-in":
            subject += f" ({candidate.origin}, {candidate.path})"
        target = candidate.target
        try:
            found = import_target(target) if isinstance(target, str) else target
            problem = self._problem(found, candidate)
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and not raises_again(lambda: import_target(str(target))):
                raise
            failure = BackendLoadError(
                f"{subject} can't be loaded: {text_of(error)}; repair or uninstall {candidate.provider}"
                f"{self._refreshed_by and f', then call {self._refreshed_by}'}."
            )
            failure.__cause__ = error
            return failure
        return BackendContractError(f"{subject} {problem}.") if problem else found  # type: ignore[return-value]

    def _problem(self, found: Any, candidate: Candidate) -> str:
        """Return why an object is not an implementation, or an empty string."""
        base = self._base and f"{self._base.__module__}.{self._base.__qualname__}"
        if not isinstance(found, type):
            kind, wanted = type(found).__name__, f"a subclass of {base}" if base else "a class"
            return f"is an object of type {kind}, not a class; its entry point must name {wanted}"
        if self._base is not None and self._base not in found.__mro__:
            return f"is not a subclass of {base}; derive it from that class"
        if self._api_versions and (problem := self._problem_of_version(found, candidate)):
            return problem
        missing = sorted(getattr(found, "__abstractmethods__", ()))
        if missing:
            return f"lacks the methods {', '.join(missing)}; implement them"
        return self._further_problem(found)

    def _problem_of_version(self, found: type, candidate: Candidate) -> str:
        newest, version = self._api_versions[-1], getattr(found, "api_version", None)
        if type(version) is not int:
            return f"has no valid api_version; write `api_version = {newest}` in the class"
        if version in self._api_versions:
            return ""
        supported = " and ".join(map(str, self._api_versions))
        return (
            f"has api_version {version}, but this accelerator_graph supports api_version {supported}; "
            f"upgrade {'accelerator_graph' if version > newest else candidate.provider}"
        )

    def _unknown(self, name: str) -> UnknownBackendError:
        from difflib import get_close_matches

        known = self.names()
        fact = f"there is no {self._kind} {name!r}"
        if name in self._reserved:
            fact = f"this version of accelerator_graph has no {name.upper()} {self._kind} yet"
        for ignored in self.ignored():
            if ignored.name in (name, "*"):
                fact += f" ({ignored.origin} is ignored: {ignored.reason})"
        close = get_close_matches(self._meant.get(name.lower(), name.lower()), known, 1)
        hint = f"did you mean {close[0]!r}? The" if close else "the"
        off = f"; {SWITCH} switches plug-ins off" if switched_off() else ""
        return UnknownBackendError(f"{fact}; {hint} known ones are {', '.join(known)}{off}.")

    # ---- registering ---------------------------------------------------------------------------

    def register(self, name: str, target: str | type[T], *, replace: bool = False) -> None:
        """Make an implementation known by name. A class is checked now, a string when it is loaded."""
        if not isinstance(name, str) or not isinstance(target, str | type):
            raise TypeError(
                f"a {self._kind} is registered by a name and by 'module:Class' or a class, "
                f"not by {type(name).__name__} and {type(target).__name__}."
            )
        if not self._allowed.allows(name):
            raise ValueError(
                f"{name!r} can't be the name of a {self._kind}: it does not {self._allowed.rule}."
            )
        if name in self._reserved:
            raise ValueError(f"the name {name!r} is reserved for accelerator_graph; choose another one.")
        candidate = Candidate(name, target, "registered")
        if isinstance(target, str):
            if not is_target(target):
                raise ValueError(f"a target must have the form 'module:Class', not {target!r}.")
        elif problem := self._problem(target, candidate):
            raise BackendContractError(f"{self._kind} {name!r} ({candidate.path}) {problem}.")
        with self._lock:
            earlier = self._registered.get(name)
            if earlier is not None and not replace:
                raise ValueError(
                    f"{self._kind} {name!r} is already registered, as {earlier.path}; "
                    "pass replace=True to replace it."
                )
            self._registered, self.known = {**self._registered, name: candidate}, None

    def unregister(self, name: str) -> None:
        """Forget a registered implementation. Raise ValueError if the name is not registered."""
        with self._lock:
            if name not in self._registered:
                raise ValueError(
                    f"{self._kind} {name!r} was not registered by register(), so it can't be removed."
                )
            self._registered = {each: it for each, it in self._registered.items() if each != name}
            self.known = None

    def refresh(self) -> None:
        """Forget the scan and the failures. Loaded classes are kept."""
        with self._lock:
            self._scan = self.known = None
            for candidate, result in list(self._results.items()):
                if isinstance(result, BackendError):
                    del self._results[candidate]

    def _after_fork(self) -> None:
        self._lock = RLock()
