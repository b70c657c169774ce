"""Frameworks that take part: what needs no driver."""

import os
import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph import _plugins as entry_points
from accelerator_graph import interop
from accelerator_graph.interop import registry
from accelerator_graph.interop.base import Framework
from accelerator_graph.testing import BackendConformance
from accelerator_graph.testing.works.host import HostWork
from processes import python

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.needs("no_gpu")


BUILTIN = sorted(registry.BUILTINS)


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(registry, "_made", {})
    monkeypatch.setattr(registry, "_complaints", {})


def parts():
    """Every way in which an import may be half done, by its modules and their attributes."""
    cuda = {
        "cupy": [None, {}, {"runtime": {}}, {"runtime": {"is_hip": False}}],
        "torch": [None, {}],
        "warp": [None],
        "numba.cuda": [None],
        "cuda.core": [None],
    }
    for name, states in cuda.items():
        for state in states:
            yield name, None if state is None else {"cuda": space(state)}
    for name in ("numba.cuda.cudadrv.driver", "warp._src.context", "warp.context"):
        for state in ({}, {"driver": SimpleNamespace()}, {"runtime": None}, {"runtime": SimpleNamespace()}):
            yield name, state


def space(state):
    return SimpleNamespace(
        **{name: space(what) if isinstance(what, dict) else what for name, what in state.items()}
    )


@pytest.mark.parametrize(
    ("name", "state"), [each for each in parts() if each != ("torch", {"cuda": space({})})]
)
def test_half_imported_modules_break_nothing(monkeypatch, name, state):
    for top in (name, *(each for each in BUILTIN if name.startswith(each.partition(".")[0]))):
        made = ModuleType(top)
        if top == name:
            made.__dict__.update(state or {})
        monkeypatch.setitem(sys.modules, top, made)
    assert [each.backend() for each in interop.loaded()] == [None] * len(interop.loaded())
    assert interop.loaded()
    with ag.Stream(backend="cpu") as s, ag.Graph() as g:
        s.launch(lambda: None)
    g.replay()
    with pytest.raises(TypeError, match="is not a stream"):
        ag.Graph(stream=object())


def test_a_half_imported_torch_breaks_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", made := ModuleType("torch"))
    made.cuda = ModuleType("torch.cuda")
    assert [each.backend() for each in interop.loaded()] == [None]


@pytest.mark.parametrize("name", BUILTIN)
def test_a_module_that_may_not_be_imported_breaks_nothing(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    assert [each.backend() for each in interop.loaded()] == [None]


@pytest.mark.parametrize("name", BUILTIN)
def test_nothing_is_imported(name):
    code = (
        "import sys; before = set(sys.modules)\n"
        "import accelerator_graph as ag\n"
        "from accelerator_graph.interop import registry\n"
        f"registry._catalogue.load({name!r})()\n"
        "assert ag.current_stream(required=False) is None\n"
        "tops = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*tops & {'torch', 'cupy', 'numba', 'warp', 'cuda'})"
    )
    assert python(code).split() == []


@pytest.mark.parametrize("name", ["Some", "some.module", "PyOpenCL.Array", "_private", "ñandú"])
def test_any_name_that_can_be_imported_is_a_frameworks(monkeypatch, name):
    interop.register(name, Silent)
    try:
        assert name in interop.names()
        assert interop.loaded() == []
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        assert [type(each) for each in interop.loaded()] == [Silent]
    finally:
        interop.unregister(name)


def test_entry_points_are_named_as_the_framework_is_imported(monkeypatch):
    found = [
        EntryPoint(name, "somewhere:Class", "accelerator_graph.interop")
        for name in ("PyOpenCL.Array", "mlx.core", "a-b", "cupy")
    ]
    monkeypatch.setattr(entry_points, "installed", lambda group: found)
    interop.refresh()
    try:
        assert set(interop.names()) == {*BUILTIN, "PyOpenCL.Array", "mlx.core"}
        ignored = {each.name: each.reason for each in registry._catalogue.ignored()}
        assert "does not have the form of a module name" in ignored["a-b"]
        assert "reserved" in ignored["cupy"]
    finally:
        monkeypatch.undo()
        interop.refresh()


@pytest.mark.parametrize("name", ["", ".", "a..b", "a.", "1st", "a-b", "a b", "a.1"])
def test_what_can_not_be_imported_is_not_the_name_of_a_framework(name):
    with pytest.raises(ValueError, match="does not have the form of a module name"):
        interop.register(name, "a:B")


@pytest.mark.promise("versions-are-not-compared")
@pytest.mark.parametrize("room", ["interop", "compat", "_graphed", "diagnosis"])
def test_no_version_of_a_framework_is_compared(room):
    """The pages say that what a framework can do is looked for."""
    modules = [*(ROOT / "accelerator_graph" / room).rglob("*.py")]
    asking = re.compile(r"__version__|metadata\.version|\bversion\(|(?<!sys)\.version_info")
    assert modules
    assert [path.name for path in modules if asking.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("name", BUILTIN)
def test_names_of_the_built_in_ones_are_reserved(name):
    with pytest.raises(ValueError, match="reserved"):
        interop.register(name, "a:B")


class Silent(Framework):
    api_version = 1

    def backend(self):
        return "cpu"


def test_a_framework_is_asked_for_its_backend_until_it_names_one(monkeypatch):
    answers = iter([None, None, "cpu"])  # a fourth question would raise

    class Late(Silent):
        def backend(self):
            return next(answers)

    monkeypatch.setitem(sys.modules, "late", ModuleType("late"))
    interop.register("late", Late)
    try:
        found = [[type(each) for each in registry.active("cpu")] for _ in range(5)]
        assert found == [[], [], [Late], [Late], [Late]]
        interop.register("late", Silent, replace=True)
        assert [type(each) for each in registry.active("cpu")] == [Silent]
    finally:
        interop.unregister("late")


def test_the_defaults_take_no_part():
    silent = Silent()
    assert silent.as_stream(object()) is silent.current_stream() is silent.use_stream(1, 0) is None
    assert silent.route((1, 0), 1, 0, SimpleNamespace) is silent.recorder(None, (1, 0), 0, ()) is None
    silent.prepare(0)
    silent.release((1, 0))
    assert not Silent.always_has_a_stream


@pytest.mark.parametrize("target", ["nowhere_at_all:Class", "interop.fakes:nothing", "json:JSONDecoder"])
def test_a_broken_third_party_is_left_out(monkeypatch, target):
    monkeypatch.setitem(sys.modules, "brokenframework", ModuleType("brokenframework"))
    interop.register("brokenframework", target)
    try:
        assert "brokenframework" in interop.names()
        with pytest.warns(RuntimeWarning, match="^framework 'brokenframework' .*; it is left out"):
            assert interop.loaded() == []
        assert interop.loaded() == []
    finally:
        interop.unregister("brokenframework")


def test_an_instance_that_can_not_be_made_is_left_out(monkeypatch):
    class Raising(Silent):
        def __init__(self):
            raise LookupError

    monkeypatch.setitem(sys.modules, "brokenframework", ModuleType("brokenframework"))
    interop.register("brokenframework", Raising)
    try:
        with pytest.warns(
            RuntimeWarning, match=r"^framework 'brokenframework': its __init__\(\) failed with "
        ):
            assert interop.loaded() == []
        interop.register("brokenframework", Silent, replace=True)
        assert [type(each) for each in interop.loaded()] == [Silent]
        assert interop.loaded() == interop.loaded()
    finally:
        interop.unregister("brokenframework")


def test_report_has_every_framework_and_warns_of_none(monkeypatch):
    offered = "json=nowhere_at_all:Class mlx.core=never.loaded:Class twin=x:A twin=x:B a-b=x:Y"
    found = [EntryPoint(*each.split("="), "accelerator_graph.interop") for each in offered.split()]
    monkeypatch.setattr(entry_points, "installed", lambda group: found)
    monkeypatch.setitem(sys.modules, "numba.cuda", ModuleType("numba.cuda"))
    monkeypatch.setitem(sys.modules, "silent", ModuleType("silent"))
    monkeypatch.setitem(sys.modules, "loud", ModuleType("loud"))
    for name in ("torch", "cupy", "warp", "cuda.core"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    interop.refresh()
    interop.register("silent", Silent)
    interop.register("loud", type("Loud", (Silent,), {"backend": lambda self: 5}))
    try:
        rows = {row.name: row for row in interop.report()}
    finally:
        interop.unregister("silent")
        interop.unregister("loud")
        monkeypatch.undo()
        interop.refresh()
    assert rows["silent"] == ("silent", "registered", True, True, True, "", "cpu")
    assert rows["loud"][:5] == ("loud", "registered", True, True, False)
    assert rows["loud"].reason.startswith("its backend() failed with TypeError: ")
    assert rows["numba.cuda"] == (
        "numba.cuda", "built-in", True, True, False, "it has not initialised a device", None
    )  # fmt: skip
    for name, origin in (("torch", "built-in"), ("mlx.core", "a distribution without metadata")):
        assert rows[name] == (name, origin, False, False, False, "it is not imported", None)
    assert rows["json"][2:5] == (True, False, False)
    assert "can't be loaded: ModuleNotFoundError: No module named 'nowhere_at_all'" in rows["json"].reason
    assert "framework 'twin' is ambiguous" in rows["twin"].reason
    assert "does not have the form of a module name" in rows["a-b"].reason
    assert list(rows) == [*sorted(set(rows) - {"a-b"}), "a-b"]


def test_report_repeats_the_reason_of_a_warning(monkeypatch):
    broken = {"current_stream": lambda self, device=None: "nonsense"}
    monkeypatch.setitem(sys.modules, "loud", ModuleType("loud"))
    interop.register("loud", type("Loud", (Silent,), broken))
    try:
        with pytest.warns(RuntimeWarning, match="loud"):
            ag.current_stream(required=False)
        [row] = [row for row in interop.report() if row.name == "loud"]
    finally:
        interop.unregister("loud")
    assert (row.loaded, row.usable, row.backend) == (True, False, "cpu")
    assert row.reason.startswith("its current_stream() failed with ValueError: ")


def works_on_cpu():
    with ag.Stream(backend="cpu") as s, ag.Graph() as g:
        s.launch(int)
    g.replay()


def test_frameworks_release_their_caches_before_captures_but_in_none(monkeypatch):
    prepared, streams = [], [ag.Stream(backend="cpu") for _ in range(2)]
    monkeypatch.setitem(sys.modules, "silent", ModuleType("silent"))
    prepares = {"prepare": lambda self, device: prepared.append(device), "backend": lambda self: "cpu"}
    interop.register("silent", type("Prepares", (Silent,), prepares))
    try:
        for stream in streams:
            with ag.Graph(stream=stream):
                stream.launch(int)
        assert prepared == [0, 0]
        with ag.Graph(stream=streams[0]):
            for enter in (ag.Graph(stream=streams[1]), ag.graph(ag.Graph(stream=streams[1]))):
                with enter:
                    streams[1].launch(int)
            streams[0].launch(int)
        assert prepared == [0, 0, 0]
    finally:
        interop.unregister("silent")


def test_the_kit_tests_a_backend_without_the_imported_frameworks(monkeypatch):
    def prepare(self, device):
        raise LookupError("a framework takes part")

    class Kit(BackendConformance):
        def work(self):
            return HostWork("cpu")

        def test_capture_beside_a_framework(self):
            self.captured(self.stream(), self.cell()).replay()

    monkeypatch.setitem(sys.modules, "silent", ModuleType("silent"))
    interop.register("silent", type("Loud", (Silent,), {"prepare": prepare}))
    try:
        Kit().test_capture_beside_a_framework()
        with pytest.raises(LookupError, match="a framework takes part"):
            works_on_cpu()
    finally:
        interop.unregister("silent")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_asks_frameworks_anew_whether_they_are_initialised(monkeypatch):
    known = {object(): "cpu"}
    monkeypatch.setattr(registry, "_initialised", known)
    child = os.fork()
    if not child:
        os._exit(1 if registry._initialised else 0)
    assert os.waitpid(child, 0)[1] == 0
    assert registry._initialised
