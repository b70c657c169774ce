"""Who may import whom. The table is the rule."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

PACKAGE = "accelerator_graph"
ROOT = Path(__file__).resolve().parents[1] / PACKAGE

CORE = (
    "api streams pools _inspection _lifetime _liveness _replay _transaction _graphed _graphed_function "
    "_recorded_call _results _cache _methods _signature _nested _arrays _traffic _side_streams _collector "
    "_sure_exit"
)
CHOICE = (
    "backends.registry backends._automatic backends._catalogue backends._claim backends._entry_points "
    "backends._instances backends._report"
)
CONTRACT = "errors _process _sure_exit backends.base backends._common backends._launch"

# A rule: these modules may import those of ours, and those packages beside the standard library.
# The first that fits holds. Imports that only type checkers see don't count.
RULES = [
    ("errors _process", "", ""),
    ("backends.base interop.base", "errors", ""),
    ("backends._common", "errors backends.base", ""),
    ("backends._launch", "", ""),
    ("backends.cpu backends._cpu_*", f"{CONTRACT} backends._cpu_*", ""),
    ("backends.cuda backends._cuda_*", f"{CONTRACT} backends._cuda_*", "cuda"),
    ("backends.hip backends._hip_*", f"{CONTRACT} backends._hip_*", "hip"),
    (CHOICE, f"errors _process backends.base {CHOICE}", ""),
    ("_fast_path", "_fast", ""),
    ("_sure_exit", "", ""),
    (
        CORE,
        f"errors _process backends.base backends.registry interop.base interop.registry _fast_path {CORE}",
        "",
    ),
    (
        "_graphed_callables _lanes",
        f"errors backends.base interop.registry interop._torch_autograd interop._torch_replay _lanes {CORE}",
        "",
    ),
    ("interop.registry", "errors _process interop.base backends._catalogue", ""),
    ("interop.torch interop._torch_*", "errors _process interop.base interop._torch_*", ""),
    ("interop.cupy interop.numba interop.warp interop.cuda_core", "interop.base", ""),
    (
        "compat compat.*",
        "errors api streams pools _lifetime _liveness backends.registry interop.registry interop.torch "
        "compat compat.*",
        "",
    ),
    ("backends", "backends.registry", ""),
    ("interop", "interop.registry", ""),
    ("accelerator_graph", f"errors backends backends.registry {CORE}", ""),
    (
        "testing testing.*",
        "accelerator_graph errors backends backends.base interop.registry testing testing.*",
        "pytest",
    ),
    ("__main__", "accelerator_graph _demo", ""),
    ("_demo _demo.cpu", "accelerator_graph", ""),
    ("_demo._kernel", "", ""),
    ("_demo.cuda", "accelerator_graph _demo._kernel", "cuda"),
    ("_demo.hip", "accelerator_graph _demo._kernel", "hip"),
]

# Whoever may not import a vendor or a framework may not ask for one by its name either.
NAMES = {"cuda", "hip", "rocm", "torch", "cupy", "numba", "warp", "triton", "jax"}
MAY_NAME = (
    f"{CHOICE} interop.registry _demo _demo.cuda _demo.hip backends.cuda backends._cuda_* backends.hip "
    "backends._hip_* interop.torch interop._torch_* interop.cupy interop.numba interop.warp "
    "interop.cuda_core compat.*"
)


def modules() -> dict[str, Path]:
    """Every module of the package, by its name inside it."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or PACKAGE] = path
    return found


MODULES = modules()


def fits(module: str, patterns: str) -> bool:
    return any(fnmatchcase(module, pattern) for pattern in patterns.split())


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one, except what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for statement in child.orelse:
                yield from (statement, *executed(statement))
        else:
            yield child
            yield from executed(child)


def imported(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the full name of every module that is imported."""
    package = MODULES.get(module, ROOT / "x.py").name == "__init__.py"
    here = [PACKAGE] if module == PACKAGE else [PACKAGE, *module.split(".")]
    for node in executed(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = len(here) + (1 if package else 0) - node.level
            base = ".".join([*(here[:up] if node.level else ()), *filter(None, [node.module])])
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield node.lineno, submodule if submodule.removeprefix(f"{PACKAGE}.") in MODULES else base


def violations(module: str, source: str) -> list[str]:
    """What a module does that the table does not allow."""
    rule = next((rule for rule in RULES if fits(module, rule[0])), None)
    if rule is None:
        return [f"{module}: no rule covers it; add one to the table"]
    _, ours, others = rule
    tree = ast.parse(source)
    found = []
    for line, name in imported(module, tree):
        top, _, rest = name.partition(".")
        if top == PACKAGE:
            allowed = fits(rest or PACKAGE, ours)
        else:
            allowed = top in sys.stdlib_module_names or fits(top, others)
        if not allowed:
            found.append(f"{module}, line {line}: may not import {name}")
    if not fits(module, MAY_NAME):
        found.extend(
            f"{module}, line {node.lineno}: may not name {node.value!r}"
            for node in executed(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.partition(".")[0] in NAMES
        )
    return found


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_what_it_may(module: str) -> None:
    assert violations(module, MODULES[module].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("errors", "from . import api"),
        ("errors", "from .api import Graph"),
        ("backends.base", "from .. import streams"),
        ("backends.base", "def f():\n    from ..streams import Stream"),
        ("backends.cpu", "from .registry import get"),
        ("backends.cpu", "from ._cuda_graph import x"),
        ("backends.cpu", "import accelerator_graph.api"),
        ("backends.cuda", "import accelerator_graph"),
        ("backends.cuda", "import hip"),
        ("api", "import cuda.bindings.driver"),
        ("api", "from torch import cuda"),
        ("api", "import_module('cuda.bindings')"),
        ("streams", "if name == 'hip': pass"),
        ("api", "if TYPE_CHECKING:\n    pass\nelse:\n    import torch"),
        ("something_new", ""),
    ],
)
def test_violation_is_found(module: str, source: str) -> None:
    assert violations(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("api", "from . import errors, streams\nfrom .backends.base import Backend\nimport os.path"),
        ("api", "if TYPE_CHECKING:\n    import torch"),
        ("backends.base", "from ..errors import DriverError"),
        ("backends.hip", "from ._hip_graph import Graph\nfrom hip import hip"),
    ],
)
def test_permitted_import_passes(module: str, source: str) -> None:
    assert violations(module, source) == []
