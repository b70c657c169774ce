"""Work that other libraries enqueue on our stream is captured, and replays as it would have run.

The reference is what we did not write: eager results, and torch's own graph of the same work.
"""

import pytest

import accelerator_graph as ag

pytestmark = pytest.mark.needs("gpu")


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


def test_torch_on_our_stream(torch):
    def work(x, w, y):
        torch.mm(x, w, out=y)
        y.relu_()
        x.add_(y, alpha=1e-3)

    def fresh():
        generator = torch.Generator(device="cuda").manual_seed(3)
        made = [torch.randn(256, 256, device="cuda", generator=generator) for _ in range(3)]
        work(*made)  # cuBLAS makes its workspace now, not in a capture
        torch.cuda.synchronize()
        return made

    stream = ag.Stream(backend="cuda")
    theirs = torch.cuda.ExternalStream(stream.handle)
    eager, ours, reference = fresh(), fresh(), fresh()
    for _ in range(20):
        work(*eager)
    graph = ag.Graph(stream=stream)
    with torch.cuda.stream(theirs):
        work(*fresh())  # and for this stream
        with graph:
            work(*ours)
        torch_graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(torch_graph):
        work(*reference)
    for _ in range(20):
        graph.replay()
        torch_graph.replay()
    torch.cuda.synchronize()
    assert graph.num_nodes > 2
    for a, b, c in zip(eager, ours, reference, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(c, b)


def test_a_torch_call_that_breaks_the_capture_is_the_cause(torch):
    stream, graph = ag.Stream(backend="cuda"), ag.Graph()
    x = torch.ones(8, device="cuda")
    torch.cuda.synchronize()

    def attempt():
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)), stream, graph:
            x.add_(1)
            x.sum().item()

    with pytest.raises(ag.CaptureError) as caught:
        attempt()
    assert caught.value.reason == "invalidated"
    assert "capturing" in str(caught.value.__cause__)
    assert graph.state == "empty"
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)), stream, graph:
        x.add_(1)
    graph.replay()
    stream.synchronize()
    assert x.tolist() == [2.0] * 8


def test_cupy_and_torch_in_one_graph(torch):
    cupy = pytest.importorskip("cupy")
    stream = ag.Stream(backend="cuda")
    x = torch.arange(8, device="cuda", dtype=torch.float32)
    y = cupy.zeros(8, dtype=cupy.float32)
    y += 1  # compiles the kernel now
    y -= 1
    torch.cuda.synchronize()
    graph = ag.Graph(stream=stream)
    with (
        torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)),
        cupy.cuda.Stream.from_external(stream),
        graph,
    ):
        x.mul_(2)
        y += 1
        stream.copy(y, x, 16)
    graph.replay()
    graph.replay()
    stream.synchronize()
    assert x.tolist() == [4.0 * n for n in range(8)]
    assert y.tolist() == [0.0, 4.0, 8.0, 12.0, 2.0, 2.0, 2.0, 2.0]


def test_a_stream_of_theirs_is_captured(torch):
    theirs = torch.cuda.Stream()
    x = torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    graph = ag.Graph(stream=theirs.cuda_stream, backend="cuda")
    with torch.cuda.stream(theirs), graph:
        x.add_(1)
    assert graph.stream.handle == theirs.cuda_stream
    for _ in range(3):
        graph.replay()
    theirs.synchronize()
    assert x.tolist() == [3.0] * 8
