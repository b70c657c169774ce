"""How much there is of the library, and how much of it a capture and a replay need: figures may only fall.

A change that needs more can take it here, in the open, and gives the reason in docs/decisions. A change after
which there is less lowers the figure.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from processes import execute

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "accelerator_graph"

MOST = {
    "modules": 234,
    "lines of Python": 51_324,
    "lines of C": 2_900,
    "modules of the core": 19,
    "imports in the core": 52,
    "modules of the core that import each other in a chain": 7,
    "slots of a class of the core": 14,
    "parameters of Graph": 6,
    "modules that Graph and graph load": 28,
    "modules that a capture has loaded": 37,
    "functions that a capture and a replay run": 39,
    "files that they are in": 11,
    "lines of these functions": 450,
    "calls of a replay": 2,
    "calls of a replay on a stream": 5,
    "calls of a replay of an armed graph": 2,
    "calls of a graphed function that replays": 15,
}
"""The figures of the calls are without those inside backends and without the C extension."""

PROGRAM = r"""
import json, sys
from pathlib import Path

import accelerator_graph as ag

PACKAGE = Path(ag.__file__).parent


def loaded():
    return sum(name.partition(".")[0] == "accelerator_graph" for name in sys.modules)


def calls(*functions):
    found = []

    def note(frame, event, arg):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE) and not frame.f_code.co_name.startswith("<"):
            place = path.relative_to(PACKAGE).as_posix()
            if not place.startswith("backends/"):
                found.append((place, frame.f_code.co_firstlineno))

    sys.setprofile(note)
    try:
        for function in functions:
            function()
    finally:
        sys.setprofile(None)
    return found


ag.Graph, ag.graph
figures = {"modules that Graph and graph load": loaded()}
stream = ag.Stream(backend="cpu")


def capture():
    graph = ag.Graph(stream=stream)
    with graph:
        stream.launch(int)
    return graph


capture().replay()
figures["modules that a capture has loaded"] = loaded()
capture().reset()
graph = capture()
for _ in range(2):
    graph.replay(), graph.replay(stream)
figures["a capture and a replay"] = calls(capture, graph.replay)
figures["calls of a replay"] = len(calls(graph.replay))
figures["calls of a replay on a stream"] = len(calls(lambda: graph.replay(stream)))
armed = ag.Graph(stream=stream, observe=ag.ownership())
with armed:
    stream.launch(int)
armed.watch(keeps := type("Array", (), {})())
armed.replay(), armed.replay()
figures["calls of a replay of an armed graph"] = len(calls(armed.replay))


@ag.graphed(warmup=1)
def function(array):
    result = np.empty_like(array)
    ag.current_stream().launch(np.multiply, array, 2, result)
    return result


try:
    import numpy as np
except ImportError:
    pass
else:
    array = np.zeros(8)
    with stream:
        for _ in range(5):
            function(array)
        figures["calls of a graphed function that replays"] = len(calls(lambda: function(array)))
print(json.dumps(figures))
"""


def sources(folder: Path = PACKAGE) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))}


def lines(*suffixes: str) -> int:
    paths = [path for suffix in suffixes for path in PACKAGE.rglob(f"*{suffix}")]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one, except what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")):
            yield child
            yield from executed(child)


def imports_in(folder: Path) -> dict[str, set[str]]:
    """Return which modules of a folder each of them imports, in functions as well."""
    trees = {path.stem: tree for path, tree in sources(folder).items() if path.stem != "__init__"}
    found = {}
    for name, tree in trees.items():
        inside = [node for node in executed(tree) if isinstance(node, ast.ImportFrom) and node.level == 1]
        named = {each.module or alias.name for each in inside for alias in each.names}
        found[name] = (named & trees.keys()) - {name}
    return found


def longest_chain(edges: dict[str, set[str]]) -> int:
    @cache
    def length(name: str) -> int:
        return 1 + max(map(length, edges[name]), default=0)

    return max(map(length, edges))


def most_slots(folder: Path) -> int:
    values = [
        node.value
        for tree in sources(folder).values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__"
    ]
    return max(len(value.elts) for value in values if isinstance(value, ast.Tuple))


def parameters(path: Path, name: str) -> int:
    [kind] = [node for node in ast.walk(sources(path.parent)[path]) if getattr(node, "name", "") == name]
    [function] = [node for node in ast.walk(kind) if getattr(node, "name", "") == "__init__"]
    assert isinstance(function, ast.FunctionDef)
    return len(function.args.args) + len(function.args.kwonlyargs) - 1


def lines_of(functions: set[tuple[str, int]]) -> int:
    """Return how many lines of code functions have: no docstrings, comments or empty lines."""
    total = 0
    for file in {file for file, _ in functions}:
        text = (PACKAGE / file).read_text(encoding="utf-8")
        code = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef):
                continue
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if (file, first) in functions:
                body = node.body[1:] if ast.get_docstring(node) else node.body
                span = code[body[0].lineno - 1 : node.end_lineno] if body else []
                total += 1 + sum(bool(line.strip()) and line.strip()[0] not in '#"' for line in span)
    return total


@pytest.fixture(scope="module")
def figures() -> dict[str, int]:
    core = PACKAGE / "_core"
    edges = imports_in(core)
    environment = {key: value for key, value in os.environ.items() if "ACCELERATOR_GRAPH" not in key}
    environment |= {"ACCELERATOR_GRAPH_PURE_PYTHON": "1", "PYTHONPATH": str(ROOT)}
    done = execute([sys.executable, "-c", PROGRAM], env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    functions = {(file, line) for file, line in found.pop("a capture and a replay")}
    return found | {
        "modules": len(sources()),
        "lines of Python": lines(".py"),
        "lines of C": lines(".c", ".h"),
        "modules of the core": len(edges) + 1,
        "imports in the core": sum(map(len, edges.values())),
        "modules of the core that import each other in a chain": longest_chain(edges),
        "slots of a class of the core": most_slots(core),
        "parameters of Graph": parameters(core / "graph.py", "BaseGraph"),
        "functions that a capture and a replay run": len(functions),
        "files that they are in": len({file for file, _ in functions}),
        "lines of these functions": lines_of(functions),
    }


@pytest.mark.parametrize("figure", MOST)
def test_a_figure_has_not_grown(figures: dict[str, int], figure: str) -> None:
    if figure not in figures:
        pytest.skip("NumPy is not installed")
    assert figures[figure] <= MOST[figure], "raise it here if there is a reason for more"


def test_no_figure_is_forgotten(figures: dict[str, int]) -> None:
    assert figures.keys() <= MOST.keys()


def test_figures_are_counted() -> None:
    """Of small sources, so that the counts themselves can be wrong only here."""
    edges = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert longest_chain(edges) == 3
    tree = ast.parse("if TYPE_CHECKING:\n    from . import x\ndef f():\n    from .y import z")
    assert [node.module for node in executed(tree) if isinstance(node, ast.ImportFrom)] == ["y"]
