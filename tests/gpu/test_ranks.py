"""Collectives of NCCL in captures of one process, and where a replay is, on a GPU."""

import io
import time

import pytest

import accelerator_graph as ag
import lanes
from accelerator_graph.inspection.progress import markers_of

pytestmark = lanes.require("gpu", "torch")
torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

if not dist.is_nccl_available():
    pytest.skip("torch has no NCCL", allow_module_level=True)

SECOND = 1_500_000_000
"""How many cycles of a GPU take about a second."""


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "store"), 1)
    dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    dist.all_reduce(torch.ones(4, device="cuda"))
    torch.cuda.synchronize()
    yield
    dist.destroy_process_group()


def captured(work, **how):
    graph = ag.Graph(keep_graph=True, **how)
    with ag.graph(graph):
        work()
    return graph


@pytest.mark.filterwarnings("ignore::accelerator_graph.EmptyGraphWarning")
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("way", ["function", "method", "functional"])
def test_collectives_are_seen(way, inference):
    from torch.distributed import _functional_collectives as functional

    x, world = torch.ones(1024, device="cuda"), dist.group.WORLD
    call = {
        "function": lambda: dist.all_reduce(x),
        "method": lambda: world.allreduce([x]).wait(),
        "functional": lambda: functional.wait_tensor(functional.all_reduce(x, "sum", world)),
    }[way]
    with torch.inference_mode(inference):
        call()
        graph = captured(call)
    [found] = graph.collectives
    assert (found.kind, found.ranks, found.dtype, found.elements) == ("all_reduce", (0,), "float32", 1024)
    assert found.file == __file__
    assert ag.check_ranks(graph).agree
    graph.reset()


@pytest.mark.filterwarnings("ignore")
def test_collectives_of_a_backward_pass_are_seen():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), device_ids=[0])
        x = torch.randn(8, 64, device="cuda")
        for _ in range(12):
            model(x).sum().backward()
    torch.cuda.synchronize()
    graph = captured(lambda: model(x).sum().backward())
    assert [(each.kind, each.elements) for each in graph.collectives] == [("all_reduce", 64 * 65)]
    graph.reset()


def test_host_collectives_are_not_the_graphs():
    x = torch.ones(4)
    graph = captured(lambda: (dist.all_reduce(x), torch.ones(4, device="cuda").add_(1)))
    assert graph.collectives == ()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_compiled_code_stays_compiled():
    function = torch.compile(lambda x: (x * 2 + 1).relu().sum())
    x = torch.ones(1024, device="cuda")
    function(x)
    graph = captured(lambda: function(x))
    assert [node.name.startswith("triton_") for node in graph.describe().nodes] == [True]


def place(graph):
    return str(markers_of(graph).place())


def slow(cycles=SECOND):
    x = torch.ones(64, device="cuda")

    def work():
        x.add_(1)
        with ag.label("layer"):
            x.mul_(2)
            with ag.label("slow"):
                torch.cuda._sleep(cycles)
            x.add_(1)

    return work


def test_the_host_sees_where_a_replay_is():
    graph = captured(slow(), observe=ag.progress())
    assert place(graph) == "no run has begun"
    for _ in range(2):
        graph.replay()
        seen, end = set(), time.monotonic() + 30
        while "in 'layer / slow'" not in seen and time.monotonic() < end:
            seen.add(place(graph))
        assert not torch.cuda.current_stream().query()
        torch.cuda.synchronize()
        assert place(graph) == "the last run has ended"


def test_without_a_framework():
    backend = ag.backends.get("cuda")
    stream = ag.Stream(backend="cuda")
    address = backend.host_memory(stream.native, 64)
    with stream, ag.Graph(observe=ag.progress(), stream=stream) as graph, ag.label("fill"):
        stream.fill(address, 7, 64)
    graph.replay()
    stream.synchronize()
    assert place(graph) == "the last run has ended"


def test_the_watchdog_names_the_label():
    graph, file = captured(slow(3 * SECOND), observe=ag.progress()), io.StringIO()
    graph.replay()
    with ag.watchdog(graph, 0.3, file=file) as dog:
        torch.cuda.synchronize()
    assert dog.report.places == {0: "in 'layer / slow'"}
    assert "torch.cuda.synchronize()" in file.getvalue()
