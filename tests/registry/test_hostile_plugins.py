"""Plug-ins, backends and frameworks alike, that raise or answer nonsense: their neighbours go on working."""

import sys
from types import ModuleType

import pytest

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph._core import ownership
from accelerator_graph._core.capture import Captured
from accelerator_graph.backends.base import Availability, HasHandles
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import BackendContractError, BackendLoadError, BackendUnavailableError
from accelerator_graph.interop import registry as frameworks
from accelerator_graph.interop.base import Framework, FrameworkRecorder
from accelerator_graph.testing._case import Number
from registry.fakes import built_in, fake, no_environment_fixture  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_environment")


class Unspeakable(Exception):
    """An error that can't be put into words."""

    def __str__(self):
        raise RuntimeError("no words")


RAISED = {
    "Exception": LookupError("no"),
    "SystemExit": SystemExit(3),
    "MemoryError": MemoryError(),
    "RecursionError": RecursionError("too deep"),
    "Unspeakable": Unspeakable(),
}


@pytest.fixture(params=RAISED)
def error(request):
    return RAISED[request.param]


def raising(error):
    def fail(*args, **how):
        raise error

    return fail


# ---- backends --------------------------------------------------------------------------------------


@pytest.mark.promise("bare-stream-uses-cpu")
@pytest.mark.parametrize("moment", ["probe", "__init__", "open"])
def test_a_backend_that_raises_does_not_end_a_bare_stream(error, moment):
    bad = raising(error)
    backends = built_in(cpu=fake())
    backends.register("bad", fake(priority=9, **{moment: classmethod(bad) if moment == "probe" else bad}))
    backends.register("good", fake())
    assert backends.resolve().name == "good"
    [row] = [row for row in backends.report() if row.name == "bad"]
    assert not row.usable
    assert type(error).__name__ in row.reason
    with pytest.raises(BackendUnavailableError, match=type(error).__name__):
        backends.get("bad")
    with pytest.raises(BackendUnavailableError, match="bad"), backends.use_backend("bad"):
        backends.get("bad")
    assert backends.usable()


class Once:
    """A signal handler that ends the process, and strikes once."""

    def __init__(self, error):
        self.error = error

    def __call__(self, *args, **how):
        error, self.error = self.error, None
        if error is not None:
            raise error


@pytest.mark.parametrize("moment", ["probe", "__init__", "open"])
def test_an_exit_that_is_not_the_backends_ends_the_process(moment):
    strike = Once(SystemExit(0))

    class Struck(fake()):
        @classmethod
        def probe(cls):
            strike() if moment == "probe" else None
            return super().probe()

        def __init__(self):
            strike() if moment == "__init__" else None

        def open(self):
            strike() if moment == "open" else None

    backends = built_in(cuda=Struck)
    with pytest.raises(SystemExit):
        backends.resolve()
    assert backends.resolve().name == "cuda"


def test_an_exit_during_an_import_that_is_not_the_plug_ins_ends_the_process(tmp_path, monkeypatch):
    (tmp_path / "struck.py").write_text(
        f"import {__name__} as t\nt.strike()\nfrom registry.fakes import Fake"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "strike", Once(SystemExit(0)), raising=False)
    backends = built_in(cpu=fake())
    backends.register("struck", "struck:Fake")
    with pytest.raises(SystemExit):
        backends.load("struck")
    assert backends.load("struck").__name__ == "Fake"


@pytest.mark.parametrize("error", [TimeoutError("a time limit"), SystemExit(0)])
@pytest.mark.parametrize("moment", ["backend", "current_stream", "as_stream", "__init__"])
def test_what_a_signal_handler_raises_is_not_taken_for_a_frameworks(lanes, moment, error):
    native = ag.Stream(backend="cpu").native
    strike, answers = Once(error), {"backend": "cpu"}
    lanes(**{moment: lambda self, *args: strike() or answers.get(moment)})

    def use():
        ag.current_stream(required=False)
        ag.Graph(stream=native)

    with pytest.raises(type(error)):
        use()
    works()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        (True, "", {}, None),
        Availability("yes"),
        Availability(False, None),
        Availability(True, versions=None),
        Availability(True, versions={"driver": 13}),
        Availability(True, devices="two"),
        Availability(True, devices=-1),
    ],
)
def test_a_probe_that_answers_nonsense_is_unusable_and_hurts_nobody(answer):
    backends = built_in(cpu=fake())
    backends.register("bad", fake(priority=9, probe=classmethod(lambda cls: answer)))
    backends.register("good", fake())
    assert backends.resolve().name == "good"
    [row] = [row for row in backends.report() if row.name == "bad"]
    assert not row.usable
    assert row.reason.startswith("its probe() returned ")
    assert dict(row.versions) == {}


def test_a_probe_may_count_devices_with_any_integer():
    count = Number(2)
    backends = built_in(cpu=fake(probe=classmethod(lambda cls: Availability(True, devices=count))))
    [row] = backends.report()
    assert (row.usable, row.devices, type(row.devices)) == (True, 2, int)


def test_an_unavailability_without_words_is_kept(error):
    backends = built_in(cpu=fake(), cuda=fake(open_error=BackendUnavailableError("", reasons={"cuda": 5})))
    with pytest.raises(BackendUnavailableError, match="5"):
        backends.resolve()
    backends = built_in(cpu=fake(), cuda=fake(open_error=BackendUnavailableError(error)))
    with pytest.raises(BackendUnavailableError):
        backends.resolve()
    assert backends.resolve(cpu_fallback=True).name == "cpu"


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("priority", "high"),
        ("priority", float("nan")),
        ("priority", True),
        ("priority", property(lambda self: 1)),
        ("stream_modules", None),
        ("stream_modules", "myrt"),
        ("stream_modules", {5}),
        ("stream_modules", property(lambda self: {"myrt"})),
    ],
)
def test_a_class_whose_attributes_others_depend_on_is_checked(attribute, value):
    backends = built_in(cpu=fake(), cuda=fake())
    with pytest.raises(BackendContractError, match=f"{attribute} must be "):
        backends.register("bad", fake(**{attribute: value}))
    setattr(sys.modules[__name__], "odd", fake(**{attribute: value}))  # noqa: B010
    backends.register("bad", f"{__name__}:odd")
    stream = type("Stream", (), {"__module__": "elsewhere"})()
    assert backends.claim(stream) is None
    assert backends.resolve().name == "cuda"


class Explosive(type):
    @property
    def api_version(cls):
        raise LookupError("no")


def test_a_class_that_can_not_even_be_looked_at_is_refused():
    setattr(sys.modules[__name__], "odd", Explosive("Odd", (), {}))  # noqa: B010
    backends = built_in(cpu=fake())
    backends.register("bad", f"{__name__}:odd")
    with pytest.raises((BackendContractError, BackendLoadError)):
        backends.get("bad")
    backends.report()


def test_a_backend_that_raises_when_it_is_shown_a_stream_hurts_no_other(error):
    theirs = type("Stream", (), {"__module__": "shared.streams"})()
    modules = {"stream_modules": frozenset({"shared"})}
    backends = built_in(cpu=fake())
    backends.register("bad", fake(priority=9, as_stream=raising(error), **modules))
    backends.register("good", fake(**modules))
    assert backends.claim(theirs)[0].name == "good"
    backends.unregister("good")
    with pytest.raises(BackendContractError, match=r"^backend 'bad': its as_stream\(\) raised "):
        backends.claim(theirs)


def test_what_a_backend_says_of_a_stream_that_is_gone_is_kept():
    theirs = type("Stream", (), {"__module__": "shared.streams"})()
    gone = ValueError("0x5 is not the handle of a stream")
    backends = built_in(cpu=fake())
    backends.register("one", fake(as_stream=raising(gone), stream_modules=frozenset({"shared"})))
    with pytest.raises(ValueError, match="0x5 is not the handle of a stream"):
        backends.claim(theirs)


def test_of_several_backends_that_refuse_a_stream_the_best_one_is_heard():
    theirs = type("Stream", (), {"__module__": "shared.streams"})()
    modules = {"stream_modules": frozenset({"shared"})}
    backends = built_in(cpu=fake())
    backends.register("worse", fake(priority=1, as_stream=raising(ValueError("worse")), **modules))
    backends.register("better", fake(priority=9, as_stream=raising(ValueError("better")), **modules))
    with pytest.raises(ValueError, match="better"):
        backends.claim(theirs)


# ---- frameworks ------------------------------------------------------------------------------------


class Lanes(Framework):
    """A framework of a third party; it is on the backend and on the stream that a test says."""

    api_version = 1
    on = "cpu"

    def backend(self):
        return self.on


@pytest.fixture
def lanes(monkeypatch):
    """Registers a framework, imported and initialised, with these methods."""
    monkeypatch.setattr(frameworks, "_made", {})
    monkeypatch.setattr(frameworks, "_complaints", {})
    monkeypatch.setitem(sys.modules, "lanes", ModuleType("lanes"))

    def install(**methods):
        interop.register("lanes", type("Lanes", (Lanes,), methods), replace=True)

    yield install
    interop.unregister("lanes")


def complains(what):
    return pytest.warns(RuntimeWarning, match=rf"^framework 'lanes': its {what}\(\) ")


def works():
    with ag.Stream(backend="cpu") as stream, ag.Graph() as graph:
        stream.launch(int)
    graph.replay()
    stream.synchronize()
    assert ag.current_stream(required=False) is None


@pytest.mark.promise("broken-framework-is-left-out")
def test_a_framework_that_can_not_say_its_backend_breaks_no_capture(lanes, error):
    lanes(backend=raising(error))
    with complains("backend"):
        works()
    with pytest.raises(TypeError, match="is not a stream"):
        ag.Graph(stream=object())
    works()  # complained of once


def test_a_framework_that_can_not_be_made_breaks_no_capture(lanes, error):
    lanes(__init__=raising(error))
    with complains("__init__"):
        works()
    works()


def test_a_framework_that_can_not_be_imported_breaks_no_capture(lanes, tmp_path, monkeypatch):
    (tmp_path / "leaves_at_once.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    lanes()
    interop.register("lanes", "leaves_at_once:Lanes", replace=True)
    with pytest.warns(RuntimeWarning, match=r"^framework 'lanes' .*SystemExit: 3"):
        works()
    works()


@pytest.mark.promise("broken-framework-is-left-out")
def test_a_framework_that_can_not_say_its_current_stream_hurts_no_other(lanes, error):
    lanes(current_stream=raising(error))
    with complains("current_stream"):
        assert ag.current_stream(required=False) is None
    works()


def test_a_framework_that_raises_when_it_is_shown_a_stream_hurts_no_other(lanes, error):
    lanes(as_stream=raising(error))
    native = ag.Stream(backend="cpu").native
    with complains("as_stream"):
        assert ag.Graph(stream=native).stream.native is native


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("backend", 5),
        ("backend", []),
        ("current_stream", 5),
        ("current_stream", ("one", 0)),
        ("current_stream", (1,)),
        ("as_stream", "one"),
    ],
)
def test_a_framework_that_answers_nonsense_hurts_no_other(lanes, method, answer):
    lanes(**{method: lambda self, *args: answer})
    with complains(method):
        ag.current_stream(required=False)
        native = ag.Stream(backend="cpu").native
        ag.Graph(stream=native)
    works()


def test_a_framework_on_a_backend_that_is_not_there_hurts_no_other(lanes, monkeypatch):
    monkeypatch.setattr(frameworks, "names", lambda: ["lanes"])
    lanes(on="vulcan", current_stream=lambda self, device=None: (0, 0))
    with ag.Stream(backend="cpu") as stream, ag.Graph():
        stream.launch(int)
    with ag.use_backend("cpu"):
        assert ag.current_stream(required=False) is None
    assert ag.Stream(backend="cpu").backend == "cpu"
    with pytest.raises(ag.UnknownBackendError, match="vulcan") as info:  # nobody else knows a stream
        ag.current_stream(required=False)
    assert info.value.__notes__ == ["It is the backend of the current stream of Lanes."]


def test_a_framework_may_say_a_stream_that_its_backend_does_not_know(lanes):
    lanes(current_stream=lambda self, device=None: (77, 0))  # cpu has no handles
    with pytest.warns(RuntimeWarning, match=r"^framework 'lanes': its current_stream\(\) "):
        assert ag.current_stream(required=False) is None


def test_complaints_of_changing_words_are_made_once(lanes):
    count = iter(range(1000))

    def fail(self):
        raise LookupError(next(count))

    lanes(backend=fail)
    with complains("backend"):
        works()
    works()
    assert len(frameworks._complaints) == 1


def test_complaints_are_made_again_after_refresh(lanes):
    lanes(backend=raising(LookupError("no")))
    with complains("backend"):
        works()
    interop.refresh()
    with complains("backend"):
        works()


@pytest.fixture
def second():
    """A plug-in of its own backend, with handles."""
    streams = {}

    class Second(CpuBackend, HasHandles):
        def handle_int(self, obj):
            return streams.setdefault(id(obj), obj) and id(obj)

        def as_stream(self, obj):
            return streams.get(obj, obj if isinstance(obj, int) and not obj else super().as_stream(obj))

    ag.backends.register("second", Second)
    yield "second"
    ag.backends.unregister("second")


def test_a_frameworks_current_stream_chooses_the_backend_of_a_new_one(lanes, second):
    handle = ag.Stream(backend=second).handle
    ag.backends.refresh()
    with ag.use_backend("cpu"):
        automatic = ag.Stream().backend
    assert automatic == "cpu"
    current = [(0, 0)]
    lanes(on=second, current_stream=lambda self, device=None: current[0])
    without = ag.backends.resolve(cpu_fallback=True).name
    assert ag.Stream().backend == without  # the default stream chooses nothing
    current[0] = (handle, 0)
    assert ag.Stream().backend == second
    with ag.use_backend("cpu"):
        assert ag.Stream().backend == "cpu"
    with ag.Stream(backend="cpu"):
        assert ag.Stream().backend == "cpu"


def test_a_current_stream_that_can_not_be_used_is_not_passed_over(lanes):
    lanes(on="vulcan", current_stream=lambda self, device=None: (5, 0))
    with pytest.raises(ag.UnknownBackendError, match="vulcan"):
        ag.Stream()
    assert ag.Stream(backend="cpu").backend == "cpu"


# ---- what is destroyed late ------------------------------------------------------------------------


class Careful(CpuBackend):
    """Destroys nothing while it captures."""

    destroy_disturbs_captures = True
    destroyed = ()

    def destroy_graph(self, graph):
        self.destroyed.append(graph)
        super().destroy_graph(graph)


class Recording(FrameworkRecorder):
    """A framework's recorder, which leaves the recording to its backend."""

    destroy_disturbs_captures = True
    capture_begin = capture_end = instantiate = replay = destroy_executable = None

    def destroy_graph(self, graph):
        self.backend.destroy_graph(graph)


@pytest.mark.parametrize("recorder", [False, True])
def test_what_would_disturb_a_capture_is_destroyed_after_it(recorder, monkeypatch):
    monkeypatch.setattr(Careful, "destroyed", [])
    ag.backends.register("careful", Careful)
    try:
        backend = ag.backends.get("careful")
        graph = _an_empty_graph(backend)
        owner = Captured(Recording(backend, (1, 0)) if recorder else backend, backend, graph)
        with ag.Stream(backend="careful") as stream, ag.Graph():
            stream.launch(int)
            del owner
            ownership.drain()
            assert graph not in Careful.destroyed
        ownership.drain()
        assert graph in Careful.destroyed
    finally:
        ag.backends.unregister("careful")


def _an_empty_graph(backend):
    stream = backend.create_stream(0)
    return backend.capture_end(backend.capture_begin(stream, "thread_local"))
