"""Captures that torch records: stand-ins on the software driver (see tests/simulators)."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import time
import warnings
import weakref
from collections import Counter
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from types import SimpleNamespace

import pytest

import lanes

pytestmark = lanes.require("software_cuda")

from cuda.bindings import driver

import accelerator_graph as ag
from accelerator_graph._core import capture, capture_table, ownership
from accelerator_graph._core.extension import fast
from accelerator_graph._core.pools import check_pool
from accelerator_graph.interop import registry
from accelerator_graph.interop import torch as interop_torch
from interop import fake_torch as interop_fake_torch
from interop.fake_torch import (
    AcceleratorError,
    CUDAGraph,
    CUDAGraphOf215,
    Generator,
    MemPool,
    checked,
    pool_uses,
)
from interop.fakes import call, calls, get_device, install
from interop.scene import Array, captured, clean_fixture, torch_fixture, value  # noqa: F401
from simulators.cuda.faults import Faults
from simulators.cuda.tools import Gate, read
from threads import in_thread

REFUSED = (
    "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned. "
    "Please use tensor.pin_memory() or allocate the tensor with pin_memory=True."
)


@pytest.fixture(name="newest")
def newest_fixture(monkeypatch):
    """torch 2.15: generators join captures by themselves, and replays run hooks."""
    return install(monkeypatch, "torch", interop_fake_torch.torch(graph=CUDAGraphOf215))


@pytest.fixture(autouse=True)
def nothing_stays():
    assert gc.isenabled()
    yield
    gc.collect()
    ownership.drain()
    assert gc.isenabled()
    assert not capture_table.live
    assert not interop_fake_torch._routed
    assert not pool_uses


def raising(error):
    def fail(*args, **how):
        raise error

    return fail


def test_a_call_that_torch_refuses_is_the_cause(torch):
    x, g, refused = Array(), ag.Graph(), RuntimeError(REFUSED)
    words = r"failed: a call was refused \(RuntimeError: Cannot copy between"
    with pytest.raises(ag.CaptureError, match=words) as caught, ag.graph(g):
        torch.fill(x, 5) or raising(refused)()
    assert (caught.value.reason, caught.value.__cause__) == ("illegal_call", refused)
    captured(g, lambda: torch.fill(x, 3)).replay()
    assert value(x) == 3
    refused = AcceleratorError("CUDA error: operation would make ...", 906)
    with pytest.raises(ag.CaptureError) as caught, ag.graph(ag.Graph()):
        raise refused
    assert caught.value.__cause__ is refused
    for other in (AcceleratorError("CUDA error: out of memory", 2), RuntimeError(f"So: {REFUSED}")):
        with pytest.raises(type(other)) as passed, ag.graph(ag.Graph()):
            raise other
        assert passed.value is other


def recording(g):
    return g._runner.executable.recorder.torch_graph


@pytest.mark.parametrize("keep", [False, True])
def test_torch_records(torch, keep):
    x = Array()
    g = captured(ag.Graph(keep_graph=keep), lambda: torch.fill(x, 5))
    assert value(x) == 0
    g.replay()
    assert value(x) == 5
    assert isinstance(recording(g), CUDAGraph)
    assert g.num_nodes == 1
    assert calls["torch.cuda.empty_cache"] == 1
    if keep:
        assert g.raw_graph() == recording(g).raw_cuda_graph()
        assert g.raw_executable() == recording(g).raw_cuda_graph_exec()
        first = recording(g)
        g.instantiate()
        g.replay()
        assert recording(g) is first
    g.reset()
    assert g.state == "empty"


def test_inspection_goes_through(torch, tmp_path):
    x = Array()
    g = captured(ag.Graph(keep_graph=True), lambda: torch.fill(x, 5))
    g.debug_dump(str(tmp_path / "g.dot"))
    assert (tmp_path / "g.dot").read_text().startswith("digraph")
    nodes, _ = g._runner.captured.backend.nodes(g._runner.captured.native)
    assert [node.kind for node in nodes] == ["memset"]
    g.instantiate()
    other = ag.Stream(backend="cuda")
    g.bind(other)()
    other.synchronize()
    assert value(x) == 5


def test_labels_are_timed(torch):
    x = Array()

    def work():
        with ag.label("fill"):
            torch.fill(x, 5)

    g = captured(ag.Graph(keep_graph=True), work)
    profile = g.profile(2)
    assert [each.label.name for each in profile.labels] == ["fill"]
    assert value(x) == 5
    assert isinstance(recording(g), CUDAGraph)


def test_without_random_numbers_torch_replays_once(torch):
    x = Array()
    g = captured(ag.Graph(), lambda: torch.fill(x, 5))
    for _ in range(3):
        g.replay()
    assert recording(g).replays == 1
    kept = g.bind()
    kept()
    assert recording(g).replays == 1


@pytest.mark.promise("random-numbers-of-torch")
def test_with_random_numbers_torch_always_replays(torch, monkeypatch):
    x = Array()
    g = captured(ag.Graph(), lambda: torch.rand(x))
    before = torch.cuda.default_generators[0].offset
    for _ in range(3):
        g.replay()
    assert recording(g).replays == 3
    assert torch.cuda.default_generators[0].offset == before + 12
    other, where = ag.Stream(backend="cuda"), []

    def replay(self, real=CUDAGraph.replay):
        where.append(torch.cuda.current_stream().cuda_stream)
        real(self)

    monkeypatch.setattr(CUDAGraph, "replay", replay)
    g.replay(other)
    assert (recording(g).replays, where) == (4, [other.handle])
    assert torch.cuda.current_stream().cuda_stream == 0


def test_random_numbers_of_a_registered_generator(torch):
    x, mine = Array(), torch.Generator()
    g = ag.Graph()
    g.register_generator_state(mine)
    captured(g, lambda: torch.rand(x, mine))
    for _ in range(3):
        g.replay()
    assert (recording(g).replays, mine.offset) == (3, 12)


def test_generators_of_a_failed_capture_draw_again(torch):
    x, mine, g = Array(), torch.Generator(), ag.Graph()
    g.register_generator_state(mine)
    with pytest.raises(ag.CaptureError), ag.graph(g):
        driver.cuStreamSynchronize(torch.cuda.current_stream().cuda_stream)
    torch.rand(x)
    torch.rand(x, mine)
    assert value(x) == 7


@pytest.mark.parametrize("what", [object(), Generator("cpu")])
def test_what_is_no_generator_is_refused_and_leaves_nothing(torch, what):
    x, g = Array(), ag.Graph()
    with pytest.raises(TypeError, match="must be a random generator of a device"):
        g.register_generator_state(what)
    captured(g, lambda: torch.fill(x, 5)).replay()
    assert value(x) == 5


def test_offsets_that_can_not_be_asked_for_leave_the_replays_to_torch(torch, monkeypatch):
    x, g = Array(), ag.Graph()
    captured(g, lambda: torch.fill(x, 5))
    with monkeypatch.context() as patched:
        patched.setattr(Generator, "get_offset", raising(RuntimeError))
        g.replay()
        g.replay()
    assert recording(g).replays == 2
    with monkeypatch.context() as patched:  # known before the replay, and not after it
        answers = []
        patched.setattr(
            Generator, "get_offset", lambda self: answers.pop() if answers else raising(RuntimeError)()
        )
        for _ in range(2):
            answers.append(0)
            g.replay()
    assert recording(g).replays == 4
    g.replay()
    g.replay()
    assert recording(g).replays == 5


def test_replays_follow_torchs_current_stream(torch):
    x, side, other = Array(), torch.cuda.Stream(), torch.cuda.Stream()
    g = ag.Graph()
    with torch.cuda.stream(side), g:
        torch.fill(x, 5)
    g.replay()
    with torch.cuda.stream(other):
        g.replay()
    cells = [cell.cell_contents for cell in g._launch.__closure__]
    [launchers] = [each for each in cells if isinstance(each, dict)]
    assert list(launchers) == [0, other.cuda_stream]


@pytest.mark.parametrize("way", [ag.graph, lambda g: g], ids=["side stream", "current stream"])
def test_bind_takes_the_stream_that_a_replay_would_go_to(torch, way):
    """Decided when it is called: not when the graph was captured, and not at each launch."""
    x, before, later = Array(), torch.cuda.Stream(), torch.cuda.Stream()
    g = ag.Graph()
    with torch.cuda.stream(before), way(g):
        torch.fill(x, 5)
    g.replay()  # the first goes through torch
    with torch.cuda.stream(later):
        launch = g.bind()
        assert goes_to(g.replay, later, x)
    assert goes_to(launch, later, x)
    with torch.cuda.stream(before):
        assert goes_to(launch, later, x)
        assert goes_to(g.bind(), before, x)
    assert goes_to(g.bind(before), before, x)


def goes_to(launch, stream, x):
    """Return True if what is launched waits for the stream."""
    call(driver.cuCtxSynchronize)
    x.clear()
    gate = Gate()
    gate.close(stream.cuda_stream)
    try:
        launch()
        time.sleep(0.05)
        waits = read(x.ptr) == 0
    finally:
        gate.opened.set()
    return waits and value(x) == 5


@pytest.mark.promise("one-capture-with-torch")
def test_a_second_capture_on_a_device_is_refused_naming_the_first(torch):
    x = Array()
    g, inner = ag.Graph(), ag.Graph()
    with ag.graph(g):
        torch.fill(x, 1)
        with pytest.raises(ag.CaptureError, match="in thread 'MainThread'") as info, ag.graph(inner):
            raise AssertionError
        assert info.value.reason == "foreign_capture"
        elsewhere = ag.Graph(stream=ag.Stream(1, backend="cuda"))
        with pytest.raises(ag.CaptureError, match="on device 0 already"), elsewhere:
            raise AssertionError
        with pytest.warns(ag.EmptyGraphWarning):
            in_thread(lambda: captured(elsewhere, lambda: None))
        assert elsewhere.state == "ready"
        torch.fill(x, 5)
    g.replay()
    assert value(x) == 5


@pytest.mark.promise("a-graph-or-no-trace")
def test_an_error_in_the_body(torch):
    x, g = Array(), ag.Graph()
    with pytest.raises(LookupError), ag.graph(g):  # noqa: PT012
        torch.rand(x)
        raise LookupError
    assert g.state == "empty"
    assert torch.cuda.current_stream().cuda_stream == 0
    captured(g, lambda: torch.fill(x, 5)).replay()
    assert value(x) == 5


def test_an_invalidated_capture(torch):
    x, g = Array(), ag.Graph()
    with pytest.raises(ag.CaptureError) as info, ag.graph(g):
        driver.cuStreamSynchronize(torch.cuda.current_stream().cuda_stream)
    assert info.value.reason == "invalidated"
    captured(g, lambda: torch.fill(x, 5)).replay()


def test_unjoined_work(torch):
    g, side = ag.Graph(), ag.Stream(backend="cuda")
    x = Array()
    with pytest.raises(ag.CaptureError) as info, ag.graph(g):  # noqa: PT012
        side.wait(ag.current_stream())
        side.fill(x.ptr, 1, 4)
    assert info.value.reason == "unjoined"
    assert info.value.code_name == "AcceleratorError"


@pytest.mark.parametrize(
    ("method", "error", "reason"),
    [
        ("capture_begin", (RuntimeError, "on a non-default stream."), "default_stream"),
        ("capture_begin", (RuntimeError, "who knows"), "other"),
        ("capture_end", (AcceleratorError, "CUDA error: out of memory", 2), "out_of_memory"),
        ("capture_end", (RuntimeError, "CUDA out of memory"), "out_of_memory"),
        ("raw_cuda_graph", (RuntimeError, "no"), None),
    ],
)
def test_when_torch_fails(torch, monkeypatch, method, error, reason):
    x, g = Array(), ag.Graph()
    real = getattr(CUDAGraph, method)
    once = [error[0](*error[1:])]

    def failing(self, *args, **how):
        if once and method != "capture_begin":
            real(self, *args, **how)
        if once:
            raise once.pop()
        return real(self, *args, **how)

    monkeypatch.setattr(CUDAGraph, method, failing)
    with pytest.raises(ag.CaptureError if reason else RuntimeError) as info:
        captured(g, lambda: torch.fill(x, 1))
    if reason:
        assert info.value.reason == reason
    assert g.state == "empty"
    captured(g, lambda: torch.fill(x, 5)).replay()
    assert value(x) == 5


def test_when_instantiate_fails(torch):
    x, faults = Array(), Faults("libcuda.so.1")
    g = captured(ag.Graph(keep_graph=True), lambda: torch.fill(x, 5))
    faults.fail("cuGraphInstantiate", code=2)
    with pytest.raises(ag.DriverError) as info:
        g.instantiate()
    assert (info.value.reason, info.value.call) == ("out_of_memory", "torch.cuda.CUDAGraph.instantiate")
    g.replay()
    assert value(x) == 5


def test_pools_are_torchs(torch):
    x, a, b = Array(), ag.Graph(), ag.Graph(keep_graph=True)
    captured(a, lambda: torch.fill(x, 1), pool=(0, 3))
    assert a.pool() == recording(a).pool() == (0, 3)
    captured(b, lambda: torch.fill(x, 1))
    b.instantiate()
    assert b.pool() == recording(b).pool()
    assert b.pool()[0] >= 2**40


def test_an_empty_graph_is_warned_of_once(torch):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        captured(ag.Graph(), lambda: None)
    assert [each.category for each in found] == [ag.EmptyGraphWarning]


def test_torch_does_not_warn_of_a_body_that_raises_before_any_work(torch):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with pytest.raises(LookupError), ag.graph(ag.Graph()):
            raise LookupError
    assert found == []


def test_a_capture_that_goes_on_while_the_generators_are_to_be_reset(torch, monkeypatch):
    """The stream is still being captured: nothing more is recorded."""
    g = ag.Graph()
    monkeypatch.setattr(
        CUDAGraph, "capture_end", lambda self: interop_fake_torch._capturing.pop(self._device)
    )
    with pytest.raises(LookupError), ag.graph(g):  # noqa: PT012
        handle = torch.cuda.current_stream().cuda_stream
        raise LookupError
    driver.cuStreamEndCapture(handle)
    interop_fake_torch._routed.clear()
    pool_uses.clear()


# ---- two devices, two threads, two generators: none is taken for the other ---------------------------------


@pytest.fixture(name="there")
def there_fixture(torch):
    """torch's interop module."""
    [found] = [each for each in registry.loaded() if type(each).__name__ == "Torch"]
    return found


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("device", [0, 1])
def test_the_random_numbers_are_the_captured_devices(torch, device, broken):
    x, stream, g = Array(), ag.Stream(device, backend="cuda"), ag.Graph()
    own, other = (torch.cuda.default_generators[each] for each in (device, 1 - device))
    with pytest.raises(LookupError) if broken else nullcontext(), stream, g:
        torch.rand(x)
        if broken:
            raise LookupError
    if broken:
        assert not own.state.capturing
        return
    side = torch.cuda.Stream(device)
    with torch.cuda.device(0), torch.cuda.stream(side):
        before = torch.cuda.current_device()
        for _ in range(3):
            g.replay()
        assert torch.cuda.current_device() == before
    call(driver.cuStreamSynchronize, stream.handle)  # no other device's memory waits for it
    assert (own.offset, other.offset, recording(g).replays) == (12, 0, 3)


@pytest.mark.parametrize("drawn", [0, 1, 2])
@pytest.mark.parametrize("broken", [False, True])
def test_several_generators_of_one_graph(torch, drawn, broken):
    x, g = Array(), ag.Graph()
    registered = [torch.Generator() for _ in range(2)]
    generators = [torch.cuda.default_generators[0], *registered]
    for each in registered:
        g.register_generator_state(each)
    with pytest.raises(LookupError) if broken else nullcontext(), ag.graph(g):
        torch.rand(x, generators[drawn])
        if broken:
            raise LookupError
    assert not any(each.state.capturing for each in generators)
    if not broken:
        for _ in range(3):
            g.replay()
        assert value(x) == 7
        assert [each.offset for each in generators] == [12 if n == drawn else 0 for n in range(3)]


def test_a_capture_has_its_mode_and_the_one_that_resets_generators_forbids_nothing(torch, monkeypatch):
    seen, real = [], CUDAGraph.capture_begin

    def begin(self, pool=None, capture_error_mode="global"):
        seen.append(capture_error_mode)
        real(self, pool, capture_error_mode)

    monkeypatch.setattr(CUDAGraph, "capture_begin", begin)
    for mode in ("thread_local", "global", "relaxed"):
        with pytest.raises(LookupError), ag.graph(ag.Graph(), capture_error_mode=mode):
            raise LookupError
    assert seen == ["thread_local", "relaxed", "global", "relaxed", "relaxed", "relaxed"]


@pytest.mark.parametrize("device", [0, 1])
def test_torchs_allocator_leaves_a_failed_capture_on_its_device(torch, monkeypatch, device):
    native, told, kept = torch._C, [], len(interop_torch._asked_for_ever)
    for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):

        def tells(real, *what):
            told.append(what)
            real(*what[1:])

        monkeypatch.setattr(native, name, partial(tells, getattr(native, name), name))
    g, made = ag.Graph(), []
    with pytest.raises(ag.CaptureError), ag.Stream(device, backend="cuda"), g:  # noqa: PT012
        made.append(interop_fake_torch._capturing[device])
        driver.cuStreamSynchronize(torch.cuda.current_stream().cuda_stream)
    pool = made[0].pool()
    assert told == [("_cuda_endAllocateToPool", device, pool), ("_cuda_releasePool", device, pool)]
    assert interop_torch._asked_for_ever[kept:] == made


@pytest.mark.parametrize("device", [0, 1])
def test_a_capture_is_abandoned_in_another_thread(torch, device):
    stream = ag.Stream(device, backend="cuda")
    with pytest.raises(ag.CaptureError), stream, ag.Graph():  # noqa: PT012
        [capture] = capture_table.live.values()
        assert interop_torch._recording == {device: capture.recorder}
        abandon = partial(capture.recorder.capture_abandon, capture.recorder)
        there = in_thread(lambda: abandon() or (torch.cuda.current_stream(device).cuda_stream, get_device()))
        assert there == (0, 0)
        assert not interop_torch._recording
        assert int(call(driver.cuStreamIsCapturing, stream.handle)) == 0


@pytest.mark.parametrize(
    ("device", "in_thread_of", "named"),
    [(0, None, 0), (1, None, 1), (2, 0, 0), (2, 1, 1), (2, None, None)],
)
def test_the_capture_that_is_in_the_way_is_named(torch, monkeypatch, device, in_thread_of, named):
    threads = [threading.Thread(name=f"of {n}") for n in range(3)]

    def of(device, thread):
        made = interop_torch.TorchRecorder(Below(), (0, 4), device, [], None)
        made.thread = thread
        return made

    monkeypatch.setattr(CUDAGraph, "capture_begin", lambda self, **how: None)
    monkeypatch.setattr(torch.cuda, "default_generators", [None] * 3)
    before = {n: of(n, threads[n]) for n in range(2)}
    monkeypatch.setattr(interop_torch, "_recording", {**before})
    new = of(device, threads[2 if in_thread_of is None else in_thread_of])
    if named is None:
        new.capture_begin("stream", "relaxed")
        assert interop_torch._recording == {**before, 2: new}
    else:
        with pytest.raises(ag.CaptureError, match=f"on device {named} already, in thread 'of {named}',"):
            new.capture_begin("stream", "relaxed")
        assert interop_torch._recording == before
    interop_torch._recording.clear()


def test_a_forked_child_records_what_it_likes(torch):
    x = Array()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ag.graph(ag.Graph()):
            torch.fill(x, 5)
            child = os.fork()
            if not child:
                os._exit(len(interop_torch._recording))
    assert os.waitpid(child, 0)[1] == 0


class Below:
    """A backend that notes what is asked of it, and what torch does meanwhile."""

    name = "cuda"

    def __init__(self):
        self.log = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def method(*args):
            self.log.append((name, *args))
            return f"{name}'s answer"

        return method

    @contextmanager
    def relaxed(self, native):
        self.log.append(("relaxed for", native))
        yield
        self.log.append("as before")


@pytest.fixture(name="unit")
def unit_fixture(torch):
    """A recorder over a backend that notes, a graph and an executable of torch's that note, too."""
    backend = Below()
    mine = interop_torch.TorchRecorder(backend, (0, 4), 0, [], None)
    mine.native = "graph"
    mine.torch_graph = SimpleNamespace(
        instantiate=lambda: backend.log.append("instantiate"),
        raw_cuda_graph_exec=lambda: 7,
        reset=lambda: backend.log.append("reset"),
    )
    mine.executable = interop_torch.Executable("executable", None)
    return SimpleNamespace(recorder=mine, backend=backend, executable=mine.executable)


@pytest.mark.parametrize("needs_torch", [None, True, False])
def test_what_is_lent_draws_no_random_numbers(unit, needs_torch):
    unit.executable.needs_torch = needs_torch
    lent = [unit.recorder.lends(each) for each in (unit.recorder, unit.executable)]
    assert lent == [needs_torch is False] * 2
    unit.recorder.executable = None
    assert not unit.recorder.lends(unit.recorder)
    assert (unit.recorder.native, unit.executable.native, unit.backend.log) == ("graph", "executable", [])


def test_a_capture_that_nobody_has_counted_can_be_ended(unit):
    """That is how `diagnose` tries a call in a capture of its own."""
    unit.recorder.torch_graph = SimpleNamespace(capture_end=lambda: None, raw_cuda_graph=lambda: 7)
    unit.recorder.stream = "stream"
    assert unit.recorder.capture_end(unit.recorder) is unit.recorder
    assert unit.recorder.native == "borrow's answer"


def test_a_recorder_is_the_graph_of_its_capture_and_another_one_makes_the_next(torch):
    """The first graph is kept, and with it torch's pool."""
    with ag.Stream(0, backend="cuda") as stream:
        graph = ag.Graph()
        graph.capture_begin()
        capture = graph._capture
        first = capture.recorder
        first.capture_end(first)
        capture.recorder = second = first.another()
        capture._token = second.capture_begin(stream.native, "thread_local")
        with pytest.warns(ag.errors.EmptyGraphWarning):
            graph.capture_end()
        assert second.torch_graph is not first.torch_graph
        assert first.pool == second.pool == graph.pool()
        first.destroy_executable(first.instantiate(first))
        first.destroy_graph(first)
        graph.reset()


@pytest.mark.promise("torchs-graphs-end-later")
def test_torch_makes_and_destroys_executables_without_breaking_captures(unit):
    made = unit.recorder.instantiate(unit.recorder)
    assert made is unit.recorder.executable
    assert (made.native, made.needs_torch) == ("borrow's answer", True)
    unit.recorder.destroy_graph(unit.recorder)
    unit.recorder.destroy_executable(made)
    assert unit.backend.log == [
        *(("relaxed for", "graph"), "instantiate", "as before"),
        ("borrow", 7, "graph"),
        *(("relaxed for", "graph"), "reset", "as before"),
    ]
    assert unit.recorder.pool == (0, 0)


def test_an_error_names_the_call_of_torch(unit, torch):
    graph, stream = unit.recorder.torch_graph, torch.cuda.Stream()
    moved = []
    unit.recorder._framework = SimpleNamespace(
        current_stream=lambda device: (int(stream.cuda_stream), device),
        use_stream=lambda *to: moved.append(to) or (lambda: moved.append("back")),
    )
    graph.replay = graph.instantiate = graph.reset = raising(RuntimeError("no"))
    calls = {
        "instantiate": lambda: unit.recorder.instantiate(unit.recorder),
        "replay": lambda: unit.recorder.replay(unit.executable, stream),
        "reset": lambda: [unit.recorder.destroy_graph(each) for each in (unit.recorder, unit.executable)],
    }
    for name, call_it in calls.items():
        with pytest.raises(ag.DriverError) as info:
            call_it()
        assert info.value.call == f"torch.cuda.CUDAGraph.{name}"
    assert moved == [("handle_int's answer", 0), "back"]
    assert unit.recorder.pool == (0, 4)


def test_a_capture_that_is_over_is_not_abandoned_again(unit):
    ended = []
    unit.recorder.torch_graph.capture_end = lambda: ended.append(1)
    unit.recorder._over = True
    unit.recorder.capture_abandon(unit.recorder)
    assert (ended, unit.backend.log) == ([], [])


@pytest.mark.promise("torchs-graphs-end-later")
@pytest.mark.parametrize(
    ("backend", "pool", "disturbs"), [("cuda", None, False), ("cuda", 1, True), ("hip", None, True)]
)
def test_what_disturbs_captures_when_it_goes(torch, backend, pool, disturbs):
    given = check_pool(SimpleNamespace(id=(0, 3))) if pool else (0, 3)
    made = interop_torch.TorchRecorder(SimpleNamespace(name=backend), given, 0, [], None)
    assert made.destroy_disturbs_captures is disturbs


@pytest.mark.parametrize(
    ("methods", "decides"),
    [
        ((), True),
        (("register_generator_state",), False),
        (("register_replay_start_hook",), True),
        (("register_generator_state", "register_replay_start_hook"), True),
    ],
)
def test_which_torch_has_generators_join_by_themselves(methods, decides):
    assert interop_torch.decides_itself(type("CUDAGraph", (), dict.fromkeys(methods))) is decides


@pytest.mark.parametrize(
    ("distributed", "asked"),
    [
        (None, 0),
        (SimpleNamespace(), 0),  # torch is built without it
        (SimpleNamespace(distributed_c10d=SimpleNamespace(_world=SimpleNamespace(_default_pg=None))), 0),
        (SimpleNamespace(distributed_c10d=SimpleNamespace(_world=SimpleNamespace(_default_pg="a group"))), 1),
        (SimpleNamespace(distributed_c10d=SimpleNamespace()), 1),  # a torch that has other names for it
    ],
)
def test_torch_is_asked_for_groups_only_if_there_may_be_one(torch, monkeypatch, distributed, asked):
    x, questions = Array(), []
    if distributed is not None:
        if hasattr(distributed, "distributed_c10d"):
            distributed.is_initialized = lambda: bool(questions.append(1))
        monkeypatch.setattr(torch, "distributed", distributed, raising=False)
    captured(ag.Graph(), lambda: torch.fill(x, 5))
    assert len(questions) == asked


# ---- torch 2.14 and later ---------------------------------------------------------------------------------


def test_generators_that_join_by_themselves(newest):
    x, mine = Array(), newest.Generator()
    g = ag.Graph()
    g.register_generator_state(mine)
    captured(g, lambda: newest.rand(x, mine))
    unknown = newest.Generator()
    h = captured(ag.Graph(), lambda: newest.rand(x, unknown))
    for _ in range(3):
        g.replay()
        h.replay()
    assert (recording(g).replays, mine.offset) == (3, 12)
    assert (recording(h).replays, unknown.offset) == (3, 12)


@pytest.mark.promise("hooks-of-replays")
def test_hooks_of_replays_run_at_every_one(newest):
    x, seen = Array(), []
    g = captured(ag.Graph(), lambda: newest.fill(x, 5))
    kept = g.bind()
    for _ in range(3):
        kept()
        recording(g).register_replay_start_hook(seen.append)
    assert seen == [recording(g)] * 3
    assert value(x) == 5


def test_a_hook_that_raises(newest):
    x = Array()
    g = captured(ag.Graph(), lambda: newest.fill(x, 5))
    recording(g).register_replay_start_hook(raising(LookupError))
    with pytest.raises(LookupError):
        g.replay()


def test_a_newer_torch_without_what_was_deprecated(newest, monkeypatch):
    monkeypatch.delattr(CUDAGraph, "register_generator_state")
    monkeypatch.delattr(CUDAGraphOf215, "register_generator_state")
    x, g = Array(), ag.Graph()
    g.register_generator_state(newest.Generator())
    captured(g, lambda: newest.rand(x))
    g.replay()
    g.replay()
    assert recording(g).replays == 2


# ---- pools ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [CUDAGraph, CUDAGraphOf215])
def test_a_failed_capture_leaves_the_pool_to_others(monkeypatch, version):
    torch = install(monkeypatch, "torch", interop_fake_torch.torch(graph=version))
    x, first, second = Array(), ag.Graph(), ag.Graph()
    shared = ag.graph_pool_handle()
    captured(first, lambda: torch.fill(x, 1), pool=shared)
    for _ in range(2):
        with pytest.raises(ag.CaptureError), ag.graph(second, pool=shared):
            driver.cuStreamSynchronize(torch.cuda.current_stream().cuda_stream)
        with pytest.raises(LookupError), ag.graph(second, pool=shared):
            raise LookupError
    captured(second, lambda: torch.fill(x, 5), pool=shared).replay()
    assert value(x) == 5
    assert first.pool() == shared
    assert (second.pool() == shared) is (version is CUDAGraphOf215)  # older ones can't use it any more
    assert pool_uses == Counter([first.pool(), second.pool()])


def test_a_pool_outlives_its_graphs_of_torch(monkeypatch):
    x, pool = Array(), ag.graph_pool_handle()
    with pytest.warns(ag.EmptyGraphWarning):
        first = captured(ag.Graph(), lambda: None, pool=pool)
    torch = install(monkeypatch, "torch", interop_fake_torch.torch())
    for i in (1, 2):
        g = captured(ag.Graph(), lambda i=i: torch.fill(x, i), pool=pool)
        g.replay()
        assert value(x) == i
        g.reset()
    assert first.num_nodes == 0


def test_a_break_may_come_before_any_work(torch):
    x, g = Array(), ag.Graph()
    with ag.graph(g, breaks=True):
        ag.graph_break()
        torch.fill(x, 1)
        ag.graph_break()
    x.clear()
    g.replay()
    assert value(x) == 1
    assert len(pool_uses) == 1


def test_a_capture_that_the_driver_does_not_begin_gives_the_pool_back(torch):
    faults, x, g = Faults("libcuda.so.1"), Array(), ag.Graph()
    faults.fail("cuStreamBeginCapture", code=2)
    with pytest.raises(ag.CaptureError), ag.graph(g):
        raise AssertionError
    assert not interop_fake_torch._routed
    captured(g, lambda: torch.fill(x, 5)).replay()
    assert value(x) == 5


def test_a_pool_that_fails_again_and_again(torch):
    x, pool = Array(), ag.graph_pool_handle()
    for _ in range(2):
        with pytest.raises(ag.CaptureError), ag.graph(ag.Graph(), pool=pool):
            driver.cuStreamSynchronize(torch.cuda.current_stream().cuda_stream)
        g = captured(ag.Graph(), lambda: torch.fill(x, 5), pool=pool)
        pool, before = g.pool(), pool
        assert pool != before
    captured(ag.Graph(), lambda: torch.fill(x, 5), pool=before)


@pytest.mark.promise("pool-object-is-kept")
@pytest.mark.parametrize("how", ["constructor", "capture_begin", "graph", "attribute"])
def test_a_pool_object_of_torchs_lives_as_long_as_its_graphs(torch, how):
    x, mine = Array(), MemPool()
    number, there = mine.id, weakref.ref(mine)
    g = ag.Graph(pool=mine) if how == "constructor" else ag.Graph()
    if how == "attribute":
        g.graph_pool = mine
        assert g.graph_pool is mine
    if how == "capture_begin":
        with ag.Stream(backend="cuda"):
            g.capture_begin(mine)
            torch.fill(x, 5)
            g.capture_end()
    else:
        captured(g, lambda: torch.fill(x, 5), **({"pool": mine} if how == "graph" else {}))
    same = g.pool() == recording(g).pool() == number
    assert same
    if how in ("capture_begin", "graph"):
        del mine
        h = captured(ag.Graph(), lambda: torch.fill(x, 6), pool=g.pool())
        g.reset()
        lives = there() is not None
        h.replay()
        assert value(x) == 6
        h.reset()
        assert lives
        assert there() is None


def test_a_pool_object_is_not_kept_by_a_bound_call_of_a_graph_that_was_reset(torch):
    x, g, there = Array(), ag.Graph(), []

    def pool():
        mine = MemPool()
        there.append(weakref.ref(mine))
        return mine

    captured(g, lambda: torch.rand(x), pool=pool())
    launch = g.bind()
    g.reset()
    ownership.drain()
    assert there[0]() is None
    with pytest.raises(ag.GraphStateError):
        launch()


def test_an_id_that_replaces_one_can_be_replaced_itself(torch, monkeypatch):
    monkeypatch.setattr(interop_torch, "instead", {(0, 5): (0, 6), (0, 6): (0, 7)})
    assert [interop_torch.usable(torch, (0, n)) for n in (4, 5, 6, 7)] == [(0, 4), (0, 7), (0, 7), (0, 7)]


def test_an_id_is_never_replaced_by_one_that_is_replaced_itself(torch, monkeypatch):
    """A program may make up an id that torch gives out later: then there would be no end to the search."""
    monkeypatch.setattr(interop_torch, "instead", instead := {})
    numbers = itertools.count(5)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, next(numbers)))
    for number in (7, 6, 5):
        instead[0, number] = interop_torch.NEW
        interop_torch.usable(torch, (0, number))
    assert instead == {(0, 7): (0, 5), (0, 6): (0, 8), (0, 5): (0, 9)}
    assert [interop_torch.usable(torch, (0, number)) for number in (5, 6, 7)] == [(0, 9), (0, 8), (0, 9)]


def test_a_pool_object_that_goes_in_a_capture(torch):
    x, old, g = Array(), ag.Graph(), ag.Graph()
    captured(old, lambda: torch.fill(x, 1), pool=MemPool())
    with ag.graph(g):
        old.reset()
        assert len(pool_uses) == 2  # it would have ended the process
        torch.fill(x, 5)
    assert len(pool_uses) == 1
    g.replay()
    assert value(x) == 5


def test_a_pool_object_of_a_failed_capture(torch):
    mine = MemPool()
    with pytest.raises(ag.CaptureError), ag.graph(ag.Graph(), pool=mine):
        driver.cuStreamSynchronize(torch.cuda.current_stream().cuda_stream)
    assert pool_uses[mine.id] == 1
    with (
        pytest.raises(ag.CaptureError, match=r"make another torch\.cuda\.MemPool"),
        ag.graph(ag.Graph(), pool=mine),
    ):
        raise AssertionError


@pytest.mark.promise("pool-gets-another-id")
def test_a_pool_whose_last_graph_is_gone_has_another_id_in_torch(torch):
    x, pool = Array(), ag.graph_pool_handle()
    first = captured(ag.Graph(), lambda: torch.fill(x, 1), pool=pool)
    assert first.pool() == pool
    first.reset()
    second = captured(ag.Graph(), lambda: torch.fill(x, 5), pool=pool)
    third = captured(ag.Graph(), lambda: torch.fill(x, 5), pool=second.pool())
    assert pool_uses == {second.pool(): 2}
    assert third.pool() == second.pool() != pool
    second.replay()
    assert value(x) == 5


# ---- somebody else's graphs, collected in the middle of a capture -----------------------------------------


class Foreign:
    """A graph that is destroyed as torch's is: without a thought for captures."""

    def __init__(self):
        self._graph = call(driver.cuGraphCreate, 0)
        self._executable = call(driver.cuGraphInstantiate, self._graph, 0)

    def __del__(self):
        driver.cuGraphExecDestroy(self._executable)
        driver.cuGraphDestroy(self._graph)


def in_a_cycle():
    """Return a list with a foreign graph that only the collector can destroy, and a weak reference to it."""
    foreign = Foreign()
    foreign.itself = foreign
    return [foreign], weakref.ref(foreign)


@pytest.fixture(name="lazy_collector")
def lazy_collector_fixture():
    before = gc.get_threshold()
    gc.set_threshold(1_000_000)
    yield
    gc.set_threshold(*before)


def many_objects():
    """Have the collector look at what is young, if it is on."""
    gc.set_threshold(10)
    return [[] for _ in range(10_000)]


@pytest.mark.promise("collector-is-off-in-captures")
def test_the_collector_waits_for_the_end_of_a_capture(torch, lazy_collector):
    x, g = Array(), ag.Graph()
    held, foreign = in_a_cycle()
    with ag.graph(g):
        held.clear()
        torch.fill(x, 5)
        many_objects()
        waited = foreign() is not None
    g.replay()
    assert value(x) == 5
    many_objects()
    assert waited
    assert foreign() is None


def test_without_the_pause_the_collector_breaks_the_capture(torch, lazy_collector, monkeypatch):
    monkeypatch.setattr(capture, "pause_gc", lambda: None)
    held, _ = in_a_cycle()
    with pytest.raises(ag.CaptureError), ag.graph(ag.Graph()):  # noqa: PT012
        held.clear()
        many_objects()


@pytest.mark.promise("collection-in-a-capture")
def test_a_collection_in_the_body_is_harmless(torch):
    x, g = Array(), ag.Graph()
    held, foreign = in_a_cycle()
    with ag.graph(g):
        held.clear()
        torch.fill(x, 5)
        gc.collect()
        assert foreign() is None
    g.replay()
    assert value(x) == 5
    assert capture.around_gc not in gc.callbacks


@pytest.fixture(name="unrelaxed")
def unrelaxed_fixture(monkeypatch):
    before = list(gc.callbacks)
    monkeypatch.setattr(capture, "around_gc", lambda phase, info: None)
    gc.callbacks[:] = [each for each in before if getattr(each, "__module__", "") != capture.__name__]
    yield
    gc.callbacks[:] = before


def test_without_relaxing_a_collection_in_the_body_breaks_the_capture(torch, unrelaxed):
    held, _ = in_a_cycle()
    with pytest.raises(ag.CaptureError) as info, ag.graph(ag.Graph()):  # noqa: PT012
        held.clear()
        gc.collect()
    assert info.value.reason == "invalidated"


def begin(key, relaxed=nullcontext):
    """Stand in for a capture that begins."""
    capture_table.live[key] = SimpleNamespace(relaxed=relaxed)
    capture.pause_gc()


def end(key):
    del capture_table.live[key]
    capture.resume_gc()


def test_an_interrupt_while_the_collector_is_switched_on(torch):
    begin(1)
    del capture_table.live[1]  # as far as the first clean-up came
    assert not gc.isenabled()
    capture.resume_gc()
    assert gc.isenabled()


def test_a_collection_outlives_the_capture_that_it_began_in(torch):
    events = []

    @contextmanager
    def relaxed():
        events.append("relaxed")
        yield
        events.append("as before")

    class Ends:
        def __del__(self):
            end(1)

    begin(1, relaxed)
    ends = Ends()
    ends.itself = ends
    del ends
    gc.collect()
    assert events == ["relaxed", "as before"]


def test_a_foreign_graph_that_is_dropped_in_the_body_breaks_the_capture(torch):
    foreign = Foreign()
    with pytest.raises(ag.CaptureError) as info, ag.graph(ag.Graph()):
        del foreign
    assert info.value.reason == "invalidated"


@pytest.mark.promise("collector-is-off-in-captures")
@pytest.mark.parametrize("end", ["well", "by an exception", "by the driver", "before it began"])
def test_the_collector_is_on_again_after_a_capture(torch, end, monkeypatch):
    x, g = Array(), ag.Graph()
    if end == "before it began":
        monkeypatch.setattr(CUDAGraph, "capture_begin", raising(RuntimeError("no")))
    try:
        with ag.graph(g):
            assert not gc.isenabled()
            torch.fill(x, 5)
            if end == "by an exception":
                raise LookupError
            if end == "by the driver":
                driver.cuStreamSynchronize(torch.cuda.current_stream().cuda_stream)
    except (LookupError, ag.CaptureError):
        assert end != "well"
    assert gc.isenabled()


@pytest.mark.promise("collector-is-off-in-captures")
def test_a_collector_that_the_user_has_switched_off_stays_off(torch):
    x = Array()
    gc.disable()
    try:
        captured(ag.Graph(), lambda: torch.fill(x, 5))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_last_of_several_captures_switches_the_collector_on():
    for first, second in ((1, 2), (2, 1)):
        begin(1)
        begin(2)
        capture.pause_gc()
        end(first)
        assert not gc.isenabled()
        end(second)
        assert gc.isenabled()
        capture.resume_gc()
    begin(1)
    gc.enable()  # the user, in the body
    end(1)
    assert gc.isenabled()


def test_a_forked_child_has_its_collector(torch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ag.graph(ag.Graph()):
            child = os.fork()
            if not child:
                os._exit(0 if gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_thread_that_ends_in_a_capture_gives_everything_back(torch):
    stream = ag.Stream(backend="cuda")

    def left_open():
        with stream:
            ag.Graph().capture_begin()

    in_thread(left_open)
    ag.Stream(backend="cuda").synchronize()
    ownership.drain()
    assert gc.isenabled()
    stream.close()  # it is refused while it captures


# ---- signal handlers ------------------------------------------------------------------------------------


def test_a_signal_handler_that_captures_while_a_capture_is_noted(torch):
    """At every line that notes what torch records: one capture is over before the other, or is refused."""
    lines, outcomes, other = [], [], Array()
    context = driver.cuCtxGetCurrent()[1]

    def handler():
        try:
            outcomes.append(captured(ag.Graph(), lambda: torch.fill(other, 7)).num_nodes)
        except ag.CaptureError as error:
            outcomes.append(error.reason)

    def once(at):
        count = [0]

        def trace(frame, event, arg):
            name, file = frame.f_code.co_name, frame.f_code.co_filename
            if name not in ("capture_begin", "capture_end") or file != interop_torch.__file__:
                return None
            if event == "line":
                count[0] += 1
                if count[0] == at:
                    sys.settrace(None)
                    handler()
            return trace

        x, g = Array(), ag.Graph()
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            captured(g, lambda: torch.fill(x, 5))
        finally:
            sys.settrace(before)
        g.replay()
        assert value(x) == 5
        lines.append(count[0])
        return count[0] >= at

    def work():
        driver.cuCtxSetCurrent(context)
        at = 1
        while once(at):
            at += 1

    in_thread(work)
    assert len(lines) > 5
    assert set(outcomes) == {1, "foreign_capture"}


MOST_CALLS = 117 if fast is None else 78
"""How many calls of the library's own functions one more capture into a pool makes at most."""


def test_one_more_capture_makes_few_calls(torch):
    x, pool = Array(), ag.graph_pool_handle()
    work = partial(torch.fill, x, 5)
    kept = [captured(ag.Graph(), work, pool=pool) for _ in range(3)]
    package = os.path.dirname(ag.__file__)
    names = []

    def count(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(package):
            names.append(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        kept.append(captured(ag.Graph(), work, pool=pool))
    finally:
        sys.setprofile(before)
    assert len(names) <= MOST_CALLS, Counter(names).most_common()


def test_a_default_stream_that_is_known_is_not_taken_for_another(torch):
    x, other = Array(), torch.cuda.Stream()
    work = partial(torch.fill, x, 5)
    graphs = [captured(ag.Graph(), work)]
    with torch.cuda.stream(other):
        graphs.append(captured(ag.Graph(), work))
    graphs.append(captured(ag.Graph(), work))
    with ag.Stream(backend="cuda") as entered:
        graphs.append(captured(ag.Graph(), work))
    with ag.use_backend("cpu"), pytest.warns(ag.EmptyGraphWarning):
        graphs.append(captured(ag.Graph(), lambda: None))
    assert [g.stream.handle for g in graphs[:4]] == [0, other.cuda_stream, 0, entered.handle]
    assert graphs[4].backend == "cpu"


# ---- bodies that the device repeats ------------------------------------------------------------------


@pytest.fixture(name="repeated")
def repeated_fixture(torch):
    """Record a loop of so many runs in the capture that is under way."""
    flag = Array()
    call(driver.cuMemsetD8, flag.ptr, 1, 1)
    return lambda body, times=3: ag.while_((flag.ptr, "uint8"), body, limit=times)


def test_a_body_has_a_pool_of_its_own_while_it_is_recorded(torch, repeated):
    x, y, g, routed = Array(), Array(), ag.Graph(), interop_fake_torch._routed
    seen = []

    def note():
        seen.append([*routed])

    def inner():
        note()
        torch.fill(y, 4)

    def outer():
        note()
        torch.fill(x, 3)
        repeated(inner, 2)
        note()

    with ag.graph(g):
        note()
        loops = [repeated(outer), repeated(lambda: note())]
        note()
    [parent] = seen[0]
    bodies = [pools[-1] for pools in seen[1:5]]
    assert seen == [[parent], *[[parent, each] for each in bodies], [parent]]
    assert bodies[0] == bodies[2]
    assert len({parent, *bodies}) == 4
    assert {*bodies} <= pool_uses.keys()
    g.replay()
    assert (value(x), value(y), loops[0].count) == (3, 4, 3)
    g.reset()
    gc.collect()
    ownership.drain()
    assert not pool_uses
    assert not interop_torch.TorchRecorder.of_bodies


@pytest.mark.parametrize("which", ["default", "registered", "unknown"])
def test_random_numbers_in_a_body_are_refused(torch, repeated, which):
    x, g, mine, unknown = Array(), ag.Graph(), Generator(), Generator()
    g.register_generator_state(mine)
    generator = {"default": None, "registered": mine, "unknown": unknown}[which]
    with pytest.raises(ag.CaptureError, match="a body draws random numbers") as info, ag.graph(g):
        repeated(lambda: torch.rand(x, generator=generator))
    assert info.value.reason == "illegal_call"
    with ag.graph(g):
        repeated(lambda: torch.fill(x, 1))
        torch.rand(x, generator=mine)
        torch.rand(x)
    before = mine.offset, torch.cuda.default_generators[0].offset
    g.replay()
    assert (value(x), mine.offset, torch.cuda.default_generators[0].offset) == (
        7,
        before[0] + 4,
        before[1] + 4,
    )


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("caught", [False, True])
def test_a_body_that_a_call_breaks(torch, repeated, deep, caught):
    """The driver ends the process at the end of such a graph, which torch must not get."""
    x, g = Array(), ag.Graph()

    def breaks():
        with pytest.raises(AcceleratorError) if caught else nullcontext():
            checked(driver.cuStreamSynchronize, torch.cuda.current_stream().cuda_stream)

    with pytest.raises(ag.CaptureError) as info, ag.graph(g):
        repeated(partial(repeated, breaks) if deep else breaks)
    assert info.value.reason == "invalidated"
    g.reset()
    captured(g, lambda: repeated(lambda: torch.fill(x, 5))).replay()
    assert value(x) == 5


@pytest.mark.parametrize("deep", [False, True])
def test_an_exception_in_a_body_passes(torch, repeated, deep):
    x, g = Array(), ag.Graph()
    body = raising(LookupError)
    with pytest.raises(LookupError), ag.graph(g):
        repeated(partial(repeated, body) if deep else body)
    torch.rand(x)  # the generator takes part in no capture any more
    captured(g, lambda: torch.fill(x, 5)).replay()
    assert value(x) == 5


def test_an_interrupt_at_any_instruction_around_a_body_leaves_no_trace(torch, repeated):
    x, generator = Array(), torch.cuda.default_generators[0]
    own, routed, at, count = generator.state, interop_fake_torch._routed, 0, 0

    def trace(frame, event, arg):
        nonlocal count
        if not frame.f_code.co_filename.endswith("bodies.py"):
            return None
        frame.f_trace_opcodes = True
        struck = event in ("line", "opcode")
        count += struck
        if struck and count == at:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    def work():
        repeated(lambda: repeated(lambda: torch.fill(x, 4)))

    while at == count:
        at, count, g, before = at + 1, 0, ag.Graph(), sys.gettrace()
        with suppress(KeyboardInterrupt), ag.graph(g):
            sys.settrace(trace)
            try:
                work()
            finally:
                sys.settrace(before)
        g.reset()
        del g
        gc.collect()
        ownership.drain()
        assert generator.state is own, at
        left = own.capturing, *routed, *pool_uses, *interop_torch.TorchRecorder.of_bodies
        assert left == (False,), at
    assert at > 30


def test_the_host_tests_where_torch_can_not_refuse_random_numbers(newest):
    x, flag, g = Array(), Array(), ag.Graph(keep_graph=True)
    call(driver.cuMemsetD8, flag.ptr, 1, 1)
    with ag.graph(g):
        loop = ag.while_((flag.ptr, "uint8"), lambda: newest.fill(x, 5), limit=3)
    g.replay()
    assert (value(x), loop.count) == (5, 3)
    with pytest.raises(ag.GraphStateError, match="that the host tests"):
        g.raw_cuda_graph()
