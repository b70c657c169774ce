"""Who may import whom. The table is the rule."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = "accelerator_graph"
REPOSITORY = Path(__file__).resolve().parents[1]
PLUGINS = {path.parent.name: path.parent for path in REPOSITORY.glob(f"plugins/*/{PACKAGE}_*/__init__.py")}

# A rule: the modules of these rooms may import those rooms of ours, and those packages beside the standard
# library. The first that fits holds. What only type checkers import of ours counts, too.
# A room is a module or a folder with all that is in it.
VENDOR = "errors _install _interpreter backends.base backends.mixins backends.memory backends._shared"
RULES = [
    ("_install", "", ""),
    ("errors _interpreter", "_interpreter", ""),
    ("_plugins", "errors _interpreter _plugins", ""),
    (
        "backends.base backends.mixins backends._contract",
        "errors _interpreter backends.base backends.mixins backends._contract",
        "",
    ),
    ("backends.memory", "_interpreter", ""),
    ("backends._shared", "errors _interpreter backends.base backends.mixins backends._shared", ""),
    (
        "backends.driver",
        "errors _interpreter backends.base backends.mixins backends.memory backends._shared",
        "",
    ),
    ("backends.recording", "errors backends.base backends.mixins backends._contract", ""),
    ("backends.cpu backends._cpu", f"{VENDOR} backends.recording backends._cpu", ""),
    ("backends.cuda backends._cuda", f"{VENDOR} backends.driver backends._cuda", "cuda"),
    ("backends.hip backends._hip", f"{VENDOR} backends.driver backends._hip", "hip"),
    (
        "backends.registry backends._registry",
        "errors _interpreter _plugins backends.base backends._contract backends._registry",
        "",
    ),
    ("backends", "backends", ""),
    ("interop.base", "errors _interpreter backends.base interop.records", ""),
    ("interop.registry", "errors _interpreter _plugins interop.base interop.records", ""),
    (
        "interop.torch interop._torch",
        "errors _interpreter backends.base interop.base interop.records interop._torch",
        "",
    ),
    ("inspection.graph", "errors backends.base _core inspection", ""),
    ("inspection.progress", "errors backends.base _core", ""),
    ("inspection", "backends.base interop.base inspection", ""),
    (
        "interop.cuda_core interop.cupy interop.numba interop.warp",
        "errors backends.base interop.base interop.registry",
        "",
    ),
    ("interop", "interop", ""),
    (
        "_core",
        "errors _interpreter backends.base backends.memory backends.registry interop.base interop.registry "
        "_core",
        "",
    ),
    (
        "_checking",
        "errors _interpreter backends.base interop.base interop.registry _core _arrays inspection _checking",
        "",
    ),
    ("_breaks.marks", "errors _interpreter _breaks", ""),
    (
        "_breaks",
        "errors _interpreter backends.base interop.base interop.registry _core _arrays _checking _breaks",
        "",
    ),
    (
        "_control",
        "errors _interpreter backends.base backends.memory _core _arrays _checking _breaks _control",
        "",
    ),
    (
        "api",
        "errors _interpreter backends.base backends.registry interop.base interop.registry _core inspection "
        "_checking diagnosis._tracing _breaks",
        "",
    ),
    (
        "diagnosis._tracing",
        "errors _interpreter backends.base interop.base _core.observers _core.labels _core.capture "
        "_core.streams _core.stream_stack _core.extension _core._fast _core.ownership "
        "diagnosis._tracing",
        "",
    ),
    (
        "diagnosis._verify diagnosis.verification",
        "errors _interpreter backends.base backends.memory interop.base interop.registry _core api _arrays "
        "_graphed diagnosis._verify",
        "",
    ),
    (
        "_arrays",
        "errors backends.base interop.base interop.registry _core.streams _arrays",
        "",
    ),
    (
        "_graphed.second_capture",
        "errors _interpreter _core diagnosis._tracing _graphed",
        "",
    ),
    (
        "_graphed.break_search",
        "errors _interpreter _arrays _breaks.marks diagnosis._tracing _graphed",
        "",
    ),
    (
        "_graphed.cache",
        "errors _interpreter _core _arrays _breaks.marks diagnosis.verification _graphed",
        "",
    ),
    ("_graphed.binding.proof", "_core _arrays diagnosis._verify _graphed", ""),
    (
        "_graphed",
        "errors _interpreter backends.base backends.registry interop.base interop.registry _core api "
        "_checking _arrays _breaks.marks _graphed",
        "",
    ),
    (
        "compat",
        "errors _interpreter backends.base backends.registry interop.registry interop.torch _core _checking "
        "api compat",
        "",
    ),
    (
        PACKAGE,
        "errors _breaks _control backends inspection interop _core _checking api _graphed diagnosis compat "
        "testing",
        "",
    ),
    (
        "testing.programs testing._programs.drawing",
        f"{PACKAGE} _install backends backends.base testing",
        "hypothesis",
    ),
    ("testing.works.cuda", f"{PACKAGE} testing", "cuda"),
    ("testing.works.hip", f"{PACKAGE} testing", "hip"),
    (
        "testing",
        f"{PACKAGE} errors _install _interpreter _plugins backends backends.base interop.registry testing",
        "pytest",
    ),
    (
        "diagnosis.ranks diagnosis.ranks_groups diagnosis.watchdog",
        "errors _interpreter interop.base inspection _core api diagnosis",
        "",
    ),
    ("diagnosis", "", ""),
    ("__main__", "_cli.command", ""),
    ("_cli", f"{PACKAGE} _install _interpreter _core inspection _cli _demo testing", ""),
    ("_demo.cuda", f"{PACKAGE} _demo", "cuda"),
    ("_demo.hip", f"{PACKAGE} _demo", "hip"),
    ("_demo", f"{PACKAGE} _interpreter _plugins _demo", ""),
]

# Whoever may not import a vendor or a framework may not ask for one by its name either.
NAMES = {"cuda", "hip", "rocm", "torch", "cupy", "numba", "warp", "triton", "jax"}
MAY_NAME = (
    "_install backends.registry backends._registry interop.registry _demo backends.cuda backends._cuda "
    "backends.hip backends._hip interop.torch interop._torch interop.cupy interop.numba interop.warp "
    "interop.cuda_core compat _graphed.torch testing.works _cli.trial _cli.packages _cli.doctor "
    "diagnosis.ranks_groups diagnosis._verify.where"
)
LISTS = {"backends", "interop"}
"""Packages, without their modules, that list these by name."""


PLUGIN_MAY_IMPORT = f"{PACKAGE} backends.base backends.recording errors testing"
"""What the documentation of backends promises to authors."""


def modules(package: str, root: Path) -> dict[str, Path]:
    """Every module of a package, by its full name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = (package, *path.relative_to(root).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def short(name: str) -> str:
    """The name of a module of ours inside the package."""
    return name.removeprefix(f"{PACKAGE}.")


OURS = modules(PACKAGE, REPOSITORY / PACKAGE)
MODULES = {short(name): path for name, path in OURS.items()}
OF_PLUGINS = {name: path for each, root in PLUGINS.items() for name, path in modules(each, root).items()}
PATHS = {**OURS, **OF_PLUGINS}


def fits(module: str, rooms: str) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms.split())


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one, except what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for statement in child.orelse:
                yield from (statement, *executed(statement))
        else:
            yield child
            yield from executed(child)


def imported(module: str, tree: ast.AST, *, types: bool = True) -> Iterator[tuple[int, str]]:
    """The line and the full name of every module that a module, by its full name, imports.

    With `types`, also what only type checkers import of the same distribution.
    """
    package = module in PATHS and PATHS[module].name == "__init__.py"
    here = module.split(".")
    seen = set(executed(tree))
    for node in ast.walk(tree):
        if node not in seen and not (types and isinstance(node, ast.ImportFrom) and node.level):
            continue  # only type checkers read it
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = len(here) + (1 if package else 0) - node.level
            base = ".".join([*(here[:up] if node.level else ()), *filter(None, [node.module])])
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield node.lineno, submodule if submodule in PATHS else base


def violations(module: str, source: str) -> list[str]:
    """What a module does that the table does not allow."""
    rule = next((rule for rule in RULES if fits(module, rule[0])), None)
    if rule is None:
        return [f"{module}: no rule covers it; add one to the table"]
    _, ours, others = rule
    tree = ast.parse(source)
    found = []
    for line, name in imported(module if module == PACKAGE else f"{PACKAGE}.{module}", tree):
        top = name.partition(".")[0]
        if top == PACKAGE:
            allowed = fits(short(name), ours)
        else:
            allowed = top in sys.stdlib_module_names or fits(top, others)
        if not allowed:
            found.append(f"{module}, line {line}: may not import {name}")
    if not fits(module, MAY_NAME) and module not in LISTS:
        found.extend(
            f"{module}, line {node.lineno}: may not name {node.value!r}"
            for node in executed(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.partition(".")[0] in NAMES
        )
    return found


def circle(sources: Mapping[str, str]) -> list[str]:
    """Return modules that import each other in a circle when they run; none if there is no circle."""
    graph: dict[str, Iterable[str]] = {
        module: {name for _, name in imported(module, ast.parse(source), types=False) if name != module}
        for module, source in sources.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_import_in_no_circle() -> None:
    assert len(PLUGINS) == 2
    assert circle({module: path.read_text(encoding="utf-8") for module, path in PATHS.items()}) == []


@pytest.mark.parametrize(
    "names",
    [
        ("accelerator_graph._core.streams", "accelerator_graph._core.replay"),
        ("accelerator_graph_opencl._queue", "accelerator_graph_opencl._stream"),
    ],
)
@pytest.mark.parametrize("form", ["def f():\n    {}", "{}"])
def test_circle_is_found(names: tuple[str, str], form: str) -> None:
    first, second = names
    imports = [f"from .{name.rpartition('.')[2]} import x" for name in names]
    assert circle({first: form.format(imports[1]), second: form.format(imports[0])})
    assert (
        circle({first: form.format(imports[1]), second: "from accelerator_graph.errors import DriverError"})
        == []
    )


def test_circle_of_type_checkers_is_none() -> None:
    first, second = "accelerator_graph._core.streams", "accelerator_graph._core.replay"
    assert (
        circle({first: "if TYPE_CHECKING:\n    from .replay import x", second: "from .streams import x"})
        == []
    )


@pytest.mark.parametrize("module", OF_PLUGINS)
def test_plugin_imports_nothing_private(module: str) -> None:
    tree = ast.parse(OF_PLUGINS[module].read_text(encoding="utf-8"))
    ours = [name for _, name in imported(module, tree) if fits(name, PACKAGE)]
    assert [name for name in ours if not fits(short(name), PLUGIN_MAY_IMPORT)] == []


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_what_it_may(module: str) -> None:
    assert violations(module, MODULES[module].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("errors", "from . import api"),
        ("errors", "from .api import Graph"),
        ("backends.base", "from .._core import streams"),
        ("backends.base", "def f():\n    from .._core.streams import Stream"),
        ("backends.cpu", "from .registry import get"),
        ("backends.cpu", "from ._cuda.driver import x"),
        ("backends.cpu", "import accelerator_graph.api"),
        ("backends.cuda", "import accelerator_graph"),
        ("backends.cuda", "import hip"),
        ("api", "import cuda.bindings.driver"),
        ("api", "from torch import cuda"),
        ("api", "import_module('cuda.bindings')"),
        ("_core.streams", "if name == 'hip': pass"),
        ("api", "if TYPE_CHECKING:\n    pass\nelse:\n    import torch"),
        ("something_new", ""),
    ],
)
def test_violation_is_found(module: str, source: str) -> None:
    assert violations(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("api", "from . import errors\nfrom ._core.streams import Stream\nimport os.path"),
        ("api", "if TYPE_CHECKING:\n    import torch"),
        ("backends.base", "from ..errors import DriverError"),
        ("backends.hip", "from ._hip.driver import Graph\nfrom hip import hip"),
    ],
)
def test_permitted_import_passes(module: str, source: str) -> None:
    assert violations(module, source) == []


TOOLS = "_checking diagnosis inspection _graphed compat api"


@pytest.mark.parametrize("module", [module for module in MODULES if fits(module, "_core")])
def test_the_core_imports_no_tool(module: str) -> None:
    """Whatever watches captures joins as an observer: the core does not know it, not even its types."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    names = {short(name) for _, name in imported(f"{PACKAGE}.{module}", tree)}
    assert [name for name in names if fits(name, TOOLS)] == []


WAITS = {"Barrier", "BoundedSemaphore", "Condition", "Event", "Semaphore", "Timer"}
"""What `threading` has that waits in Python: an interrupt can leave its inner lock taken."""
MAY_WAIT = "testing"


def waiting(source: str) -> set[str]:
    """Return what a module uses of these."""
    tree = list(ast.walk(ast.parse(source)))
    taken = [
        name.name
        for node in tree
        if isinstance(node, ast.ImportFrom) and node.module == "threading"
        for name in node.names
    ]
    used = [
        node.attr
        for node in tree
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "threading"
    ]
    return WAITS & {*taken, *used}


@pytest.mark.parametrize("module", [module for module in sorted(MODULES) if not fits(module, MAY_WAIT)])
def test_nothing_waits_that_an_interrupt_can_leave_locked(module: str) -> None:
    assert waiting(MODULES[module].read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    "source", ["import threading\nx = threading.Event()", "from threading import Condition, Lock"]
)
def test_waiting_is_found(source: str) -> None:
    assert len(waiting(source)) == 1
