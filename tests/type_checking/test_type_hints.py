"""`typing.get_type_hints` works on every public class, function, method and property."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping

import accelerator_graph

BINDINGS = {"cuda", "hip"}
"""Packages that some public modules need, and that may be missing."""
COMPAT = ("accelerator_graph.compat._context", "accelerator_graph.compat._graphs")
"""The homes of the names of `compat`, which needs torch to give them out."""

ELSEWHERE = ("accelerator_graph.compat", "accelerator_graph.inspection.")
"""Modules whose public names the package itself or `COMPAT` has; their other names are not public."""


def modules() -> Iterator[types.ModuleType]:
    """The public modules that can be imported here."""
    yield accelerator_graph
    yield from map(importlib.import_module, COMPAT)
    for found in pkgutil.walk_packages(accelerator_graph.__path__, "accelerator_graph."):
        if "._" in found.name or found.name.startswith(ELSEWHERE):
            continue
        try:
            yield importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] not in BINDINGS:
                raise


def functions(cls: type, name: str) -> Iterator[object]:
    """The functions behind a member of a class."""
    member = vars(cls)[name]
    if isinstance(member, property):
        yield from (each for each in (member.fget, member.fset, member.fdel) if each is not None)
    elif not isinstance(member, type) and callable(getattr(cls, name)):
        yield getattr(cls, name)


def annotated(place: str, value: object, seen: set[int]) -> Iterator[tuple[str, object]]:
    """Everything with annotations that a public value consists of, with its name."""
    if id(value) in seen or not getattr(value, "__module__", "").startswith("accelerator_graph"):
        return
    seen.add(id(value))
    if isinstance(value, type):
        yield place, value
        for base in value.__mro__[1:-1]:
            yield from annotated(f"{place}, base {base.__qualname__}", base, seen)
        for name in vars(value):
            if not name.startswith("_") or name.endswith("__"):
                yield from ((f"{place}.{name}", each) for each in functions(value, name))
    elif inspect.isroutine(value):
        yield place, value


def public() -> list[tuple[str, object]]:
    """All public functions and classes, and the methods of these."""
    seen: set[int] = set()
    return [
        (place, value)
        for module in modules()
        for name in getattr(module, "__all__", [each for each in vars(module) if not each.startswith("_")])
        for place, value in annotated(f"{module.__name__}.{name}", getattr(module, name), seen)
    ]


def test_type_hints_can_be_read() -> None:
    found = public()
    unreadable = {}
    for place, value in found:
        try:
            typing.get_type_hints(value)
        except (NameError, TypeError, AttributeError) as error:
            unreadable[place] = error
    assert unreadable == {}
    assert {
        "accelerator_graph.Graph",
        "accelerator_graph.Graph.capture_error_mode",
        "accelerator_graph.Graph.replay",
        "accelerator_graph.Graph, base BaseGraph.retain",
        "accelerator_graph.Stream.__exit__",
        "accelerator_graph.graphed",
        "accelerator_graph.compat._context.graph",
        "accelerator_graph.testing.BackendConformance.left_out",
        "accelerator_graph.backends.base.Backend.probe",
    } <= dict(found).keys()


def test_type_hints_say_what_type_checkers_read() -> None:
    hints = typing.get_type_hints(accelerator_graph.Graph.capture_begin)
    assert hints["capture_error_mode"] == accelerator_graph.CaptureMode | None
    assert typing.get_type_hints(accelerator_graph.Graph.replay) == {
        "stream": object,
        "live": Mapping[str, object] | None,
        "return": types.NoneType,
    }
