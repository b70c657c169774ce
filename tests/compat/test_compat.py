"""The drop-in for torch: its signatures, the names that it replaces."""

import inspect
import os
import sys
import textwrap
from pathlib import Path

import pytest

from accelerator_graph import compat
from accelerator_graph.compat._context import graph
from accelerator_graph.compat._graphs import CUDAGraph, Graph
from processes import execute
from test_imports import fresh
from torch_cpu.forks import popen

needs_torch = pytest.mark.needs("torch")

# The arguments that programs pass, by torch's release. Ours may take arguments that a release lacks.
SIGNATURES = [
    (CUDAGraph, "(keep_graph=False)", "2.9 to 2.15"),
    (CUDAGraph.capture_begin, "(self, pool=None, capture_error_mode='global')", "2.9 to 2.12"),
    (
        CUDAGraph.capture_begin,
        "(self, pool=None, capture_error_mode='global', check_input_liveness=False)",
        "2.13 to 2.15",
    ),
    *(
        (getattr(CUDAGraph, name), "(self)", "2.9 to 2.15")
        for name in ("capture_end", "instantiate", "replay")
    ),
    *((getattr(CUDAGraph, name), "(self)", "2.9 to 2.15") for name in ("reset", "pool", "enable_debug_mode")),
    *(
        (getattr(CUDAGraph, name), "(self)", "2.9 to 2.15")
        for name in ("raw_cuda_graph", "raw_cuda_graph_exec")
    ),
    (CUDAGraph.debug_dump, "(self, debug_path)", "2.9 to 2.14"),
    (CUDAGraph.debug_dump, "(self, debug_path, *, verbose=True)", "2.15"),
    (CUDAGraph.register_generator_state, "(self, generator)", "2.9 to 2.15"),
    (CUDAGraph.get_currently_capturing_graph, "()", "2.12 to 2.15"),
    (graph, "(cuda_graph, pool=None, stream=None, capture_error_mode='global')", "2.9 to 2.11"),
    (
        graph,
        "(cuda_graph, pool=None, stream=None, capture_error_mode='global', enable_annotations=False, "
        "check_input_liveness=False)",
        "2.13",
    ),
    (
        graph,
        "(cuda_graph, pool=None, stream=None, capture_error_mode='global', enable_annotations=False, "
        "annotation_config=None, check_input_liveness=False)",
        "2.15",
    ),
    (Graph, "(keep_graph=False, *, pool=None, capture_error_mode='default')", "2.13 to 2.15"),
    *(
        (getattr(Graph, name), "(self)", "2.13 to 2.15")
        for name in ("capture_begin", "capture_end", "replay")
    ),
    *((getattr(Graph, name), "(self)", "2.13 to 2.15") for name in ("instantiate", "reset", "pool")),
    (Graph.enable_debug_mode, "(self)", "2.13 to 2.15"),
    (Graph.debug_dump, "(self, path)", "2.13 to 2.15"),
]
NEWEST = {(graph, "annotation_config")}
"""Arguments of torch 2.15 in the place of another one of torch 2.13, which is passed by keyword only."""


def parameters(signature):
    return {
        each.name: (each.kind, each.default)
        for each in signature.parameters.values()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }


def refusals(ours, theirs):
    """Return the arguments that torch's own takes, by its signature, and the stand-in does not."""
    mine, found = parameters(inspect.signature(ours)), []
    optional = {name for kind, name in NEWEST if kind is ours}
    order = [name for name in mine if name in parameters(theirs) or name not in optional]
    for position, (name, (kind, default)) in enumerate(parameters(theirs).items()):
        if name not in mine or mine[name][1] != default:
            found.append(f"{name}={default}")
        elif kind is not inspect.Parameter.KEYWORD_ONLY and (
            order.index(name) != position or mine[name][0] is inspect.Parameter.KEYWORD_ONLY
        ):
            found.append(f"{name} at position {position}")
    return found


@pytest.mark.promise("arguments-of-torch", "drop-in-waits-for-the-device")
@pytest.mark.parametrize(("ours", "theirs", "releases"), SIGNATURES)
def test_signatures(ours, theirs, releases):
    namespace = {}
    exec(f"def function{theirs}: pass", namespace)
    assert refusals(ours, inspect.signature(namespace["function"])) == []


def test_a_refusal_is_found():
    def theirs(a, b=1, *, c=2): ...

    def renamed(x, b=1, *, c=2): ...

    def moved(b=1, a=None, *, c=2): ...

    def changed(a, b=1, *, c=3): ...

    for ours in (renamed, moved, changed):
        assert refusals(ours, inspect.signature(theirs))


@pytest.mark.promise("arguments-of-torch")
@needs_torch
def test_signatures_of_the_torch_that_is_installed():
    found = with_torch(
        """
        import inspect
        from compat.test_compat import CUDAGraph, Graph, graph, refusals
        torchs = [(CUDAGraph, torch.cuda.CUDAGraph), (graph, torch.cuda.graph)]
        if hasattr(torch.accelerator, "Graph"):
            torchs.append((Graph, torch.accelerator.Graph))
        for ours, theirs in torchs:
            print(refusals(ours, inspect.signature(theirs)))
            for name, method in vars(theirs).items():
                if inspect.isfunction(method) and not name.startswith("_") and hasattr(ours, name):
                    print(name, refusals(getattr(ours, name), inspect.signature(method)))
        """
    )
    assert len(found) > 10
    assert [line for line in found if not line.endswith("[]")] == []


def with_torch(code):
    """Run code in a process of its own; return the lines that it printed."""
    root = Path(__file__).resolve().parents[2]
    done = execute(
        [sys.executable, "-c", "import torch\n" + textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "tests")))},
        timeout=200,
        start=popen(),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_nothing_is_imported_before_a_name_is_asked_for():
    loaded = fresh(
        "from accelerator_graph import compat; compat.install; print(*sorted(set(sys.modules) - before))"
    ).split()
    assert "accelerator_graph.compat" in loaded
    assert {"torch", "cuda", "hip"}.isdisjoint(loaded)


def test_without_torch():
    fresh(
        """
sys.modules["torch"] = None
from accelerator_graph import compat
for attempt in (compat.install, lambda: compat.CUDAGraph, lambda: compat.graph, lambda: compat.Graph):
    try:
        attempt()
    except ImportError as error:
        assert error.name == "torch" and "install torch" in str(error), error
    else:
        raise AssertionError(attempt)
"""
    )


def test_names():
    assert set(compat.__all__) <= set(dir(compat))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = compat.no_such_name


@pytest.mark.promise("names-are-given-back")
@needs_torch
def test_names_are_taken_and_given_back():
    with_torch(
        """
        from accelerator_graph import compat
        places = (torch.cuda, torch.cuda.graphs, torch.accelerator, torch.cuda.memory)
        names = ("CUDAGraph", "graph", "Graph", "empty_cache")
        before = [{name: getattr(place, name, None) for name in names} for place in places]
        def now():
            return [{name: getattr(place, name, None) for name in names} for place in places]
        with compat.install():
            assert torch.cuda.CUDAGraph is torch.cuda.graphs.CUDAGraph is compat.CUDAGraph
            assert torch.cuda.graph is torch.cuda.graphs.graph is compat.graph
            assert torch.accelerator.Graph is compat.Graph
            assert compat.CUDAGraph.torchs_own is before[0]["CUDAGraph"]
            taken = now()
            with compat.install():
                assert now() == taken
            assert now() == taken
            torch.cuda.empty_cache()
        assert now() == before
        undo = compat.install()
        torch.cuda.graph = mine = type("Mine", (), {})
        undo.close()
        assert torch.cuda.graph is mine
        assert torch.cuda.CUDAGraph is before[0]["CUDAGraph"]
        torch.cuda.graph = before[0]["graph"]
        class Derived(compat.CUDAGraph):
            pass
        torch.cuda.CUDAGraph = Derived
        compat.install()
        assert torch.cuda.CUDAGraph is Derived
        assert Derived.torchs_own is before[0]["CUDAGraph"]
        """
    )


@needs_torch
def test_torch_compiles_with_the_names_taken():
    with_torch(
        """
        from accelerator_graph import compat
        compat.install()
        double = torch.compile(lambda x: x * 2 + 1, backend="eager", fullgraph=True)
        assert double(torch.ones(3)).tolist() == [3.0] * 3
        g = torch.cuda.CUDAGraph()
        assert not hasattr(g, "no_such_name")
        try:
            g.replay()
        except RuntimeError as error:
            assert "nothing was captured" in str(error), error
        else:
            raise AssertionError
        """
    )
