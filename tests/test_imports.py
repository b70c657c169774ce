"""What `import accelerator_graph` costs and promises, each seen in a fresh interpreter."""

from __future__ import annotations

import ast
import importlib
import pydoc
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import accelerator_graph
from processes import execute

ROOT = Path(__file__).resolve().parents[1]

COLD = [
    "cuda", "hip", "rocm", "torch", "cupy", "numpy",
    "importlib.metadata", "typing_extensions", "dataclasses",
]  # fmt: skip


ON_DEMAND = [
    "_arrays",
    "_cli",
    "inspection.files",
    "_core.labels",
    "_core.liveness",
    "_core.memory",
    "_core.node_changes",
    "_core.profiling",
    "_core.update",
    "_demo",
    "_graphed",
    "_install",
    "_plugins.hooks",
    "backends._contract.contents",
    "backends._cuda.errors",
    "backends._cuda.node",
    "backends._cuda.profiler",
    "backends._cuda.timing",
    "backends._cuda.update",
    "backends._hip",
    "backends._registry.choice",
    "backends._shared.nodes",
    "backends._shared.kernels",
    "backends.cpu",
    "backends.hip",
    "backends.memory",
    "compat",
    "diagnosis",
    "inspection.description",
    "inspection.fingerprint",
    "inspection.memory",
    "inspection.profile",
    "interop.records",
    "interop._torch.errors",
    "testing",
]
"""Modules and folders that a first capture does without. Each would take 0.1 to 1 ms of a program's start."""

MOST_MODULES = 50
"""So many modules are imported for `Graph` and `graph`. An empty one takes 60 us of a program's start."""

EXPENSIVE = """
def expensive(module):
    for name, value in vars(module).items():
        if isinstance(value, type) and value.__module__ == module.__name__:
            named = issubclass(value, tuple) and hasattr(value, "_fields")
            if named or issubclass(value, dict) or hasattr(value, "__dataclass_fields__"):
                yield f"{module.__name__}.{name}"
"""


def not_on_demand(loaded: list[str]) -> list[str]:
    """Return which of the modules that were loaded should have waited."""
    names = [name.removeprefix("accelerator_graph.") for name in loaded]
    return [name for name in names for each in ON_DEMAND if name == each or name.startswith(f"{each}.")]


def fresh(code: str) -> str:
    """Run code in an interpreter that has the checkout and the environment's packages; return its output."""
    paths = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    prelude = f"import sys; before = set(sys.modules); sys.path[:0] = {paths!r}\n"
    done = execute([sys.executable, "-I", "-W", "error", "-c", prelude + code])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_cold() -> None:
    loaded = fresh("import accelerator_graph; print(*sorted(set(sys.modules) - before))").split()
    assert "accelerator_graph" in loaded
    assert sorted(set(loaded) & set(COLD)) == []


@pytest.mark.parametrize("name", ["Graph", "Stream", "graph", "errors", "backends"])
def test_public_name_loads_no_vendor(name: str) -> None:
    code = f"import accelerator_graph; accelerator_graph.{name}; print(*sorted(set(sys.modules) - before))"
    assert sorted(set(fresh(code).split()) & {"cuda", "hip", "rocm", "torch", "cupy", "numpy"}) == []


def test_graph_imports_nothing_that_only_other_operations_use() -> None:
    loaded = fresh(
        "from accelerator_graph import Graph, graph; print(*sorted(set(sys.modules) - before))"
    ).split()
    assert "accelerator_graph._core.capture" in loaded
    assert not_on_demand(loaded) == []
    assert len([name for name in loaded if name.startswith("accelerator_graph")]) <= MOST_MODULES
    assert "numpy" not in loaded


@pytest.mark.parametrize("name", ["backends.cuda", "backends.hip", "interop.torch"])
def test_the_modules_of_vendors_import_only_what_a_capture_needs(name: str) -> None:
    code = f"import accelerator_graph.{name}; print(*sorted(set(sys.modules) - before))"
    found = not_on_demand(fresh(code).split())
    assert [each for each in found if not each.startswith(("backends.hip", "backends._hip"))] == []


def test_no_class_that_takes_long_to_define_is_defined_for_a_capture() -> None:
    """A named tuple or a dataclass takes ten times as long to define as a class with slots."""
    assert (
        fresh(
            f"""{EXPENSIVE}
from accelerator_graph import Graph, graph
import accelerator_graph.backends.cuda, accelerator_graph.interop.torch
modules = [module for name, module in sys.modules.items() if name.startswith("accelerator_graph")]
print(*(name for module in modules for name in expensive(module)))
from accelerator_graph.backends.base import GraphNode
assert list(expensive(sys.modules[GraphNode.__module__])), "the test sees nothing"
"""
        ).strip()
        == ""
    )


def test_a_graph_loads_nothing_cold() -> None:
    code = """
import accelerator_graph as ag
with ag.Stream(backend="cpu") as s, ag.Graph() as g:
    s.launch(int)
g.replay()
s.synchronize()
print(*sorted(set(sys.modules) - before))
"""
    assert sorted(set(fresh(code).split()) & set(COLD)) == []


def test_every_public_name_is_still_itself_after_every_submodule_was_imported() -> None:
    fresh(
        """
import importlib, pkgutil
import accelerator_graph as ag
first = {name: getattr(ag, name) for name in ag.__all__}
for module in pkgutil.walk_packages(ag.__path__, "accelerator_graph."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        assert error.name.partition(".")[0] in ("cuda", "hip", "pytest", "hypothesis"), error
changed = [name for name, value in first.items() if getattr(ag, name) is not value]
assert not changed, changed
"""
    )


def test_submodules_can_be_imported_before_the_public_names_are_read() -> None:
    fresh(
        """
import importlib, pkgutil
import accelerator_graph as ag
for module in pkgutil.iter_modules(ag.__path__, "accelerator_graph."):
    importlib.import_module(module.name)
assert callable(ag.graph), ag.graph
assert [name for name in ag.__all__ if not hasattr(ag, name)] == []
"""
    )


@pytest.mark.parametrize(
    "name",
    [
        "api.Graph",
        "testing.BackendConformance",
        "backends.base.Backend",
        "backends.cpu.CpuBackend",
        "interop.base.Framework",
        "interop.cupy.CuPy",
    ],
)
def test_submodule_is_imported_when_it_is_named(name: str) -> None:
    fresh(f"import accelerator_graph as ag; ag.{name}")


def test_import_star_does_not_import_the_conformance_kit() -> None:
    fresh(
        """
from accelerator_graph import *
assert Graph and "accelerator_graph.testing" not in sys.modules
"""
    )


def test_all_is_exact() -> None:
    fresh(
        """
import accelerator_graph as ag
assert len(ag.__all__) == len(set(ag.__all__)), ag.__all__
missing = [name for name in ag.__all__ if not hasattr(ag, name)]
assert not missing, missing
unlisted = [name for name in ag.__all__ if name not in dir(ag)]
assert not unlisted, unlisted
extra = [
    name for name, value in vars(ag).items()
    if name not in ag.__all__ and getattr(value, "__module__", "").startswith("accelerator_graph")
    and not name.startswith("_")
]
assert not extra, extra
namespace = {}
exec("from accelerator_graph import *", namespace)
assert set(ag.__all__) <= set(namespace)
"""
    )


def test_type_checkers_see_the_public_names() -> None:
    tree = ast.parse(Path(accelerator_graph.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        [alias] = statement.names
        assert alias.asname == alias.name, "write `X as X`: else type checkers take it for private"
        seen[alias.name] = f".{statement.module}" if statement.module else ""
    assert seen == accelerator_graph._HOMES


def test_unknown_name_is_an_attribute_error() -> None:
    fresh(
        """
import accelerator_graph as ag
try:
    ag.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error), error
else:
    raise AssertionError
"""
    )


@pytest.fixture(scope="module")
def jedi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """jedi, with a cache of its own: in a shared one it reads files that another process is writing."""
    jedi = pytest.importorskip("jedi")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jedi.settings, "cache_directory", str(tmp_path_factory.mktemp("jedi")))
        yield jedi


@pytest.mark.parametrize("package", ["", ".backends", ".compat", ".interop"])
def test_public_names_can_be_completed(jedi: Any, package: str) -> None:
    """As in IPython, by `dir`, and in editors, by jedi, which reads the source."""
    module = importlib.import_module(f"accelerator_graph{package}")
    assert set(module.__all__) <= set(dir(module))
    code = f"import accelerator_graph{package} as it\nit."
    completed = {found.name for found in jedi.Script(code).complete()}
    assert set(module.__all__) <= completed
    if not package:
        assert not {"TYPE_CHECKING", "annotations"} & {*dir(module), *completed}


def test_members_of_public_classes_can_be_completed(jedi: Any) -> None:
    code = "import accelerator_graph as ag\nwith ag.Stream() as stream, ag.Graph() as graph:\n    {}"
    for text, name in (
        ("stream.rec", "record"),
        ("graph.debug_d", "debug_dump"),
        ("ag.backends.res", "resolve"),
    ):
        assert [found.name for found in jedi.Script(code.format(text)).complete()] == [name]


def test_help_has_every_public_name() -> None:
    text = pydoc.render_doc(accelerator_graph, renderer=pydoc.plaintext)
    assert [name for name in accelerator_graph.__all__ if not re.search(rf"\b{name}\b", text)] == []
