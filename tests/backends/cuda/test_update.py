"""Updates of executables: which are made in place, and what the others say."""

import ctypes
import struct
import threading
from functools import partial

import pytest

from lanes import require

pytestmark = require("cuda")

from cuda.bindings import driver

import accelerator_graph as ag
from accelerator_graph.backends import registry
from accelerator_graph.backends._cuda import raw_calls, update
from accelerator_graph.backends._shared.nodes import Shape, difference
from accelerator_graph.backends.base import Misfit
from accelerator_graph.backends.cuda import CudaBackend
from accelerator_graph.testing.works.cuda import CudaWork
from backends.cuda.bench import call, kernels
from threads import in_thread

CLUSTER = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


@pytest.fixture
def stream():
    with ag.Stream(backend="cuda") as stream:
        yield stream
    stream.synchronize()


@pytest.fixture
def work():
    return CudaWork()


@pytest.fixture
def cell(work):
    return work.new()


@pytest.fixture
def adding(stream, work, cell):
    def adding(*numbers, **how):
        with ag.Graph(keep_graph=True, stream=stream, **how) as graph:
            for number in numbers:
                work.enqueue(stream, cell, 1, number)
        return graph

    return adding


def reason(graph, record):
    with graph.recapture() as again:
        record()
    return again.update.in_place or str(again.update).removeprefix("A new executable was made: ")


def nodes(graph):
    return call(driver.cuGraphGetNodes, graph.raw_graph(), graph.num_nodes)[0]


def test_kernels_get_other_parameters(stream, work, cell, adding):
    graph, other = adding(1, 2), adding(10, 20)
    bound = graph.bind()
    executable = graph.raw_executable()
    assert graph.update(other).in_place
    assert graph.raw_executable() == executable
    bound()
    stream.synchronize()
    assert work.read(cell) == 30


def test_another_kernel_is_never_updated_in_place(stream, adding):
    with kernels() as found:
        graph, memory = adding(1), ctypes.c_uint64(CudaWork().buffer(64).address)
        graph.instantiate()
        says = reason(graph, lambda: stream.launch(found.geometry, memory, grid=1, block=1))
        assert says == "at node 0, the kernel is a different one."
        arguments = memory, ctypes.c_int(0), ctypes.c_float(1), (ctypes.c_byte * 16)()
        for kernel in (found.store, found.kernel):
            said = []
            for grid in (1, 2):
                record = partial(stream.launch, kernel, *arguments, grid=grid, block=1)
                said.append(reason(graph, record))
            assert said == ["at node 0, the kernel is a different one.", True]
        record = partial(stream.launch, found.other_kernel, memory, grid=1, block=1)
        assert reason(graph, record) == "at node 0, the kernel is a different one."
        graph.reset()


def give_cluster(node):
    value = driver.CUkernelNodeAttrValue()
    value.clusterDim.x = value.clusterDim.y = value.clusterDim.z = 1
    call(driver.cuGraphKernelNodeSetAttribute, node, CLUSTER, value)


@pytest.mark.parametrize("which", ["the former", "the new"])
def test_clusters_are_never_updated_in_place(adding, which):
    graph, other = adding(1, 2), adding(3, 4)
    graph.instantiate()
    give_cluster(nodes(graph if which == "the former" else other)[1])
    done = graph.update(other)
    assert done == (False, "the driver does not update the clusters of a kernel reliably", 1)


def test_clusters_that_the_driver_can_not_read(adding, monkeypatch):
    graph, other = adding(1), adding(2)
    graph.instantiate()
    graph.update(adding(3))
    refuse = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p,) * 3)(lambda *_: 1)
    own, address = registry.get("cuda").driver, ctypes.cast(refuse, ctypes.c_void_p).value
    monkeypatch.setattr(own, "calls", own.calls._replace(attribute=address))
    done = graph.update(other)
    assert (done.in_place, done.node) == (False, 0)
    assert "clusters" in done.reason


class AttributesOfKernels:
    """A driver that knows for how wide clusters kernels were compiled, and nothing else."""

    class api:  # as in cuda-python
        CUfunction_attribute = driver.CUfunction_attribute

    success = driver.CUresult.CUDA_SUCCESS

    def __init__(self, code, width):
        self.told, self.asked = (code, width), []

    def call(self, function):
        return {"cuCtxGetDevice": 7}[function]

    def answer(self, function, *args):
        self.asked.append((function, *args))
        return self.told


WIDTH = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH


@pytest.mark.parametrize("is_kernel", [False, True])
@pytest.mark.parametrize(
    ("code", "width", "expected"),
    [
        (driver.CUresult.CUDA_SUCCESS, 0, False),
        (driver.CUresult.CUDA_SUCCESS, 1, True),
        (driver.CUresult.CUDA_SUCCESS, 8, True),
        (driver.CUresult.CUDA_ERROR_INVALID_VALUE, 0, True),
        (driver.CUresult.CUDA_ERROR_INVALID_VALUE, 2, True),
    ],
)
def test_a_kernel_was_made_for_clusters_or_the_driver_can_not_tell(is_kernel, code, width, expected):
    own = AttributesOfKernels(code, width)
    assert update._made_for_clusters(own, 5, is_kernel) is expected
    assert own.asked == [
        ("cuKernelGetAttribute", WIDTH, 5, 7) if is_kernel else ("cuFuncGetAttribute", WIDTH, 5)
    ]


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ([], None),
        ([(0, 0, 0)], None),
        ([(0, 0, 0), (1, 0, 0)], 1),
        ([(0, 0, 0), (0, 2, 0), (2, 1, 1)], 1),
        ([(0, 0, 3)], 0),
        ([(0, 0, 0), (0, 0, 0), (0, 0, 1)], 2),
    ],
)
def test_the_first_node_with_a_cluster(sides, expected):
    rows = (struct.pack("<QQ4I", 2**64 - 1, 2**64 - 1, *each, 2**32 - 1) for each in sides)
    assert update._clustered(b"".join(rows)) == expected


@pytest.mark.parametrize(
    ("kinds", "clustered", "expected"),
    [
        (["kernel", "memcpy", "memset", "host", "empty", "wait_event", "event_record"], None, None),
        (["kernel", "mem_alloc"], None, ("a mem_alloc node is not updated in place", 1)),
        (["kernel", "ext_semas_signal"], None, ("a ext_semas_signal node is not updated in place", 1)),
        (["batch_mem_op", "mem_free"], 0, ("a batch_mem_op node is not updated in place", 0)),
        (["kernel", "kernel"], 1, (update._NO_CLUSTERS, 1)),
    ],
)
def test_graphs_that_never_update_an_executable(kinds, clustered, expected):
    assert update._misfit(kinds, [], clustered) == (expected and Misfit(*expected))


def test_the_child_that_never_updates_an_executable_is_named():
    children = [Shape(["kernel"], [1], [], [], misfit) for misfit in (None, Misfit("a misfit", 0))]
    kinds = ["graph", "kernel", "graph"]
    assert update._misfit(kinds, children, None) == Misfit("a misfit", 2)


def test_of_two_graphs_that_never_update_the_new_one_is_named():
    def made(misfit):
        return Shape(["kernel"], [1], [], [], misfit)

    old, new = Misfit("the former", 0), Misfit("the new one", 0)
    assert difference(made(old), made(new)) == new
    assert difference(made(old), made(None)) == old
    assert difference(made(None), made(None)) is None


def test_a_kernel_that_was_made_for_clusters(adding, monkeypatch):
    graph, other = adding(1), adding(2)
    graph.instantiate()
    monkeypatch.setattr(update, "_made_for_clusters", lambda driver, handle, is_kernel: True)
    assert "clusters" in graph.update(other).reason


def test_a_fill_of_another_shape(stream, work, adding):
    """The driver refuses that, and says why; cuda-python would drop the reason."""
    memory = work.buffer(64).address

    def fill(width):
        call(driver.cuMemsetD2D8Async, memory, 16, 7, width, 2, stream.native)

    graph = adding(1)
    reason(graph, lambda: fill(8))
    says = reason(graph, lambda: fill(4))
    assert says == (
        "at node 0, the driver does not update it (CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED)."
    )
    assert reason(graph, lambda: fill(4)) is True


def test_a_refusal_without_a_new_executable(stream, work, cell, adding, monkeypatch):
    """Since 910 has changed nothing, the graph goes on."""
    memory = work.buffer(64).address

    def fill(width):
        work.enqueue(stream, cell, 1, 1)
        call(driver.cuMemsetD2D8Async, memory, 16, 7, width, 2, stream.native)

    graph = adding(1)
    reason(graph, lambda: fill(8))
    bound = graph.bind()

    def refuse(self, graph):
        raise MemoryError

    monkeypatch.setattr(CudaBackend, "instantiate", refuse)
    with pytest.raises(MemoryError):
        reason(graph, lambda: fill(4))
    monkeypatch.undo()
    bound()
    stream.synchronize()
    assert work.read(cell) == 1
    assert graph.state == "ready"
    assert reason(graph, lambda: fill(8)) is True


def test_other_kinds_numbers_and_dependencies(stream, work, cell, adding):
    memory, fork = work.buffer(64), ag.Stream(backend="cuda")

    def side_by_side():
        fork.wait(stream)
        stream.fill(memory, 1, 8)
        fork.fill(memory, 2, 8)
        stream.wait(fork)

    def in_turns(*values):
        for each in values:
            stream.fill(memory, each, 8)

    graph = adding(1)
    graph.instantiate()
    assert reason(graph, lambda: in_turns(1)) == "at node 0, a kernel node has become a memset node."
    assert reason(graph, lambda: in_turns(1, 2)) == "the graphs have 1 and 2 nodes."
    assert reason(graph, side_by_side) == "the dependencies differ."
    assert reason(graph, side_by_side) is True


def test_memory_nodes_are_never_updated_in_place(stream, work):
    def allocate(nbytes):
        address = call(driver.cuMemAllocAsync, nbytes, stream.native)
        stream.fill(int(address), 1, 8)
        call(driver.cuMemFreeAsync, address, stream.native)

    with ag.Graph(keep_graph=True, stream=stream) as graph:
        allocate(64)
    graph.replay()
    assert reason(graph, lambda: allocate(64)) == "at node 0, a mem_alloc node is not updated in place."
    with ag.Graph(keep_graph=True, stream=stream) as other:
        stream.fill(work.buffer(8), 1, 8)
    for refused in (lambda: other.update(graph), graph.clone):
        with pytest.raises(ag.UnsupportedError, match="allocates or frees memory"):
            refused()
    graph.replay()
    stream.synchronize()


def test_graphs_inside(stream, work, cell, adding):
    """Their nodes are compared as well."""

    def parent(*children):
        with ag.Graph(keep_graph=True, stream=stream) as graph:
            stream.fill(work.buffer(8), 1, 8)
        for child in children:
            call(driver.cuGraphAddChildGraphNode, graph.raw_graph(), [], 0, child.raw_graph())
        return graph

    graph = parent(adding(1))
    graph.instantiate()
    assert graph.update(parent(adding(10))).in_place
    assert graph.update(parent(adding(10, 20))) == (False, "the child graph differs", 1)
    graph.replay()
    stream.synchronize()
    assert work.read(cell) == 30
    clustered = adding(3, 4)
    give_cluster(nodes(clustered)[0])
    done = graph.update(parent(clustered))
    assert done == (False, "the driver does not update the clusters of a kernel reliably", 1)


def test_an_executable_is_compared_by_what_it_does(adding):
    """Its graph may have been changed since then, and have updated another executable."""

    def with_a_child(graph):
        call(driver.cuGraphAddChildGraphNode, graph.raw_graph(), [], 0, adding(3).raw_graph())
        return graph

    graph, other, second = adding(1), adding(2), with_a_child(adding(4))
    graph.instantiate()
    second.instantiate()
    assert graph.update(other).in_place
    assert second.update(with_a_child(other)).in_place
    assert graph.update(with_a_child(adding(5))) == (False, "the graphs have 1 and 2 nodes", None)


@pytest.mark.parametrize("clustered", [False, True])
def test_the_node_is_named_among_others(stream, work, cell, clustered):
    """Kernels are read apart from the rest."""
    memory = work.buffer(8)

    def captured(*grids):
        with ag.Graph(keep_graph=True, stream=stream) as graph:
            for grid in grids:
                stream.fill(memory, 1, 8)
                stream.launch(found.geometry if grid else found.store, *arguments, grid=1, block=1)
        return graph

    with kernels() as found:
        arguments = ctypes.c_uint64(work.buffer(64).address), ctypes.c_int(0), ctypes.c_float(1)
        arguments = *arguments, (ctypes.c_byte * 16)()
        graph, same, other = captured(0, 0, 0), captured(0, 0, 0), captured(0, 0, 1)
        graph.instantiate()
        assert graph.update(same).in_place
        if clustered:
            give_cluster(nodes(same)[3])
            done = graph.update(same)
            assert (done.node, "clusters" in done.reason) == (3, True)
        else:
            assert graph.update(other) == (False, "the kernel is a different one", 5)
        for each in (graph, same, other):
            each.reset()


def test_the_same_kernels_in_another_order(stream, work, adding):
    """As many of each kind, with the same dependencies."""
    memory = work.buffer(8)

    def captured(*first):
        with ag.Graph(keep_graph=True, stream=stream) as graph:
            for each in first:
                if each == "kernel":
                    work.enqueue(stream, cell, 1, 1)
                else:
                    stream.fill(memory, 1, 8)
        return graph

    cell = work.new()
    graph = captured("kernel", "fill")
    graph.instantiate()
    assert graph.update(captured("kernel", "fill")).in_place
    done = graph.update(captured("fill", "kernel"))
    assert done == (False, "a kernel node has become a memset node", 0)


def test_the_update_of_a_driver_that_can_not_say_why(adding, monkeypatch):
    graph = adding(1)
    graph.instantiate()
    own = registry.get("cuda").driver
    monkeypatch.setattr(own, "edges_address", 0)
    assert graph.update(adding(2)).reason == "backend 'cuda' does not update executables"
    with pytest.raises(ag.UnsupportedError) as refused:
        registry.get("cuda").update(None, None, None)
    assert refused.value.capability == "update"


def test_threads_replay_while_a_graph_is_updated_in_place(stream, work, cell, adding):
    graph, others = adding(1), [adding(1 << 16), adding(1)]
    graph.instantiate()
    bound, runs, done = [graph.bind() for _ in range(3)], 300, []

    def replay(launch):
        for _ in range(runs):
            launch()

    threads = [threading.Thread(target=replay, args=(each,)) for each in bound]
    for each in threads:
        each.start()
    number = 0
    while any(each.is_alive() for each in threads):
        done.append(graph.update(others[number % 2]))
        number += 1
    for each in threads:
        each.join()
    stream.synchronize()
    found = work.read(cell)
    assert (found & 0xFFFF) + (found >> 16) == runs * len(bound)
    assert all(each.in_place for each in done)


def test_an_update_on_a_thread_without_a_context(stream, work, cell, adding):
    graph, other = adding(1), adding(10)
    graph.instantiate()
    assert in_thread(lambda: graph.update(other)) == ag.GraphUpdate(True)


def test_an_update_during_a_capture(stream, work, cell, adding):
    graph, other = adding(1), adding(10)
    graph.instantiate()
    with ag.Stream(backend="cuda") as elsewhere, ag.Graph(capture_error_mode="global") as capturing:
        work.enqueue(elsewhere, cell, 1, 100)
        assert graph.update(other).in_place
        work.enqueue(elsewhere, cell, 1, 100)
    capturing.replay()
    elsewhere.synchronize()
    graph.replay()
    stream.synchronize()
    assert work.read(cell) == 210


@pytest.mark.parametrize(
    ("result", "place", "name", "number"),
    [
        (2, 7, "CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED", 0),
        (2, 9, "CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED", 1),
        (1, None, "CU_GRAPH_EXEC_UPDATE_ERROR", None),
        (1, 8, "CU_GRAPH_EXEC_UPDATE_ERROR", None),
        (999, 9, "result 999", 1),
    ],
)
def test_a_refusal_names_the_node_of_the_new_graph(result, place, name, number):
    own = AttributesOfKernels(0, 0)
    own.api = driver
    found = update._refusal(own, update._Result(result, place, 7), [7, 9])
    assert found == Misfit(f"the driver does not update it ({name})", number)


def patched(monkeypatch, function, arguments, answer):
    """Let a function of the driver that is called without the binding answer this."""
    own = registry.get("cuda").driver
    made = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p,) * arguments)(answer)
    address = ctypes.cast(made, ctypes.c_void_p).value
    monkeypatch.setattr(own, "calls", raw_calls.calls_of(own)._replace(**{function: address}))
    return made


def test_the_first_kernel_whose_cluster_can_not_be_read_is_named(adding, monkeypatch):
    graph, other = adding(1, 2, 3), adding(4, 5, 6)
    graph.instantiate()
    assert graph.update(adding(7, 8, 9)).in_place
    asked = []
    keeps = patched(monkeypatch, "attribute", 3, lambda *args: asked.append(args[0]) or len(asked) == 2)
    done = graph.update(other)
    assert (done.in_place, done.node) == (False, 1)
    assert asked == [int(each) for each in nodes(other)[:2]]
    assert keeps


def test_an_error_of_reading_kernels_is_raised(adding, monkeypatch):
    graph, own = adding(1), registry.get("cuda").driver
    keeps = patched(monkeypatch, "kernel", 2, lambda *_: 999)
    with pytest.raises(ag.DriverError, match="cuGraphKernelNodeGetParams"):
        update.shape_of(own, own.calls, graph.raw_graph())
    assert keeps


def test_an_update_that_fails_is_not_taken_for_made(stream, work, cell, adding, monkeypatch):
    graph, other = adding(1), adding(2)
    graph.instantiate()
    runner, own = graph._runner, registry.get("cuda").driver
    executable, former, new = runner.executable.value, runner.captured.value, other._runner.captured.value
    before = executable.shape
    monkeypatch.setattr(own, "calls", raw_calls.calls_of(own)._replace(update=lambda *_: 999))
    with pytest.raises(ag.DriverError, match="cuGraphExecUpdate"):
        update.update(own, executable, former, new)
    assert executable.shape is before
    monkeypatch.undo()
    assert update.update(own, executable, former, new) is None
    assert executable.shape is not before


def test_each_function_is_asked_once_whether_it_was_made_for_clusters(stream, work, monkeypatch):
    memory = ctypes.c_uint64(work.buffer(64).address)
    arguments = memory, ctypes.c_int(0), ctypes.c_float(1), (ctypes.c_byte * 16)()
    asked, made = [], []

    def answer(own, handle, is_kernel):
        asked.append((handle, is_kernel))
        return handle in made

    monkeypatch.setattr(update, "_made_for_clusters", answer)
    own = registry.get("cuda").driver
    with kernels() as found:
        with ag.Graph(keep_graph=True, stream=stream) as graph:
            stream.fill(memory.value, 1, 8)
            for each in (found.store, found.kernel, found.store, found.geometry, found.other_kernel):
                given = arguments if each in (found.store, found.kernel) else (memory,)
                stream.launch(each, *given, grid=1, block=1)
        nodes = call(driver.cuGraphGetNodes, graph.raw_graph(), 6)[0][1:]
        parameters = [call(driver.cuGraphKernelNodeGetParams, each) for each in nodes]
        # a driver may say that a kernel of a library is a function
        told = [(int(each.func), False) if int(each.func) else (int(each.kern), True) for each in parameters]
        store, kernel, _, geometry, other_kernel = told
        assert store == (int(found.store), False)
        assert geometry == (int(found.geometry), False)
        assert len({*told}) == 4
        for made[:], misfit in (
            ([], None),
            ([geometry[0], kernel[0]], Misfit(update._NO_CLUSTERS, 2)),
            ([other_kernel[0]], Misfit(update._NO_CLUSTERS, 5)),
        ):
            asked.clear()
            shape = update.shape_of(own, raw_calls.calls_of(own), graph.raw_graph())
            assert (shape.misfit, shape.kinds) == (misfit, ["memset", *["kernel"] * 5])
            assert sorted(asked) == sorted({*told})
        graph.reset()


def test_kinds_and_memory_are_told_whatever_comes_first(stream, work, cell):
    memory = work.buffer(8)
    parts = {
        "kernel": lambda: work.enqueue(stream, cell, 1, 1),
        "memset": lambda: stream.fill(memory, 1, 8),
        "mem_alloc": lambda: found.append(call(driver.cuMemAllocAsync, 64, stream.native)),
        "mem_free": lambda: call(driver.cuMemFreeAsync, found[-1], stream.native),
    }
    found, own = [], registry.get("cuda").driver
    for kinds in (
        ["kernel", "memset", "mem_alloc", "mem_free"],
        ["mem_alloc", "kernel", "mem_free"],
        ["memset", "kernel"],
        ["kernel", "kernel", "memset"],
        ["kernel", "kernel"],
    ):
        with ag.Graph(keep_graph=True, stream=stream) as graph:
            for kind in kinds:
                parts[kind]()
        calls, raw = raw_calls.calls_of(own), graph.raw_graph()
        assert update.kinds_of(own, calls, update.handles_of(own, calls, raw)) == kinds
        graph.reset()
