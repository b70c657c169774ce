"""Nodes that torch records on a GPU, its matrix products among them, and `Graph.set_node`."""

import pytest

import accelerator_graph as ag
import lanes

pytestmark = lanes.require("gpu")


@pytest.fixture(name="torch")
def torch_fixture():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    return torch


def captured(torch, work):
    """Return a graph of a function, with its executable, and what the function returned."""
    graph = ag.Graph(keep_graph=True)
    with torch.cuda.stream(torch.cuda.Stream()):
        work()
        with graph:
            result = work()
    graph.instantiate()
    return graph, result


def replayed(torch, graph, result):
    result.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    return result.clone()


def test_a_copy_reads_from_another_tensor(torch):
    x, y, z = (torch.full((1 << 20,), float(i), device="cuda") for i in range(3))
    graph, _ = captured(torch, lambda: z.copy_(x))
    (copy,) = graph.describe().nodes
    if copy.kind != "memcpy":
        pytest.skip(f"torch copies by a {copy.kind} node")
    graph.set_node(0, source=y)
    assert bool((replayed(torch, graph, z) == 1).all())
    with pytest.raises(ValueError, match="not of the kind that was captured"):
        graph.set_node(0, source=torch.zeros(1 << 20).numpy())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_kernels_can_be_given_the_arguments_that_they_have(torch, dtype):
    """cuBLAS's have them in one block; some of them are tensor maps."""
    a, b = (torch.randn(512, 512, device="cuda", dtype=getattr(torch, dtype)) for _ in range(2))
    graph, result = captured(torch, lambda: torch.softmax(a @ b, -1) + 1)
    expected = replayed(torch, graph, result)
    kernels = [node for node in graph.describe().nodes if node.kind == "kernel"]
    assert len(kernels) >= 3
    for node in kernels:
        assert node.settable == ("arguments", "enabled"), node
        setter = graph._runner.captured.backend.node_setter(
            graph._runner.captured.native, graph._runner.executable.native, node.id
        )
        setter.write(setter.blocks)
    assert torch.equal(replayed(torch, graph, result), expected)


def test_kernels_are_left_out_and_put_back(torch):
    x = torch.ones(1024, device="cuda")
    graph, result = captured(torch, lambda: x + 1)
    (kernel,) = graph.describe().nodes
    graph.set_node(kernel.id, enabled=False)
    assert bool(replayed(torch, graph, result).isnan().all())
    graph.set_node(kernel.id, enabled=True)
    assert bool((replayed(torch, graph, result) == 2).all())


@pytest.mark.parametrize("depth", [1, 2])
def test_nodes_inside_a_child_are_given_other_tensors(torch, depth):
    """In the parent alone: torch's copies and kernels, one of which is left out as well."""
    x, y, z = (torch.full((1 << 20,), float(i), device="cuda") for i in range(3))
    inner, _ = captured(torch, lambda: (z.copy_(x), z.add_(3)))
    outer = inner
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(depth):
            inside, outer = outer, ag.Graph(keep_graph=True)
            inside.replay()  # which shows that no random number is drawn
            with outer:
                outer.add(inside)
                z.mul_(2)
    outer.instantiate()

    def result(graph):
        return set(replayed(torch, graph, z).tolist())

    at = (0,) * depth
    copy, kernel = inner.describe().nodes
    if copy.kind != "memcpy":
        pytest.skip(f"torch copies by a {copy.kind} node")
    assert (result(inner), result(outer)) == ({3.0}, {3.0 * 2**depth})
    outer.set_node((*at, 0), source=y)
    assert (result(inner), result(outer)) == ({3.0}, {4.0 * 2**depth})
    outer.set_node((*at, kernel.id), enabled=False)
    for _ in range(50):
        assert result(outer) == {1.0 * 2**depth}
    outer.set_nodes({(*at, kernel.id): {"enabled": True}, (*at, 0): {"source": x}})
    assert (result(inner), result(outer)) == ({3.0}, {3.0 * 2**depth})
    with pytest.raises(ValueError, match="not of the kind that was captured"):
        outer.set_node((*at, 0), source=torch.zeros(1 << 20).numpy())
