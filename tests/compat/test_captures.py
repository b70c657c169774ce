"""Captures by torch's names, with stand-ins on the software driver (see tests/simulators)."""

import gc
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

import lanes

pytestmark = lanes.require("software_cuda")

from cuda.bindings import driver

import accelerator_graph as ag
from accelerator_graph import compat
from accelerator_graph.compat import _context
from accelerator_graph.interop.torch import Torch
from compat import fake_torch as compat_fake_torch
from interop import fake_torch as interop_fake_torch
from interop.fakes import calls, install
from interop.scene import Array, clean_fixture, value  # noqa: F401

OWN = interop_fake_torch.CUDAGraph


@pytest.fixture(name="torch")
def torch_fixture(monkeypatch):
    monkeypatch.setattr(_context, "_side_streams", {})
    # This stand-in does not release a pool into which a capture failed; the tests of interop count all uses.
    monkeypatch.setattr(interop_fake_torch, "pool_uses", Counter())
    made = install(monkeypatch, "torch", compat_fake_torch.torch())
    with compat.install():
        yield made
    assert (made.cuda.CUDAGraph, made.cuda.graph) == (OWN, compat_fake_torch.graph)


def handle(stream):
    return stream.cuda_stream


def recorded(g):
    return g._torch_graph()


def captured(torch, g, work, **how):
    with torch.cuda.graph(g, **how):
        work()
    return g


@pytest.mark.promise("drop-in-waits-for-the-device")
def test_what_is_captured_by_torchs_names_is_ours_and_torch_records(torch):
    x = Array()
    g = torch.cuda.CUDAGraph()
    assert isinstance(g, ag.Graph)
    with torch.cuda.graph(g) as nothing:
        torch.fill(x, 5)
    assert nothing is None
    assert value(x) == 0
    g.replay()
    assert value(x) == 5
    assert type(recorded(g)) is OWN
    names = ("torch.cuda.synchronize", "torch.cuda.empty_cache", "torch._C._host_emptyCache")
    assert [calls[name] for name in names] == [1, 1, 1]


@pytest.mark.promise("replay-in-a-capture")
def test_a_replay_inside_a_capture_is_a_child_graph(torch):
    x, y, inner, outer = Array(), Array(), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(keep_graph=True)
    captured(torch, inner, lambda: torch.fill(x, 5))
    inner.replay()  # from here on it is known that no random number is drawn
    with torch.cuda.graph(outer):
        torch.fill(x, 3)
        inner.replay()
        torch.fill(y, 7)
    inner.reset()
    assert [node.kind for node in outer.describe().nodes] == ["memset", "graph", "memset"]
    torch.fill(x, 0)
    outer.replay()
    assert (value(x), value(y)) == (5, 7)


@pytest.mark.promise("replay-in-a-capture")
def test_a_replay_inside_a_capture_that_would_go_wrong_is_refused(torch):
    x, inner, outer = Array(), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    captured(torch, inner, lambda: torch.rand(x))
    with torch.cuda.graph(outer):
        torch.fill(x, 3)
        with pytest.raises(ag.CaptureError, match="may draw random numbers"):
            inner.replay()
    inner.replay()
    outer.reset()
    with torch.cuda.graph(outer):
        torch.fill(x, 3)
        with pytest.raises(ag.CaptureError, match="may draw random numbers"):
            inner.replay()
    outer.reset()
    plain = captured(torch, torch.cuda.CUDAGraph(), lambda: torch.fill(x, 5))
    plain.replay()
    with torch.cuda.graph(outer, pool=plain.pool()):
        torch.fill(x, 3)
        with pytest.raises(ag.CaptureError, match="use one memory pool"):
            plain.replay()
    outer.replay()
    assert value(x) == 3


@pytest.mark.promise("drop-in-waits-for-the-device")
def test_a_capture_waits_for_the_device_once(torch, monkeypatch):
    x, waits = Array(), []
    backend = ag.backends.get("cuda")
    monkeypatch.setattr(type(backend), "synchronize", lambda self, stream: waits.append(stream))
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.fill(x, 5)
    assert (calls["torch.cuda.synchronize"], waits) == (1, [])


@pytest.mark.promise("torchs-refusal-is-unchanged")
def test_a_call_that_torch_refuses_raises_what_torch_raises(torch):
    x, g = Array(), torch.cuda.CUDAGraph()
    refused = RuntimeError("Attempt to increase offset for a CUDA generator not in capture mode.")

    def refuse(broken):
        torch.fill(x, 5)
        if broken:
            driver.cuStreamSynchronize(torch.cuda.current_stream().cuda_stream)
        raise refused

    for capture in (torch.cuda.graph(g), compat.graph(g)):
        with pytest.raises(RuntimeError) as caught, capture:
            refuse(broken=False)
        assert caught.value is refused
    with pytest.raises(ag.CaptureError), torch.cuda.graph(g):
        refuse(broken=True)
    captured(torch, g, lambda: torch.fill(x, 5)).replay()
    assert value(x) == 5


def test_the_first_look_at_a_name_is_enough_for_an_assignment(monkeypatch):
    torch = install(monkeypatch, "torch", compat_fake_torch.torch())
    torch.cuda.CUDAGraph = compat.CUDAGraph
    x = Array()
    with compat.graph(torch.cuda.CUDAGraph()):
        torch.fill(x, 5)
    with pytest.raises(KeyError), compat.graph(torch.cuda.CUDAGraph()):
        raise KeyError  # an empty capture restores the generators, also with torch's own class


@pytest.mark.promise("replays-follow-torch")
def test_replays_go_to_torchs_current_stream_of_the_captures_device(torch, monkeypatch):
    there, g, seen = torch.cuda.Stream(1), torch.cuda.CUDAGraph(), []
    launch = OWN.replay

    def replay(self):
        seen.append((self._device, handle(torch.cuda.current_stream(self._device))))
        with torch.cuda.device(self._device):  # torch does that itself
            launch(self)

    monkeypatch.setattr(OWN, "replay", replay)
    with torch.cuda.device(1):
        y = Array()
        captured(torch, g, lambda: torch.rand(y))  # so that torch replays every time
    g.replay()
    with torch.cuda.stream(there):
        g.replay()
    with torch.cuda.stream(torch.cuda.Stream(0)):
        g.replay()
    with torch.cuda.device(1):
        assert value(y) == 7
    assert seen == [(1, 0), (1, handle(there)), (1, 0)]


def test_the_stream_that_was_named_is_current_in_the_body_and_not_afterwards(torch):
    x, mine = Array(), torch.cuda.Stream()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g, stream=mine):
        assert torch.cuda.current_stream() is mine
        torch.fill(x, 5)
    assert handle(torch.cuda.current_stream()) == 0
    g.replay()
    assert value(x) == 5


def test_one_side_stream_for_all_captures_of_a_device(torch):
    seen = []
    for _ in range(2):
        with pytest.warns(ag.EmptyGraphWarning), torch.cuda.graph(torch.cuda.CUDAGraph()):
            seen.append(torch.cuda.current_stream())
    with torch.cuda.device(1):
        one_more = torch.cuda.graph(torch.cuda.CUDAGraph())
    assert seen[0] is seen[1]
    assert one_more.capture_stream.device_index == 1
    mine = torch.cuda.Stream()
    torch.cuda.graph.default_capture_stream = mine
    try:
        assert torch.cuda.graph(torch.cuda.CUDAGraph()).capture_stream is mine
    finally:
        torch.cuda.graph.default_capture_stream = None


@pytest.mark.promise("drop-in-body-raises")
def test_a_body_that_raises_leaves_no_trace(torch):
    x, g = Array(), torch.cuda.CUDAGraph()
    for _ in range(2):
        with pytest.raises(KeyError, match="first") as info, torch.cuda.graph(g):  # noqa: PT012
            torch.fill(x, 1)
            raise KeyError("first")
        assert "abandoned" in info.value.__notes__[0]
        assert handle(torch.cuda.current_stream()) == 0
    with pytest.raises(RuntimeError, match="nothing was captured"):
        g.replay()
    captured(torch, g, lambda: torch.fill(x, 5)).replay()
    assert value(x) == 5


@pytest.mark.promise("drop-in-first-error")
def test_an_illegal_call_is_the_first_error_and_the_stream_is_restored(torch):
    g = torch.cuda.CUDAGraph()
    first = RuntimeError("not permitted")
    with pytest.raises(ag.CaptureError) as info, torch.cuda.graph(g):  # noqa: PT012
        driver.cuStreamSynchronize(handle(torch.cuda.current_stream()))
        raise first
    assert info.value.__cause__ is first
    assert info.value.reason == "invalidated"
    assert handle(torch.cuda.current_stream()) == 0


def test_capture_begin_and_end(torch):
    x, mine = Array(), torch.cuda.Stream()
    g = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.stream(mine):
        g.capture_begin((0, 9), "relaxed")
        assert torch.cuda.current_stream() is mine
        torch.fill(x, 5)
        g.capture_end()
        assert torch.cuda.current_stream() is mine
    assert g.pool() == recorded(g).pool() == (0, 9)
    with pytest.raises(RuntimeError, match="instantiate"):
        g.raw_cuda_graph_exec()
    g.instantiate()
    assert g.raw_cuda_graph() == recorded(g).raw_cuda_graph()
    assert g.raw_cuda_graph_exec() == recorded(g).raw_cuda_graph_exec()
    g.replay()
    assert value(x) == 5
    assert calls["torch.cuda.synchronize"] == 0


def test_the_default_stream_is_refused_even_if_another_stream_is_current_elsewhere(torch):
    for graph in (torch.cuda.CUDAGraph(), torch.accelerator.Graph()):
        with pytest.raises(ag.CaptureError, match="torch's current stream") as info:
            graph.capture_begin()
        assert info.value.reason == "default_stream"
        assert graph.state == "empty"


def test_a_pool_may_be_a_mempool(torch):
    x = Array()
    a, b = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    captured(torch, a, lambda: torch.fill(x, 1), pool=torch.cuda.MemPool())
    captured(torch, b, lambda: torch.fill(x, 2), pool=a.pool())
    assert a.pool() == b.pool() == recorded(b).pool() == (0, 7_000_077)


def test_debug_dump(torch, tmp_path):
    x, g = Array(), torch.cuda.CUDAGraph()
    g.enable_debug_mode()
    captured(torch, g, lambda: torch.fill(x, 5))
    g.debug_dump(debug_path=str(tmp_path / "g.dot"), verbose=False)
    assert (tmp_path / "g.dot").read_text().startswith("digraph")


def test_torchs_accelerator_graph(torch):
    x, mine = Array(), torch.cuda.Stream()
    g = torch.accelerator.Graph(pool=(0, 8), capture_error_mode="relaxed")
    with torch.cuda.stream(mine), g:
        assert torch.cuda.current_stream() is mine
        torch.fill(x, 5)
    assert (g.pool(), g.graph_pool, g.capture_error_mode) == ((0, 8), (0, 8), "relaxed")
    g.replay()
    assert value(x) == 5
    assert calls["torch.cuda.synchronize"] == 1
    with torch.cuda.stream(mine), pytest.raises(KeyError):  # noqa: PT012
        g.reset()
        with g:
            raise KeyError
    assert g.state == "empty"


def test_other_accelerators_get_torchs_own(torch, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: SimpleNamespace(type="xpu"))
    monkeypatch.setattr(compat.Graph, "torchs_own", compat_fake_torch.XpuGraph)
    made = compat.Graph(True, pool=(0, 1))
    assert type(made) is compat_fake_torch.XpuGraph
    assert made.given == (True, (0, 1), "default")


@pytest.mark.promise("both-kinds-of-graph")
def test_a_graph_of_torchs_own_goes_to_torchs_own_context_manager(torch):
    x, old = Array(), OWN(keep_graph=True)
    with torch.cuda.graph(old, capture_error_mode="relaxed"):
        torch.fill(x, 5)
    old.instantiate()
    old.replay()
    assert value(x) == 5
    assert calls["torch.cuda.graph"] == 1
    for wrong in (object(), ag.Graph()):
        with pytest.raises(TypeError, match=r"must be a torch\.cuda\.CUDAGraph"):
            torch.cuda.graph(wrong)


@pytest.mark.promise("both-kinds-of-graph")
def test_our_graph_in_torchs_own_context_manager(torch):
    x, g = Array(), torch.cuda.CUDAGraph()
    with compat_fake_torch.graph(g):
        torch.fill(x, 5)
    g.replay()
    assert value(x) == 5
    assert handle(torch.cuda.current_stream()) == 0


@pytest.mark.promise("nested-capture-is-refused")
def test_a_second_capture_disturbs_neither_the_first_nor_the_device(torch):
    x, g = Array(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        before = calls["torch.cuda.synchronize"]
        for how in ({}, {"stream": torch.cuda.Stream()}):
            inner = torch.cuda.graph(torch.cuda.CUDAGraph(), **how)
            with pytest.raises(ag.CaptureError) as info, inner:
                raise AssertionError
            assert info.value.reason == "foreign_capture"
        assert calls["torch.cuda.synchronize"] == before
        torch.fill(x, 5)
    g.replay()
    assert value(x) == 5


@pytest.mark.promise("memory-of-dropped-graphs")
def test_memory_of_graphs_that_are_gone_comes_back_when_the_cache_is_emptied(torch):
    x, g = Array(), torch.cuda.CUDAGraph()
    captured(torch, g, lambda: torch.fill(x, 5))
    mine = recorded(g)
    del g
    assert mine._graph is not None
    before = calls["torch.cuda.empty_cache"]
    torch.cuda.empty_cache()
    assert mine._graph is None
    assert calls["torch.cuda.empty_cache"] == before + 1


def test_force_cudagraph_gc(torch):
    torch.compiler.config.force_cudagraph_gc = True
    before = gc.get_stats()[2]["collections"]
    x = Array()
    captured(torch, torch.cuda.CUDAGraph(), lambda: torch.fill(x, 5))
    assert gc.get_stats()[2]["collections"] > before


def test_input_liveness(torch, monkeypatch):
    x, mine, g = Array(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    asked = []
    monkeypatch.setattr(Torch, "observe", lambda self, pool, used: asked.append(used))
    captured(torch, g, lambda: torch.fill(x, 5), check_input_liveness=True)
    assert len(asked) == 1
    g.reset()
    captured(torch, g, lambda: torch.fill(x, 5))
    g.reset()
    assert len(asked) == 1
    with torch.cuda.stream(mine):
        g.capture_begin(check_input_liveness=True)
        torch.fill(x, 5)
        g.capture_end()
    assert len(asked) == 2


def test_the_captured_stream_is_torchs_current_one_as_itself(torch):
    x, first, second, seen = Array(), torch.cuda.Stream(), torch.cuda.Stream(), []

    def work():
        seen.append(torch.cuda.current_stream())
        torch.fill(x, 5)

    named = [torch.cuda.graph(torch.cuda.CUDAGraph(), stream=each) for each in (first, second)]
    for each in named:
        with each:
            work()
    with torch.cuda.stream(first):
        g = torch.cuda.CUDAGraph()
        g.capture_begin()
        work()
        g.capture_end()
    assert seen[0] is seen[2] is first
    assert seen[1] is second


@pytest.mark.promise("refused-by-the-drop-in")
def test_what_newer_torchs_have_is_passed_on_or_refused(torch, monkeypatch):
    monkeypatch.setattr(OWN, "get_graph_data", lambda self: {"of": self}, raising=False)
    monkeypatch.setattr(OWN, "register_capture_end_hook", lambda self, hook: None, raising=False)
    x, g = Array(), torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="nothing was captured"):
        g.get_graph_data()
    captured(torch, g, lambda: torch.fill(x, 5))
    assert g.get_graph_data() == {"of": recorded(g)}
    with pytest.raises(ag.UnsupportedError, match="torchs_own"):
        g.register_capture_end_hook(print)
    assert not hasattr(g, "pools")  # this torch has none
    assert not hasattr(g, "register_destroy_callback")
    g._annotation_key_by = "exec"  # set by torch 2.15's own context manager
    with pytest.raises(ag.UnsupportedError, match="annotated"):
        torch.cuda.graph(g, enable_annotations=True)
    with pytest.raises(ag.UnsupportedError, match="which graph"):
        torch.cuda.CUDAGraph.get_currently_capturing_graph()
    recording = lambda: next(iter(interop_fake_torch._capturing.values()), None)  # noqa: E731
    monkeypatch.setattr(OWN, "get_currently_capturing_graph", staticmethod(recording), raising=False)
    g.reset()
    with torch.cuda.graph(g):
        torch.fill(x, 5)
        assert torch.cuda.CUDAGraph.get_currently_capturing_graph() is recorded(g)


@pytest.mark.promise("random-numbers-of-torch")
def test_random_numbers_go_on(torch):
    x, mine = Array(), torch.Generator()
    mine.device = SimpleNamespace(type="cuda", index=0)
    g = torch.cuda.CUDAGraph()
    g.register_generator_state(mine)
    captured(torch, g, lambda: torch.rand(x, mine))
    for _ in range(3):
        g.replay()
    assert value(x) == 7
    assert (recorded(g).replays, mine.offset) == (3, 12)


# ---- torch's words: what its own tests look for -------------------------------------------------


def refused(call, error, words, ours):
    with pytest.raises(error) as info:
        call()
    message = str(info.value)
    assert message.startswith(words)
    assert message.count(words) == 1
    assert ours in message
    assert isinstance(info.value, RuntimeError)


@pytest.mark.promise("torchs-sentences")
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("hip", [None, "7.2"])
def test_calls_out_of_order_say_what_torch_says(torch, monkeypatch, keep, hip):
    monkeypatch.setattr(torch.version, "hip", hip)
    vendor = "hip" if hip else "cuda"
    nothing = "nothing was captured; capture first"
    g = torch.cuda.CUDAGraph(keep_graph=keep)
    raw = f"You cannot access the raw {vendor}Graph_t instance"
    not_kept = f"{raw} unless CUDAGraph was initialized with keep_graph=true"
    not_captured = f"{raw} until capture_end() has been called"
    without = "without a preceding successful capture."
    for call, words in (
        (g.replay, f"Called CUDAGraph::replay {without}"),
        (g.pool, f"Called CUDAGraph::pool() {without}"),
        (g.instantiate, "capture_end() must have been called before calling instantiate"),
        (g.raw_cuda_graph, not_captured if keep else not_kept),
        (
            g.raw_cuda_graph_exec,
            f"You cannot access the raw {vendor}GraphExec_t instance until instantiate() has been called",
        ),
    ):
        refused(call, ag.GraphStateError, words, nothing)
    refused(
        g.capture_end,
        ag.GraphStateError,
        "capture_end() called before capture_begin().",
        "no capture has begun",
    )


@pytest.mark.promise("torchs-sentences")
def test_calls_on_a_captured_graph_say_what_torch_says(torch):
    x, stream = Array(), torch.cuda.Stream()
    g = captured(torch, torch.cuda.CUDAGraph(), lambda: torch.fill(x, 5))
    kept = captured(torch, torch.cuda.CUDAGraph(keep_graph=True), lambda: torch.fill(x, 5))
    only_kept = r"instantiate() is intended to be called by the user only when keep_graph=true"
    refused(g.instantiate, ag.GraphStateError, only_kept, "has its executable already")
    no_handle = (
        "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=true"
    )
    refused(g.raw_cuda_graph, ag.GraphStateError, no_handle, "the graph was not kept")
    not_yet = "You cannot access the raw cudaGraphExec_t instance until instantiate() has been called"
    refused(kept.raw_cuda_graph_exec, ag.GraphStateError, not_yet, "no executable yet")
    with torch.cuda.stream(stream):
        owns = "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new"
        refused(g.capture_begin, ag.GraphStateError, owns, "call reset() first")
    kept.instantiate()
    kept.instantiate()
    kept.replay()
    assert value(x) == 5


@pytest.mark.promise("torchs-sentences")
def test_the_default_stream_is_refused_in_torchs_words(torch):
    words = (
        "CUDA graphs must be captured on a non-default stream. "
        "(However, after capture, it's ok to replay them on the default stream.)"
    )
    ours = "the default stream can't take part in a capture"
    for g in (torch.cuda.CUDAGraph(), torch.accelerator.Graph()):
        refused(g.capture_begin, ag.CaptureError, words, ours)
        assert g.state == "empty"
    named = torch.cuda.graph(torch.cuda.CUDAGraph(), stream=torch.cuda.current_stream())
    refused(named.__enter__, ag.CaptureError, words, ours)


@pytest.mark.promise("torchs-empty-graph")
def test_an_empty_capture_is_warned_of_in_torchs_words(torch):
    words = (
        "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong "
    )
    words += "device or stream."
    with pytest.warns(ag.EmptyGraphWarning) as found, torch.cuda.graph(torch.cuda.CUDAGraph()):
        pass
    assert [(str(each.message), each.filename) for each in found] == [(words, __file__)]


def test_an_interrupt_as_the_block_ends_leaves_no_capture(torch):
    x, g = Array(), torch.cuda.CUDAGraph()

    def trace(frame, event, arg):
        if frame.f_code.co_name == "__exit__" and frame.f_code.co_filename == _context.__file__:
            sys.settrace(None)
            raise KeyboardInterrupt  # on entry, before its first line

    before = sys.gettrace()
    with pytest.raises(KeyboardInterrupt), torch.cuda.graph(g):  # noqa: PT012
        torch.fill(x, 1)
        sys.settrace(trace)
    sys.settrace(before)
    gc.collect()
    assert g.state == "empty"
    assert handle(torch.cuda.current_stream()) == 0
    captured(torch, g, lambda: torch.fill(x, 5)).replay()
    assert value(x) == 5
