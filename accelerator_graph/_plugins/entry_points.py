"""Entry points: the implementations that installed distributions offer under each name.

Only `installed` and `may_be_installed` read the machine's metadata. The other functions work on lists, which
tests can write down.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Set
from importlib import import_module, invalidate_caches
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from .._interpreter import Record
from .._interpreter.outside import text_of, variable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
