"""`Graph.set_node` on CUDA: arguments of kernels, addresses of copies, and what is refused."""

import ctypes
import struct
import threading
from decimal import Decimal
from fractions import Fraction

import pytest

from lanes import require

pytestmark = require("cuda")

from cuda.bindings import driver

import accelerator_graph as ag
from backends.cuda.bench import Block, call, current, kernels, new_context


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_byte), ("b", ctypes.c_double))


@pytest.fixture
def stream():
    with ag.Stream(0, backend="cuda") as stream:
        yield stream


@pytest.fixture
def blocks():
    made = [Block() for _ in range(3)]
    yield made
    for each in made:
        each.free()


class Scene:
    """A graph of a fill, a copy and the kernel `store`."""

    def __init__(self, stream, blocks, kernel):
        self.stream, (self.first, self.second, self.third) = stream, blocks
        self.graph = ag.Graph(keep_graph=True, stream=stream)
        with self.graph:
            stream.fill(self.first, 1, 64)
            stream.copy(self.second, self.first, 64)
            given = ctypes.c_int(4), ctypes.c_float(1), Pair(1, 2.0)
            stream.launch(kernel, self.third, *given, grid=1, block=4)
        self.graph.instantiate()

    def run(self):
        for each in (self.first, self.second, self.third):
            self.stream.fill(each, 0, 1024)
        self.graph.replay()
        self.stream.synchronize()
        return self.first.read()[0], self.second.read()[0], self.third.doubles()[:4]


@pytest.fixture(params=["store", "kernel"])
def scene(stream, blocks, request):
    with kernels() as found:
        scene = Scene(stream, blocks, getattr(found, request.param))
        yield scene
        scene.graph.reset()


def test_a_description_says_what_can_be_changed(scene):
    fill, copy, kernel = scene.graph.describe().nodes
    assert fill.settable == ("target", "value")
    assert copy.settable == ("source", "target", "enabled")
    assert kernel.settable == ("arguments", "enabled")
    assert kernel.arguments == (8, 4, 4, 16)
    assert kernel.values is None


@pytest.mark.promise("float-argument-is-refused")
def test_arguments_of_a_kernel(scene):
    graph = scene.graph
    assert scene.run() == (1, 1, [3, 4, 5, 6])
    graph.set_node(2, arguments={2: ctypes.c_float(2), 3: Pair(0, 0.5)})
    assert scene.run()[2] == [0.5, 2.5, 4.5, 6.5]
    whole = [scene.third, 2, ctypes.c_float(3), Pair(1, 1.0)]
    graph.set_node(2, arguments=whole)
    assert scene.run()[2] == [2, 5, 0, 0]
    graph.set_node(2, arguments={0: scene.first.pointer + 512, 1: -1})
    assert scene.run()[2] == [0] * 4
    graph.set_node(2, arguments={0: driver.CUdeviceptr(scene.second.pointer + 512), 1: 4})
    assert scene.run()[2] == [0] * 4
    assert scene.second.doubles()[64:68] == [2, 5, 8, 11]
    node = graph.describe().nodes[2]
    assert node.changed == ("arguments",)
    assert node.values[0] == struct.pack("Q", scene.second.pointer + 512).hex()
    assert ag.GraphDescription.from_json(graph.describe().to_json()) == graph.describe()


def test_copies_and_kernels_are_left_out_and_put_back(scene):
    scene.graph.set_nodes({number: {"enabled": False} for number in (1, 2)})
    assert scene.run() == (1, 0, [0] * 4)
    scene.graph.set_nodes({number: {"enabled": True} for number in (1, 2)})
    assert scene.run() == (1, 1, [3, 4, 5, 6])


def test_addresses_and_values(scene):
    scene.graph.set_nodes({0: {"value": 7, "target": scene.second}, 1: {"source": scene.second}})
    scene.graph.set_node(1, target=scene.first.pointer)
    assert scene.run()[:2] == (7, 7)


class OnTheHost:
    """A tensor of one element."""

    dtype, shape = "int32", (1,)

    def __int__(self):
        return 1


class Device:
    __cuda_array_interface__ = {"data": (-1, False)}  # noqa: RUF012


WRONG = [
    (2, {"arguments": [1, 2, 3]}, ValueError, "takes 4 arguments, not 3"),
    (2, {"arguments": {4: 1}}, ValueError, r"the positions of its arguments are 0 to 3, not \[4\]"),
    (2, {"arguments": {}}, ValueError, "the positions of its arguments are 0 to 3"),
    (2, {"arguments": 1}, TypeError, "must be a sequence of all, or a dict by position, not 1"),
    (2, {"arguments": {1: ctypes.c_double(1)}}, ValueError, "argument 1 has 4 bytes, and .* has 8"),
    (2, {"arguments": {1: 1 << 32}}, ValueError, "argument 1 has 4 bytes, and 4294967296 does not fit"),
    (2, {"arguments": {1: -(1 << 31) - 1}}, ValueError, "argument 1 has 4 bytes, and .* does not fit"),
    (
        2,
        {"arguments": {2: 1.5}},
        TypeError,
        r"argument 2 can't be a 'float' object; .*\.c_float\(1.5\)",
    ),
    (2, {"arguments": {2: "1"}}, TypeError, "argument 2 can't be a 'str' object"),
    (2, {"arguments": {2: Decimal("1.5")}}, TypeError, "argument 2 can't be a 'Decimal' object"),
    (2, {"arguments": {1: Fraction(3, 2)}}, TypeError, "argument 1 can't be a 'Fraction' object"),
    (2, {"arguments": {1: OnTheHost()}}, TypeError, "argument 1 is an array in host memory"),
    (2, {"arguments": {0: Device()}}, TypeError, "argument 0 has a __cuda_array_interface__ without an addr"),
    (2, {"arguments": {True: 1}}, TypeError, "a position must be an int, not True"),
    (0, {"enabled": False}, ValueError, "node 0 has no enabled that can be changed; of this node, target, v"),
    (2, {"value": 1}, ValueError, r"node 2 has no value that can be changed"),
    (0, {"value": 256}, ValueError, "elements of 1 bytes, and 256 does not fit"),
    (1, {"source": bytearray(64)}, ValueError, "not of the kind that was captured"),
    (1, {"target": 0}, ValueError, "0x0 is not the address of memory"),
]


@pytest.mark.promise("bad-nodes-are-refused-first")
@pytest.mark.parametrize(("node", "change", "kind", "match"), WRONG)
def test_bad_input_is_refused_before_anything_is_touched(scene, node, change, kind, match):
    with pytest.raises(kind, match=match):
        scene.graph.set_nodes({2 if node == 1 else 1: {"enabled": False}} | {node: change})
    assert scene.run() == (1, 1, [3, 4, 5, 6])
    assert all(not each.changed for each in scene.graph.describe().nodes)


def test_memory_of_another_context_is_refused(scene):
    with current():
        context = new_context()
        try:
            theirs = Block(context=context)
            with pytest.raises(ValueError, match="belongs to another context"):
                scene.graph.set_node(1, source=theirs)
            theirs.free()
        finally:
            call(driver.cuCtxDestroy, context)
    assert scene.run() == (1, 1, [3, 4, 5, 6])


def test_fills_of_several_rows_can_not_be_changed(stream, blocks):
    first = blocks[0]
    graph = ag.Graph(keep_graph=True, stream=stream)
    with graph, current():
        call(driver.cuMemsetD2D8Async, first.pointer, 16, 3, 4, 2, int(stream.handle))
    graph.instantiate()
    (fill,) = graph.describe().nodes
    assert fill.settable == ()
    with pytest.raises(ValueError, match="node 0 can't be changed"):
        graph.set_node(0, enabled=False)


@pytest.mark.promise("no-run-sees-some-changes")
def test_what_is_bound_in_c_never_runs_half_of_the_changes(scene, stream):
    """Threads launch through the driver's function while nodes are changed."""
    launch, over, errors = scene.graph.bind(), threading.Event(), []

    def run():
        try:
            while not over.is_set():
                launch()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for each in threads:
        each.start()
    for value in range(200):
        odd = bool(value % 2)
        scene.graph.set_nodes({0: {"value": value}, 1: {"enabled": odd}, 2: {"arguments": {1: 4}}})
    over.set()
    for each in threads:
        each.join()
    stream.synchronize()
    assert not errors
    assert scene.run() == (199, 199, [3, 4, 5, 6])


def test_nodes_are_set_by_functions_in_c(scene):
    runner, backend = scene.graph._runner, scene.stream._backend
    made = runner.captured.value, runner.executable.value
    fill, copy, kernel = (backend.node_setter(*made, number) for number in range(3))
    for setter, place, address in [
        (fill, (0, 0), scene.second.pointer),
        (copy, (1, 0), scene.second.pointer),
        (copy, (0, 0), scene.third.pointer),
        (kernel, (0, 0), scene.third.pointer + 512),
    ]:
        ctypes.c_uint64.from_address(setter.address_of(*place)).value = address
    for setter in (fill, copy, kernel):
        found = setter.function
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p,) * len(found.arguments))
        now = ctypes.c_void_p()
        with current(driver.CUcontext(found.guard.context)):
            asked = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(found.guard.address)
            assert asked(ctypes.addressof(now)) == 0
            assert prototype(found.address)(*found.arguments) == 0
        assert now.value == found.guard.context
    assert scene.run() == (0, 1, [*struct.unpack("d", b"\x01" * 8)] * 4)
    assert scene.third.doubles()[64:68] == [3, 4, 5, 6]


def test_a_driver_that_refuses_changes_nothing(scene, monkeypatch):
    api = scene.stream._backend.driver.api
    invalid = api.CUresult.CUDA_ERROR_INVALID_VALUE
    monkeypatch.setattr(api, "cuGraphExecKernelNodeSetParams", lambda *_: (invalid,))
    with pytest.raises(ag.DriverError, match="cuGraphExecKernelNodeSetParams"):
        scene.graph.set_nodes({0: {"value": 7}, 1: {"enabled": False}, 2: {"arguments": {1: 2}}})
    assert scene.run() == (1, 1, [3, 4, 5, 6])
    assert scene.graph.state == "ready"


def test_an_error_of_a_launch_that_somebody_keeps_is_no_launch(scene, monkeypatch):
    api = scene.stream._backend.driver.api
    kept = []
    with monkeypatch.context() as patch:
        patch.setattr(api, "cuGraphLaunch", lambda *_: (api.CUresult.CUDA_ERROR_INVALID_VALUE,))
        with ag.Stream(0, backend="cuda") as other:
            try:
                scene.graph.replay(other)
            except ag.DriverError as error:
                kept.append(error)
    assert kept
    scene.graph.set_node(0, value=2)
    assert scene.run() == (2, 2, [3, 4, 5, 6])


def test_a_driver_that_does_not_tell_arguments(scene, monkeypatch):
    api = scene.stream._backend.driver.api

    def missing(*_):
        raise RuntimeError('Function "cuFuncGetParamInfo" not found')

    for name in ("cuFuncGetParamInfo", "cuKernelGetParamInfo"):
        monkeypatch.setattr(api, name, missing)
    kernel = scene.graph.describe().nodes[2]
    assert (kernel.arguments, kernel.settable) == (None, ("enabled",))
    scene.graph.set_node(2, enabled=False)
    assert scene.run() == (1, 1, [0] * 4)
    scene.graph.set_node(2, enabled=True)
    assert scene.run() == (1, 1, [3, 4, 5, 6])
