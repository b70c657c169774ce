"""Updates of graphs that torch records: stand-ins on the software driver (see tests/simulators)."""

import gc

import pytest

import lanes

pytestmark = lanes.require("software_cuda")

import accelerator_graph as ag
from accelerator_graph._core import ownership
from interop import fake_torch as interop_fake_torch
from interop.fake_torch import CUDAGraphOf215, pool_uses
from interop.fakes import install
from interop.scene import Array, captured, clean_fixture, torch_fixture, value  # noqa: F401


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    gc.collect()
    ownership.drain()
    assert not pool_uses


def filling(torch, array, number):
    return captured(ag.Graph(keep_graph=True), lambda: torch.fill(array, number))


@pytest.mark.promise("no-update-of-random-numbers")
def test_what_draws_no_random_numbers_is_updated_in_place(torch):
    x = Array()
    graph, other = filling(torch, x, 5), filling(torch, x, 6)
    bound = graph.bind()
    for each in (graph, other):
        each.replay()  # torch has shown that it draws nothing
    executable = graph.raw_executable()
    assert graph.update(other).in_place
    assert graph.raw_executable() == executable
    bound()
    assert value(x) == 6
    other.reset()
    del other
    gc.collect()
    ownership.drain()
    assert len(pool_uses) == 2, "a pool has gone whose work is still done"
    bound()
    graph.instantiate()
    graph.replay()
    assert value(x) == 6
    assert graph.describe().nodes[0].value == 6
    gc.collect()
    ownership.drain()
    assert len(pool_uses) == 1


def test_what_may_draw_random_numbers_is_no_other_graphs_work(torch):
    x = Array()
    graph, other = filling(torch, x, 5), filling(torch, x, 6)
    graph.replay()
    for refused in (lambda: graph.update(other), other.clone):
        with pytest.raises(ag.UnsupportedError, match=r"may draw random numbers, so .* recapture\(\)"):
            refused()
    graph.replay()
    assert value(x) == 5
    other.replay()
    graph.update(other)
    graph.replay()
    assert value(x) == 6


@pytest.mark.promise("no-update-of-random-numbers")
def test_an_executable_that_was_never_replayed_may_draw_random_numbers(torch):
    x = Array()
    plain, random = filling(torch, x, 5), captured(ag.Graph(keep_graph=True), lambda: torch.rand(x))
    plain.replay()
    random.instantiate()
    for refused in (lambda: plain.update(random), random.clone):
        with pytest.raises(ag.UnsupportedError, match="may draw random numbers"):
            refused()
    assert not random.update(plain).in_place
    random.replay()
    assert value(x) == 5


def test_a_clone_is_the_drivers(torch):
    x = Array()
    graph = filling(torch, x, 5)
    graph.replay()
    clone = graph.clone()
    graph.reset()
    clone.replay()
    assert value(x) == 5
    assert clone.raw_executable()


def test_torch_gives_up_a_graph_with_the_latest_executable(torch, monkeypatch):
    """The former one may go late: while another graph is captured, nothing is destroyed."""
    graph = filling(torch, Array(), 5)
    captured = graph._runner.captured
    recorder, recording, resets = captured.recorder, captured.value, []
    former, latest = recorder.instantiate(recording), recorder.instantiate(recording)
    with monkeypatch.context() as patch:
        patch.setattr(recording.torch_graph, "reset", lambda: resets.append(1))
        recorder.destroy_executable(former)
        recorder.destroy_graph(recording)
        assert resets == []
        recorder.destroy_executable(latest)
        assert resets == [1]


@pytest.mark.parametrize("version", ["2.13", "2.15"])
def test_a_recapture_is_torchs(monkeypatch, version):
    kind = interop_fake_torch.CUDAGraph if version == "2.13" else CUDAGraphOf215
    torch = install(monkeypatch, "torch", interop_fake_torch.torch(graph=kind))
    x = Array()
    graph = captured(ag.Graph(keep_graph=True), lambda: torch.rand(x))
    bound, before = graph.bind(), torch.cuda.default_generators[0].offset
    bound()
    for _ in range(2):
        with graph.recapture() as again:
            torch.rand(x)
        assert again.update == (
            False,
            "the framework that recorded the work may draw random numbers in it",
            None,
        )
        bound()
        graph.replay()
    assert torch.cuda.default_generators[0].offset == before + 5 * 4
    assert len(pool_uses) == 1


def test_a_recapture_that_torch_refuses(torch, monkeypatch):
    x = Array()
    graph = filling(torch, x, 5)
    graph.replay()

    def refuse(self):
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(interop_fake_torch.CUDAGraph, "instantiate", refuse)
        with pytest.raises(RuntimeError, match="no"), graph.recapture():
            torch.fill(x, 6)
    graph.replay()
    assert value(x) == 5


def test_a_recapture_by_the_driver_and_back(torch, monkeypatch):
    """The recorder may be another one than before."""
    x, stream = Array(), ag.Stream(backend="cuda")
    graph = ag.Graph(keep_graph=True, stream=stream)
    with monkeypatch.context() as patch:
        patch.setattr(interop_fake_torch.CUDAGraph, "__init__", None)
        patch.setattr("accelerator_graph.interop.torch.Torch.recorder", lambda *_: None)
        with graph:
            stream.fill(x.ptr, 1, 1)
    bound = graph.bind()
    bound()
    with graph.recapture():
        torch.fill(x, 2)
    for _ in range(3):
        bound()
    assert value(x) == 2
    with monkeypatch.context() as patch:
        patch.setattr("accelerator_graph.interop.torch.Torch.recorder", lambda *_: None)
        with graph.recapture():
            stream.fill(x.ptr, 3, 1)
    bound()
    assert value(x) == 3
