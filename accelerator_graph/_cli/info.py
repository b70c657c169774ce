"""The command ``info``: what can be used on this machine, what can't, and why."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, NamedTuple

import accelerator_graph as ag

from .. import _install
from .._core import extension, observers
from .._interpreter import setting
from .._interpreter.terminal import rows, wrapped
from ..inspection.names import printable

PREFIX = "ACCELERATOR_GRAPH_"


def print_facts(backend: str | None, *, as_json: bool) -> bool:
    """Print the facts, and return False if the backend that is named can't be used.

    That is the backend of the argument or, without one, that of the environment.
    """
    found = installation_facts(backend)
    print(json.dumps(found, indent=2) if as_json else "\n".join(fact_lines(found)))
    return not found["problem"]


def installation_facts(backend: str | None) -> dict[str, Any]:
    """Return everything that is printed. This opens the named backend, and the one of a bare `Stream()`."""
    chosen, error = chosen_backend()
    problem = error if backend is None else backend_problem(backend)
    backends = [{**row._asdict(), "versions": dict(row.versions)} for row in ag.backends.report()]
    third_parties = [row["name"] for row in backends if row["origin"] != "built-in"]
    return {
        "version": ag.__version__,
        "location": os.path.dirname(ag.__file__),
        "source_tree": in_source_tree(),
        "hidden": hidden_copy(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "backends": backends,
        "frameworks": framework_rows(),
        "extension": extension_in_words(),
        "environment": [row._asdict() for row in environment_settings(third_parties)],
        "chosen": chosen,
        "why": choice_reason(chosen, backends) if chosen else error,
        "named": backend,
        "problem": problem,
    }


def chosen_backend() -> tuple[str | None, str]:
    """Return the name of a bare `Stream()`'s backend; None and the error if there is none."""
    try:
        return ag.backends.resolve(cpu_fallback=True).name, ""
    except (ag.errors.BackendError, ValueError) as error:
        return None, str(error)


def choice_reason(chosen: str, backends: Sequence[Mapping[str, Any]]) -> str:
    """Return why a bare `Stream()` takes this backend."""
    if ag.backends.chosen():
        return f"{PREFIX}BACKEND names it"
    if chosen == "cpu":
        to_be_named = any(row["usable"] and row["only_named"] for row in backends)
        return f"no accelerator can be used{' unless you name it' if to_be_named else ''}"
    if any(row["name"] == chosen and row["origin"] == "built-in" for row in backends):
        return "it is the first built-in accelerator that can be used"
    return "no built-in accelerator can be used, and it comes first among the plug-ins that can"


def backend_problem(backend: str) -> str:
    """Return why a backend can't be used; an empty string if it can."""
    try:
        ag.backends.get(backend)
    except ag.errors.BackendError as error:
        return str(error)
    return ""


def in_source_tree() -> bool:
    """Return True if this is not an installed copy, but the one that a checkout contains."""
    return (Path(ag.__file__).parents[1] / "pyproject.toml").exists()


def hidden_copy() -> str | None:
    """Return the folder of an installed copy that this one hides, since its own comes first on the path."""
    here = Path(ag.__file__).resolve().parent
    for entry in sys.path:
        copy = Path(entry or os.curdir, here.name).resolve()
        if copy != here and (copy / "__init__.py").is_file():
            return str(copy)
    return None


def extension_in_words() -> str:
    """Return whether replays go through the C extension, and why not."""
    if extension.fast is not None:
        return "used"
    try:
        found = importlib.import_module("accelerator_graph._core._fast")
    except ModuleNotFoundError:
        where = " in this source tree; an installed copy may have it" if in_source_tree() else ""
        return f"not built{where}, so replays go through Python, which is slower. {_install.with_extension()}"
    except ImportError as error:
        return f"can't be loaded ({error}), so replays go through Python. {_install.with_extension()}"
    if not extension.fits(found):
        why = "built from another version of the library and not used"
        return f"{why}, so replays go through Python, which is slower. {_install.with_extension()}"
    return f"not used, since {extension.SWITCH} is set"


def fact_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for people."""
    yield from library_lines(found)
    yield from ("", "Backends")
    yield from rows([(row["name"], *backend_in_words(row)) for row in found["backends"]], "  ")
    yield from ("", "Frameworks")
    yield from rows(
        [(row["name"], row["installed"] or "-", framework_in_words(row)) for row in found["frameworks"]],
        "  ",
    )
    yield from ("", "C extension")
    yield from wrapped(found["extension"], "  ")
    yield from ("", "Environment variables")
    yield from rows(
        [(printable(f"{row['name']}={row['value']}"), row["effect"]) for row in found["environment"]], "  "
    )
    if not found["environment"]:
        yield f"  none of {PREFIX}* is set"
    yield ""
    if found["named"] is not None:
        named = f"Backend {found['named']!r} can be used."
        yield from wrapped(capitalised(found["problem"]) if found["problem"] else named)
    if found["chosen"]:
        yield from wrapped(f"A bare Stream() takes backend {found['chosen']!r}, because {found['why']}.")
    else:
        yield from wrapped(f"A bare Stream() raises an error: {found['why']}")


def library_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about the library, Python and the system."""
    place = f"the source tree {found['location']}" if found["source_tree"] else found["location"]
    yield from wrapped(f"accelerator_graph {found['version']} in {place}")
    if found["hidden"]:
        yield from wrapped(
            f"It hides the copy in {found['hidden']}, since Python looks into its folder first: to see that "
            "copy, run `accelerator-graph info`, or run Python in another folder."
        )
    yield from wrapped(f"Python {found['python']}, {found['platform']}")


def backend_in_words(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return whether a backend can be used, and what else is known about it."""
    known = [f"{name} {version}" for name, version in row["versions"].items()]
    if row["origin"] != "built-in":
        known.append(f"from {row['origin']}" if row["origin"] != "registered" else "registered")
    if row["usable"]:
        if row["devices"] is not None:
            known.insert(0, f"{row['devices']} {'device' if row['devices'] == 1 else 'devices'}")
        if row["only_named"]:
            known.append("used only if you name it")
        said = ", ".join(known)
    else:
        reason = row["reason"].rstrip(".")
        said = f"{reason}. Found: {', '.join(known)}." if known else f"{reason}."
    return "yes" if row["usable"] else "no", f"{said}. {row['warning']}" if row["warning"] else said


def capitalised(text: str) -> str:
    """Return a text with a capital letter."""
    return f"{text[:1].upper()}{text[1:]}"


# ---- frameworks, found out without importing them --------------------------------------------------


def framework_rows() -> list[dict[str, Any]]:
    """Return the report about every framework, with its installed version."""
    named = [
        (each.metadata["Name"], each)
        for each in importlib.metadata.distributions()
        if "Name" in each.metadata  # what is left of one may have no metadata
    ]
    return [{**row._asdict(), "installed": installed_version(row.name, named)} for row in ag.interop.report()]


def installed_version(name: str, named: Sequence[tuple[str, Distribution]]) -> str | None:
    """Return the version of a framework, ``"?"`` if it is not known, and None if it is not installed.

    `named` are the installed distributions and their names.
    """
    if not can_be_imported(name):
        return None
    package, own = name.partition(".")[0], name.replace(".", "-")
    for called, distribution in named:
        if called == own:
            return distribution.version
    for called, distribution in named:
        if called.partition("-")[0] == package and has_files_of(distribution, package):
            return distribution.version
    return "?"


def has_files_of(distribution: Distribution, package: str) -> bool:
    """Return True if a distribution has files of a package."""
    return any(file.parts[0] == package for file in distribution.files or ())


def can_be_imported(name: str) -> bool:
    """Return True if a module is there. Imports no parent, unlike `importlib.util.find_spec`."""
    path: Sequence[str] | None = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None:
            return False
        path = list(spec.submodule_search_locations or ())
    return True


def framework_in_words(row: Mapping[str, Any]) -> str:
    """Return whether a framework takes part in captures, and why not."""
    if row["usable"]:
        return f"takes part in captures on {row['backend']}"
    if row["imported"] or row["reason"] != "it is not imported":
        return str(row["reason"])
    if row["installed"] is None:
        return "not installed"
    return "takes part once your program has imported it"


# ---- environment variables -------------------------------------------------------------------------


def switch(effect: str) -> Callable[[str], str]:
    """Return a function that says what a value of a switch does. All values but 0 turn it on."""
    return lambda value: "0 is the default" if value.strip() == "0" else effect


def graph_option(effect: str, variable: str) -> Callable[[str], str]:
    """Return a function that says what a value of a variable does. `Graph` refuses all but 0 and 1."""

    def say(value: str) -> str:
        try:
            return effect if setting(variable, "1", "0") == "1" else "0 is the default"
        except ValueError as error:
            return f"Graph() raises ValueError: {error}"

    return say


def verify_option(value: str) -> str:
    """Say what a value of the variable does. Other values than ``first`` make `graphed` raise ValueError."""
    try:
        on = setting(f"{PREFIX}VERIFY", "first")
        return "graphed functions compare every new graph with eager runs" if on else ""
    except ValueError as error:
        return f"graphed() raises ValueError: {error}"


VARIABLES: dict[str, Callable[[str], str]] = {
    "BACKEND": lambda value: "the backend if the code names none",
    "CHECK_INPUT_LIVENESS": graph_option(
        "a graph refuses to replay once an input is freed", observers.LIVENESS
    ),
    "DIAGNOSE": graph_option("a capture that fails names the call that broke it", observers.DIAGNOSE),
    "DISABLE_PLUGINS": switch("installed plug-ins are not looked for"),
    "PROGRAMS": lambda value: "the number of random programs in a backend's tests",
    "PROGRAMS_SEED": lambda value: "the seed of the random programs in a backend's tests",
    "PURE_PYTHON": switch("the C extension is not used"),
    "VERIFY": verify_option,
}
"""What a value does, by the variable's name without the prefix."""


class Setting(NamedTuple):
    """An environment variable that is set."""

    name: str
    value: str
    read: bool
    """The package, or a plug-in, reads it."""
    effect: str


def environment_settings(plugins: Collection[str]) -> Iterator[Setting]:
    """Yield what is set, misspelt names included. A variable that begins with a plug-in's name is its own."""
    for name, value in sorted(os.environ.items()):
        if not looks_like_ours(name):
            continue
        rest = name.removeprefix(PREFIX)
        owner = next((each for each in plugins if rest.startswith(f"{each.upper()}_")), None)
        known = name.startswith(PREFIX) and rest in VARIABLES
        if known and not value.strip():
            yield Setting(name, value, True, "counts as unset, since it is empty")
        elif known:
            yield Setting(name, value, True, VARIABLES[rest](value))
        elif owner is not None:
            yield Setting(name, value, True, f"for backend {owner!r}")
        else:
            yield Setting(name, value, False, unread_variable(name))


def looks_like_ours(name: str) -> bool:
    """Return True for the package's variables, and for names that someone may have taken for one."""
    return name.upper().startswith("ACCELERATOR") and "GRAPH" in name.upper()


def unread_variable(name: str) -> str:
    """Say that a variable has no effect, with the name that may be meant."""
    from difflib import get_close_matches

    rest = name.upper().partition("GRAPH")[2].strip("_")
    close = get_close_matches(rest, VARIABLES, 1)
    return "is not read by the library" + (f"; did you mean {PREFIX}{close[0]}?" if close else "")
