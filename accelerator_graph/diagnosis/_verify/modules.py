"""Which torch module is the first whose output is wrong: an instrumented capture copies their outputs out."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from typing import Any

from ...errors import AcceleratorGraphError
from .case import Case
from .expectation import Expectation
from .places import Place, read_all
from .trial import Changing, Run

_MOST_BYTES = 1 << 30
"""How much memory the copies may take."""


def first_wrong_module(case: Case) -> str:
    """Return which module's output is the first that is wrong, as a clause; empty if that is not known."""
    if case.program.given_graph:
        return ""
    modules = case.program.modules()
    if not modules:
        return ""
    with suppress(AcceleratorGraphError, Changing), ExitStack() as hooks:
        outputs = Outputs(case, modules, hooks)
        name = outputs.first_wrong()
        return f"the output of module {name!r}" if name else ""
    return ""


class Outputs:
    """Copies of what modules return, in the order in which they return."""

    def __init__(self, case: Case, modules: dict[str, Any], hooks: ExitStack) -> None:
        self._case = case
        self._program = case.program
        self._copies: list[Place] = []
        self._nbytes = 0
        for name, module in modules.items():
            handle = module.register_forward_hook(self._hook(name))
            hooks.callback(handle.remove)

    def _hook(self, name: str) -> Any:
        is_compiling = sys.modules["torch"].compiler.is_compiling

        def keep(module: Any, args: Any, result: Any) -> None:
            if is_compiling():  # inside a compiled module there are no such results
                return
            for place in self._program.arrays_of(result, name):
                self._nbytes += place.nbytes
                if self._nbytes <= _MOST_BYTES:
                    copy = place.array_type.copy(place.array)
                    self._copies.append(Place(copy, place.array_type, name))

        return keep

    def _taken(self) -> list[Place]:
        copies, self._copies, self._nbytes = self._copies, [], 0
        return copies

    def first_wrong(self) -> str:
        """Compare two eager runs with a replay of a new capture; return the name of the first difference."""
        case, trial, stream = self._case, self._case.trial, self._program.stream
        data, start = case.failed
        start = start or {}
        if case.follows_python:
            trial.eager(data, start=start)
        self._taken()
        runs = []
        places: list[Place] = []
        for filled in (0,) if case.follows_python else (0, 1):
            trial.eager(data, start=start, filled=filled, python=not case.follows_python)
            places = self._taken()
            runs.append(Run(read_all(stream, places)))
        trial.capture_anew()
        captured = self._taken()[: len(places)]  # an eager run has followed
        trial.replay(data, start=start)
        replayed = Run(read_all(stream, captured))
        if len(captured) != len(places) or not all(map(Place.like, captured, places)):
            return ""
        expected = Expectation(places, runs, case.tolerance)
        wrong = [each.target for each in expected.mismatches(replayed, {}) if each.kind == "wrong"]
        return places[min(wrong)].name if wrong else ""
