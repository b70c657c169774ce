"""The environment variables that the package reads, and those that are set."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from .._core import switches

PREFIX = "ACCELERATOR_GRAPH_"


def switch(effect: str) -> Callable[[str], str]:
    """Return a function that says what a value of a switch does. All values but 0 turn it on."""
    return lambda value: "0 is the default" if value.strip() == "0" else effect


def of_graphs(effect: str, option: str) -> Callable[[str], str]:
    """Return a function that says what a value of a graph's option does. `Graph` refuses all but 0 and 1."""

    def say(value: str) -> str:
        try:
            return effect if switches.is_on(None, option) else "0 is the default"
        except ValueError as error:
            return f"Graph() raises ValueError: {error}"

    return say


def verify(value: str) -> str:
    """Say what a value of the variable does. Other values than ``first`` make `graphed` raise ValueError."""
    try:
        return "graphed functions compare every new graph with eager runs" if switches.to_verify(None) else ""
    except ValueError as error:
        return f"graphed() raises ValueError: {error}"


VARIABLES: dict[str, Callable[[str], str]] = {
    "BACKEND": lambda value: "the backend if the code names none",
    "CHECK_INPUT_LIVENESS": of_graphs("a graph refuses to replay once an input is freed", switches.LIVENESS),
    "DIAGNOSE": of_graphs("a capture that fails names the call that broke it", switches.DIAGNOSE),
    "DISABLE_PLUGINS": switch("installed plug-ins are not looked for"),
    "PROGRAMS": lambda value: "the number of random programs in a backend's tests",
    "PROGRAMS_SEED": lambda value: "the seed of the random programs in a backend's tests",
    "PURE_PYTHON": switch("the C extension is not used"),
    "VERIFY": verify,
}
"""What a value does, by the variable's name without the prefix."""


class Setting(NamedTuple):
    """An environment variable that is set."""

    name: str
    value: str
    read: bool
    """The package, or a plug-in, reads it."""
    effect: str


def settings(plugins: Collection[str]) -> Iterator[Setting]:
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
            yield Setting(name, value, False, not_read(name))


def looks_like_ours(name: str) -> bool:
    """Return True for the package's variables, and for names that someone may have taken for one."""
    return name.upper().startswith("ACCELERATOR") and "GRAPH" in name.upper()


def not_read(name: str) -> str:
    """Say that a variable has no effect, with the name that may be meant."""
    from difflib import get_close_matches

    rest = name.upper().partition("GRAPH")[2].strip("_")
    close = get_close_matches(rest, VARIABLES, 1)
    return "is not read by the library" + (f"; did you mean {PREFIX}{close[0]}?" if close else "")
