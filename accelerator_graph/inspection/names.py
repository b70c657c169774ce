"""Names of kernels that a person can read."""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache, lru_cache

from ..backends.base import GraphNode

_TOKENS = re.compile(r"\boperator *(?:\(\)|->\*?|<=>|<<=?|>>=?|[<>]=?)|->|.", re.DOTALL)
"""The characters of a name; operators are in one piece, so that brackets in them are no brackets."""


@lru_cache(maxsize=4096)
def demangled(name: str) -> str:
    """Return the name of a function as it is written in C++.

    The C++ library of the system knows how (``__cxa_demangle`` of the Itanium ABI, which CUDA and HIP use).
    Other names, and all names where there is no such library, are returned as they are.
    """
    library = _library() if name.startswith("_Z") else None
    if library is None:
        return name
    status = ctypes.c_int()
    found = library.__cxa_demangle(name.encode(errors="surrogatepass"), None, None, ctypes.byref(status))
    if not found:
        return name
    try:
        return ctypes.string_at(found).decode(errors="replace")
    finally:
        library.free(found)


def printable(text: str) -> str:
    """Return a text as one line, in which characters that can't be printed are written as in Python."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


@lru_cache(maxsize=4096)
def short_name(name: str) -> str:
    """Return a name as it is in C++ without namespaces, result types, template arguments and parameters."""
    if ".<locals>." in name:  # a function of Python's
        return name.rpartition(".<locals>.")[2]
    kept: list[str] = []
    inside: list[str] = []  # the brackets that are open
    before, end, is_template = "", None, False
    for each in _TOKENS.findall(name.removeprefix("void ").replace("(anonymous namespace)", "{anonymous}")):
        if each == "(" or (each == "<" and before != ")"):  # after a bracket it is less than
            if not inside:
                end, is_template = (len(kept), is_template) if each == "(" else (end, True)
            inside.append(each)
        elif inside and inside[-1] + each in ("()", "<>"):  # in parentheses > is greater than
            inside.pop()
        elif not inside:
            kept.append(each)
        before = each
    text = "".join(kept[:end]).strip()
    if is_template and end is not None and "operator " not in text:
        text = text.rpartition(" ")[2]  # without the type of the result, which only templates have
    return printable(text.rpartition("::")[2].strip() or name)


def function_of(node: GraphNode) -> tuple[object, ...]:
    """Return what is equal for nodes that call the same function.

    Lambdas and functions inside others can share a name, so their line counts. That of other functions does
    not: they move when the file is edited.
    """
    line = node.line if "<" in node.name else None
    return node.kind, node.name, os.path.basename(node.file), line


def title(node: GraphNode) -> str:
    """Return the words that name a node: its kind, and the short name of what it calls."""
    return " ".join(filter(None, (node.kind, short_name(node.demangled or node.name))))


def caption(node: GraphNode) -> str:
    """Return what stands in the box of a node in a drawing."""
    return title(node) if node.enabled else f"{title(node)} (disabled)"


def body_title(node: GraphNode, number: int) -> str:
    """Return the words that name one of the bodies of a node: where it is, and when it runs."""
    return ", ".join(filter(None, (f"inside node {node.id}", case(node, number))))


def case(node: GraphNode, number: int) -> str:
    """Return when a body of a conditional node runs; nothing if the node has one body only."""
    if node.name == "switch":
        return f"case {number}"
    if len(node.bodies) < 2:
        return ""
    return ("then", "else")[number] if node.name == "if" and number < 2 else f"body {number}"


@cache
def _library() -> ctypes.CDLL | None:
    from ctypes.util import find_library

    for name in filter(None, ("libstdc++.so.6", "libc++abi.so.1", find_library("c++abi"))):
        try:
            library = ctypes.CDLL(name)
            library.__cxa_demangle.restype = ctypes.c_void_p
        except (OSError, AttributeError):
            continue
        library.free.argtypes = [ctypes.c_void_p]
        library.free.restype = None
        return library
    return None
