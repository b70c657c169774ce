"""Captures that torch records: stand-ins on the software driver (see test_interop.py)."""

from __future__ import annotations

import os
import warnings

import pytest

if "SOFTWARE_CUDA_UNKNOWN" not in os.environ:
    pytest.skip("the stand-ins are for the software driver", allow_module_level=True)

import interop_fake_torch
from cuda.bindings import driver
from driver.faults import Faults
from interop_fake_torch import AcceleratorError, CUDAGraph
from interop_fakes import calls
from interop_scene import Array, captured, clean_fixture, torch_fixture, value  # noqa: F401

import accelerator_graph as ag


def recording(g):
    return g._runner.executable.value.recording.torch_graph


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
    nodes, _ = g._captured.backend.nodes(g._captured.value)
    assert [node.kind for node in nodes] == ["memset"]
    g.instantiate()
    other = ag.Stream(backend="cuda")
    g.bind(other)()
    other.synchronize()
    assert value(x) == 5


def test_without_random_numbers_torch_replays_once(torch):
    x = Array()
    g = captured(ag.Graph(), lambda: torch.fill(x, 5))
    for _ in range(3):
        g.replay()
    assert recording(g).replays == 1
    kept = g.bind()
    kept()
    assert recording(g).replays == 1


def test_with_random_numbers_torch_always_replays(torch):
    x = Array()
    g = captured(ag.Graph(), lambda: torch.rand(x))
    before = torch.cuda.default_generators[0].offset
    for _ in range(3):
        g.replay()
    assert recording(g).replays == 3
    assert torch.cuda.default_generators[0].offset == before + 12
    other = ag.Stream(backend="cuda")
    g.replay(other)
    assert recording(g).replays == 4
    assert torch.cuda.current_stream().cuda_stream == 0


def test_random_numbers_of_a_registered_generator(torch):
    x, mine = Array(), torch.Generator()
    g = ag.Graph()
    g.register_generator_state(mine)
    captured(g, lambda: torch.rand(x, mine))
    for _ in range(3):
        g.replay()
    assert (recording(g).replays, mine.offset) == (3, 12)


def test_what_is_no_generator_is_refused_and_leaves_nothing(torch):
    g = ag.Graph()
    g.register_generator_state(object())
    with pytest.raises(TypeError, match="Generator"):
        captured(g, lambda: None)
    assert g.state == "empty"


def test_replays_follow_torchs_current_stream(torch):
    x, side, other = Array(), torch.cuda.Stream(), torch.cuda.Stream()
    g = ag.Graph()
    with torch.cuda.stream(side), g:
        torch.fill(x, 5)
    g.replay()
    with torch.cuda.stream(other):
        g.replay()
    cells = [cell.cell_contents for cell in g._runner.launch.__closure__]
    [launchers] = [each for each in cells if isinstance(each, dict)]
    assert list(launchers) == [0, other.cuda_stream]


def test_a_second_capture_on_a_device_is_refused_naming_the_first(torch):
    x = Array()
    g, inner = ag.Graph(), ag.Graph()
    with ag.graph(g):
        torch.fill(x, 1)
        with pytest.raises(ag.CaptureError, match="in thread 'MainThread'") as info, ag.graph(inner):
            raise AssertionError
        assert info.value.reason == "foreign_capture"
        elsewhere = ag.Stream(1, backend="cuda")
        with elsewhere, warnings.catch_warnings():
            warnings.simplefilter("ignore", ag.EmptyGraphWarning)
            with ag.Graph():
                pass
        torch.fill(x, 5)
    g.replay()
    assert value(x) == 5


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
    assert calls["cudaGetLastError"] == 1


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
