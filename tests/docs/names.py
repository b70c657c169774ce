"""Find names of accelerator_graph that do not exist, in code that is not run."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from typing import Any

PACKAGE = "accelerator_graph"


def unknown_names(code: str) -> list[str]:
    """Return the names of the package that code imports or uses as attributes, and that the package lacks."""
    tree = ast.parse(code)
    known: dict[str, Any] = {"ag": importlib.import_module(PACKAGE)}  # a piece of code may lack its imports
    unknown = []
    for node in ast.walk(tree):
        for alias, path in _imported(node):
            try:
                known[alias] = _resolved(path)
            except (AttributeError, ImportError):
                unknown.append(path)
    for node in ast.walk(tree):
        path = _dotted(node)
        root, _, rest = path.partition(".")
        if rest and root in known and not _has(known[root], rest):
            unknown.append(path)
    return unknown


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the aliases that a statement imports from the package, with what they stand for."""
    if isinstance(node, ast.Import):
        for each in node.names:
            if each.name.split(".")[0] == PACKAGE:
                yield (each.asname, each.name) if each.asname else (PACKAGE, PACKAGE)
                if not each.asname and each.name != PACKAGE:
                    importlib.import_module(each.name)
    elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
        for each in node.names:
            yield each.asname or each.name, f"{node.module}.{each.name}"


def _resolved(path: str) -> Any:
    found = importlib.import_module(PACKAGE)
    at = PACKAGE
    for name in path.split(".")[1:]:
        at += f".{name}"
        found = getattr(found, name, None) or importlib.import_module(at)
    return found


def _has(thing: Any, path: str) -> bool:
    """Return whether a module or a class has an attribute; what other objects have is not looked at."""
    for name in path.split("."):
        if not isinstance(thing, type | type(ast)):
            return True
        if not hasattr(thing, name):
            return False
        thing = getattr(thing, name)
    return True


def _dotted(node: ast.AST) -> str:
    """Return ``a.b.c`` for an attribute of attributes of a name, or nothing."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if parts and isinstance(node, ast.Name) else ""
