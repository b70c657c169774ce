"""A graph for every GPU in one process. What needs several processes is in the examples."""

import threading
from functools import partial

import pytest

import accelerator_graph as ag
import lanes
from threads import in_threads

pytestmark = lanes.require("gpus", "torch")
torch = pytest.importorskip("torch")
if torch.cuda.device_count() < 2:
    pytest.skip("there is one GPU, and two are needed", allow_module_level=True)

DEVICES = (0, 1)


def model(device):
    torch.manual_seed(device)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).to(device)


@pytest.fixture(autouse=True)
def home():
    torch.cuda.set_device(0)
    yield
    assert torch.cuda.current_device() == 0
    for device in DEVICES:
        assert torch.cuda.current_stream(device) == torch.cuda.default_stream(device)
        torch.cuda.synchronize(device)


def captured(device):
    net, x = model(device), torch.randn(16, 64, device=device)
    net(x)
    graph = ag.Graph()
    with torch.no_grad(), ag.Stream(device), ag.graph(graph):
        assert torch.cuda.current_device() == device
        y = net(x)
    return graph, net, x, y


def agrees(graph, net, x, y):
    x.normal_()
    torch.cuda.synchronize(x.device)
    graph.replay()
    graph.stream.synchronize()
    with torch.no_grad():
        return torch.equal(net(x), y)


def test_one_for_each():
    graphs = [captured(device) for device in DEVICES]
    for _ in range(3):
        for each in graphs:
            assert agrees(*each)
    assert [graph.device for graph, *_ in graphs] == list(DEVICES)


def test_a_capture_inside_that_of_another_device_is_refused():
    inner, x = ag.Graph(), torch.randn(16, device=0)
    outer = ag.Graph()
    with ag.Stream(0), ag.graph(outer):
        y = x * 2
        with ag.Stream(1), pytest.raises(ag.CaptureError, match="torch is recording"), ag.graph(inner):
            pass
        y = y + 1
    outer.replay()
    outer.stream.synchronize()
    assert torch.equal(y, x * 2 + 1)


def test_captures_in_two_threads_at_once():
    barrier = threading.Barrier(2, timeout=60)
    answers = {}

    def work(device):
        torch.cuda.set_device(device)
        for _ in range(20):
            barrier.wait()
            answers.setdefault(device, []).append(agrees(*captured(device)))

    in_threads(*(partial(work, device) for device in DEVICES))
    assert answers == {device: [True] * 20 for device in DEVICES}


def test_a_stream_of_another_device_is_refused():
    graph, *_ = captured(1)
    with pytest.raises(ValueError, match="captured on device 1 and can't be replayed on device 0"):
        graph.replay(ag.Stream(0))


def test_a_graphed_function_has_a_graph_for_each():
    @ag.graphed(warmup=1)
    def double(x):
        return x * 2

    for _ in range(3):
        for device in DEVICES:
            with torch.cuda.device(device):
                x = torch.randn(16, device=device)
                assert torch.equal(double(x), x * 2)
    assert double.cache_info().graphs == 2
