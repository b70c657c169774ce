"""The command ``info``: what can be used on this machine, what can't, and why."""

from __future__ import annotations

import importlib
import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import accelerator_graph as ag

from .. import _install
from .._core import extension
from .._interpreter.terminal import rows, wrapped
from ..inspection.names import printable
from . import environment, frameworks


def run(backend: str | None, *, as_json: bool) -> bool:
    """Print the facts, and return False if the backend that is named can't be used.

    That is the backend of the argument, else that of the environment.
    """
    found = facts(backend)
    print(json.dumps(found, indent=2) if as_json else "\n".join(text(found)))
    return not found["problem"]


def facts(backend: str | None) -> dict[str, Any]:
    """Return everything that is printed. This opens the named backend, and the one of a bare `Stream()`."""
    chosen, error = choice()
    problem = error if backend is None else problem_of(backend)
    backends = [{**row._asdict(), "versions": dict(row.versions)} for row in ag.backends.report()]
    third_parties = [row["name"] for row in backends if row["origin"] != "built-in"]
    return {
        "version": ag.__version__,
        "location": os.path.dirname(ag.__file__),
        "source_tree": in_source_tree(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "backends": backends,
        "frameworks": frameworks.facts(),
        "extension": extension_in_words(),
        "environment": [row._asdict() for row in environment.settings(third_parties)],
        "chosen": chosen,
        "why": reason(chosen, backends) if chosen else error,
        "named": backend,
        "problem": problem,
    }


def choice() -> tuple[str | None, str]:
    """Return the name of a bare `Stream()`'s backend; None and the error if there is none."""
    try:
        return ag.backends.resolve(cpu_fallback=True).name, ""
    except (ag.errors.BackendError, ValueError) as error:
        return None, str(error)


def reason(chosen: str, backends: Sequence[Mapping[str, Any]]) -> str:
    """Return why a bare `Stream()` takes this backend."""
    if ag.backends.chosen():
        return f"{environment.PREFIX}BACKEND names it"
    if chosen == "cpu":
        to_be_named = any(row["usable"] and row["only_named"] for row in backends)
        return f"no accelerator can be used{' unless you name it' if to_be_named else ''}"
    if any(row["name"] == chosen and row["origin"] == "built-in" for row in backends):
        return "it is the first built-in accelerator that can be used"
    return "no built-in accelerator can be used, and it comes first among the plug-ins that can"


def problem_of(backend: str) -> str:
    """Return why a backend can't be used; an empty string if it can."""
    try:
        ag.backends.get(backend)
    except ag.errors.BackendError as error:
        return str(error)
    return ""


def in_source_tree() -> bool:
    """Return True if this is not an installed copy, but the one that a checkout contains."""
    return (Path(ag.__file__).parents[1] / "pyproject.toml").exists()


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


def text(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines for people."""
    yield from about(found)
    yield from ("", "Backends")
    yield from rows([(row["name"], *backend_in_words(row)) for row in found["backends"]], "  ")
    yield from ("", "Frameworks")
    yield from rows(
        [(row["name"], row["installed"] or "-", frameworks.in_words(row)) for row in found["frameworks"]],
        "  ",
    )
    yield from ("", "C extension")
    yield from wrapped(found["extension"], "  ")
    yield from ("", "Environment variables")
    yield from rows(
        [(printable(f"{row['name']}={row['value']}"), row["effect"]) for row in found["environment"]], "  "
    )
    if not found["environment"]:
        yield f"  none of {environment.PREFIX}* is set"
    yield ""
    if found["named"] is not None:
        named = f"Backend {found['named']!r} can be used."
        yield from wrapped(sentence(found["problem"]) if found["problem"] else named)
    if found["chosen"]:
        yield from wrapped(f"A bare Stream() takes backend {found['chosen']!r}, because {found['why']}.")
    else:
        yield from wrapped(f"A bare Stream() raises an error: {found['why']}")


def about(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about the library, Python and the system."""
    place = f"the source tree {found['location']}" if found["source_tree"] else found["location"]
    yield from wrapped(f"accelerator_graph {found['version']} in {place}")
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


def sentence(text: str) -> str:
    """Return a text with a capital letter."""
    return f"{text[:1].upper()}{text[1:]}"
