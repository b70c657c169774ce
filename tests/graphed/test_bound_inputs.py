"""`graphed(inputs="bind")`: no copies, wherever the arguments of the kernels are known and proven."""

import contextlib
import os
import random
import struct
import sys
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._arrays.arrays import ALIGNMENT, array_type_of, elsewhere
from accelerator_graph._arrays.placement import extent
from accelerator_graph._graphed.binding import bound_inputs, captures
from accelerator_graph._graphed.input_nodes import Memory
from accelerator_graph._graphed.static_inputs import StaticInputs
from accelerator_graph.backends.base import GraphNode, NodeParameters, ReadsGraphs, word
from accelerator_graph.interop import registry as interop
from graphed import bound_device, fakes
from graphed.bound_device import Tensor, aligned, empty_like, launch, tensor
from threads import in_threads


@pytest.fixture(autouse=True)
def device(monkeypatch):
    backend = fakes.opened(monkeypatch, bound_device.PatchableDevice)
    bound_device.install(monkeypatch)
    yield backend
    backend.synchronize(fakes.streams[0])
    assert fakes.current.handle == 0
    bound_device.free_all()
    bound_device.PatchableDevice.refused = ()
    fakes.modes.update(grad=False, inference=False, autocast=False, dtype="half")
    interop.unregister("fakeframe")
    ag.backends.unregister("fakedevice")


def copies():
    """How many arrays were copied since this was asked last."""
    count = len([each for each in fakes.calls if each[0] in ("copy", "all")])
    fakes.calls.clear()
    return count


def bound(function, **options):
    return ag.graphed(function, warmup=0, inputs="bind", **{"outputs": "static", **options})


def is_bound(f):
    return [(each.inputs, each.why) for each in f.explain()] == [("bind", "")]


def test_nothing_is_copied():
    f = bound(lambda x, y: x + y)
    f(tensor(1, 2), tensor(10, 20))
    assert is_bound(f)
    assert f.explain()[0].arguments == ("x", "y")
    copies()
    for i in range(5):
        x, y = tensor(i, 2), tensor(10, 20 + i)
        assert f(x, y).tolist() == [10 + i, 22 + i]
    assert copies() == 0
    x.data[:] = 100
    assert f(x, y).tolist() == [110, 124]
    assert f.cache_info().captures == 1


def test_what_has_not_moved_is_not_patched(device):
    f = bound(lambda x, y: (x + y) * 2)
    x, y = tensor(1, 2), tensor(3, 4)
    f(x, y)
    kind = type(device)
    before = kind.changes
    f(x, y)
    assert kind.changes == before
    f(x, tensor(1, 1))
    assert kind.changes == before + 1  # one of the two kernels has the address


def test_a_result_is_copied_as_it_was_asked_for():
    f = bound(lambda x: x * 3, outputs="copy")
    results = [f(tensor(i, i)) for i in range(4)]
    assert [each.tolist() for each in results] == [[3 * i] * 2 for i in range(4)]
    assert is_bound(f)


def test_structures_between_noise():
    def function(x, y):
        new = empty_like(x)
        noise = bound_device.noise
        block = struct.pack(
            "<QQQQQI", next(noise), new.data_ptr(), next(noise), x.data_ptr(), y.data_ptr(), 2
        )
        launch("add_padded", bound_device.add_padded, block)
        return new

    f = bound(function)
    for i in range(3):
        assert f(tensor(i, 1), tensor(1, i)).tolist() == [i + 1, i + 1]
    assert is_bound(f)


@pytest.mark.parametrize("left", [(5, 5, 6, 7), (5, 5, 6, 6, 5, 8), (5, 5, 6, 6, 5, 5, 6, 6, 5, 7)])
def test_bytes_that_nobody_has_set_may_be_alike_in_some_captures(left):
    captures = []

    def function(x, y):
        captures.append(1)
        garbage = left[min(len(captures), len(left)) - 1]
        new = empty_like(x)
        block = struct.pack("<QQQQQI", garbage, new.data_ptr(), 0, x.data_ptr(), y.data_ptr(), 2)
        launch("add_padded", bound_device.add_padded, block)
        return new

    f = bound(function)
    for i in range(3):
        assert f(tensor(i, 1), tensor(1, i)).tolist() == [i + 1, i + 1]
    assert is_bound(f)


def test_an_argument_is_written_in_the_callers_array_once():
    @bound
    def f(x, y):
        x.add_(y)
        return x

    for i in range(3):
        x, y = tensor(i, i), tensor(1, 2)
        assert f(x, y) is x
        assert x.tolist() == [i + 1, i + 2]
        if i == 0:
            copies()
    assert copies() == 0
    assert is_bound(f)


def test_an_array_counts_what_a_replay_writes(monkeypatch):
    counted = []
    autograd = SimpleNamespace(graph=SimpleNamespace(increment_version=counted.append))
    monkeypatch.setattr(sys.modules["fakeframe"], "autograd", autograd, raising=False)
    f = bound(lambda x, y: x.add_(y))
    x, y = tensor(1, 2), tensor(3, 4)
    f(x, y)
    f(x, y)
    assert [id(each) for each in counted[-2:]] == [id(x), id(x)]
    assert not any(each is y for each in counted)


def test_a_write_that_nobody_counts_reaches_the_caller_either_way():
    def function(x, y):
        launch("add", bound_device.add, x.ptr, x.ptr, y.ptr, x.size)

    f = bound(function)
    for offset in (0, 0, 8, 64, 0):
        x, y = tensor(1, 1, offset=offset), tensor(1, 2)
        f(x, y)
        assert x.tolist() == [2, 3]
    assert is_bound(f)


@pytest.mark.parametrize("offset", [8, 16, 256, 504])
def test_arrays_with_another_alignment_are_copied(offset):
    f = bound(lambda x, y: x + y)
    f(tensor(1, 2), tensor(3, 4))
    copies()
    for i in range(3):
        assert f(tensor(i, 2, offset=offset), tensor(3, 4)).tolist() == [3 + i, 6]
    assert copies() == 3
    assert f(tensor(5, 2), tensor(3, 4)).tolist() == [8, 6]
    assert copies() == 0


def test_arguments_that_share_memory_are_copied():
    @bound
    def f(x, y):
        x.add_(y)
        return x + y

    f(Tensor(aligned(64)), Tensor(aligned(64)))
    memory = aligned(256)
    for start, count in ((0, 2), (64, 0), (0, 2), (128, 0)):
        memory[:] = range(256)
        x, y = Tensor(memory[:64]), Tensor(memory[start : start + 64])
        want = x.data + y.data
        copies()
        result = f(x, y)
        assert result.tolist() == [a + b for a, b in zip(want, range(start, start + 64), strict=True)]
        # as with copies, x is written, and y is what it was at the beginning of the call
        assert x.tolist() == want.tolist()
        assert copies() == (count + 1 if count else 0)
    assert is_bound(f)


def test_an_array_that_shares_memory_with_one_that_is_copied_for_its_alignment():
    """As with copies, both are written, and the results go back in the order of the arguments."""

    @bound
    def f(y, x):
        x.add_(x)
        y.add_(y + y)

    f(tensor(1, 1, 1), tensor(1, 1, 1))
    memory = aligned(64)
    for start in (1, 0, 2, 8):
        memory[:] = 1
        f(Tensor(memory[start : start + 3]), Tensor(memory[:3]))
        fakes.DEVICE[0].synchronize(fakes.streams[0])
        want = np.ones(64)
        want[start : start + 3] = 3
        want[:3] = 2
        assert memory.tolist() == want.tolist(), start
    assert is_bound(f)


def test_an_array_beside_another_one_in_a_larger_one():
    """The first array reaches over both others, so neither is used where it lies."""

    @bound
    def f(x, y, z):
        x.add_(x)
        y.add_(y)
        z.add_(z + z)

    f(*(Tensor(aligned(n)) for n in (192, 32, 32)))
    memory = aligned(192)
    for _ in range(2):
        memory[:] = 1
        f(Tensor(memory), Tensor(memory[64:96]), Tensor(memory[128:160]))
        fakes.DEVICE[0].synchronize(fakes.streams[0])
        assert memory.tolist() == [2] * 128 + [3] * 32 + [2] * 32
    assert is_bound(f)


RANGES = [(10, 20), (40, 50)]


@pytest.mark.parametrize(
    ("ranges", "inside", "outside"),
    [
        (
            RANGES,
            [(10, 1), (19, 1), (5, 6), (0, 100), (45, 100), (49, 1)],
            [(5, 5), (20, 20), (50, 9), (0, 10)],
        ),
        ([*RANGES, (12, 14)], [(15, 1), (19, 1)], [(20, 5)]),  # a part of a larger one
        ([(40, 42), (0, 100), (60, 61)], [(50, 1), (99, 5)], [(100, 5)]),
        ([(10, 20), (20, 30)], [(25, 1), (5, 100)], [(30, 1)]),  # one behind the other
        ([(10, 20), (15, 30)], [(25, 1)], [(30, 1)]),
        ([(10, 20), (15, 15), (12, 12)], [(16, 2)], [(20, 1)]),  # empty ones
        ([], [], [(0, 100)]),
        ([(5, 5)], [], [(0, 100)]),
    ],
)
def test_which_arrays_are_in_the_memory_of_a_graph(ranges, inside, outside):
    memory = Memory(ranges)
    assert [each for each in inside if not memory.has(*each)] == []
    assert [each for each in outside if memory.has(*each)] == []


def test_memory_that_nodes_allocate_is_the_graphs_own():
    f = bound(lambda x: x * 2)
    f(tensor(1, 2))
    (recorded,) = f._cache.graphs.values()
    nodes = [
        NodeParameters("mem_alloc", (word(0x1000),), 64),
        NodeParameters("mem_alloc", (word(0x2000),), None),  # of a size that is not known
        NodeParameters("kernel", (word(0x3000),), 64),
    ]
    own = set(captures._own_memory(recorded.graph, nodes))
    assert own - set(captures._own_memory(recorded.graph, [])) == {(0x1000, 0x1040)}


def test_one_array_given_twice():
    f = bound(lambda x, y: x + y)
    for i in range(3):
        x = tensor(i, 1)
        assert f(x, x).tolist() == [2 * i, 2]
        assert f(x, tensor(1, 1)).tolist() == [i + 1, 2]
    assert {each.inputs for each in f.explain()} == {"bind"}


def test_the_graphs_own_memory_as_an_argument():
    """The static result of a call is the argument of the next one: its memory is written in that run."""

    @bound
    def f(x):
        launch("reverse", reverse, (out := empty_like(x)).ptr, x.ptr, x.size)
        return out

    def reverse(out, x, n):
        n = bound_device.number(n)
        target, source = (bound_device.floats(bound_device.number(each), n) for each in (out, x))
        for i in range(n):
            target[i] = source[n - 1 - i]

    first = f(tensor(1, 2, 3))
    assert first.tolist() == [3, 2, 1]
    assert is_bound(f)
    assert f(first).tolist() == [1, 2, 3]
    assert f(first).tolist() == [3, 2, 1]


def test_a_view_of_an_argument_in_the_result():
    f = bound(lambda x, y: (x[1:], y * 2))
    for i in range(3):
        part, double = f(tensor(1, i, 3), tensor(i, i))
        assert (part.tolist(), double.tolist()) == ([i, 3], [2 * i, 2 * i])
    (explained,) = f.explain()
    assert explained.inputs == "bind"
    assert "x" in explained.why


def with_gaps(*values):
    data = aligned(2 * len(values))[::2]
    data[:] = values
    return Tensor(data)


def test_arrays_with_gaps_are_copied_beside_those_without():
    f = bound(lambda x, y: x + y)
    for i in range(3):
        x, y = tensor(i, 2, 3), with_gaps(i, 5, 6)
        copies()
        assert f(x, y).tolist() == [2 * i, 7, 9]
    assert copies() == 1
    ((inputs, why),) = [(each.inputs, each.why) for each in f.explain()]
    assert inputs == "bind"
    assert why.endswith("copied are: y")


class Pointed(np.ndarray):
    ptr = property(lambda self: self.ctypes.data)


class Grid(fakes.Grid):
    """An array like CuPy's that tells its address, with kernels whose parameters are known."""

    nbytes = property(lambda self: self.data.nbytes)

    def reshape(self, shape):
        return self

    def __add__(self, other):
        new = type(self)(aligned(self.data.shape).view(Pointed))
        words = [struct.pack("<Q", x.data.ptr) for x in (new, self, other)]
        work = bound_device.Launch("add", bound_device.add, (*words, struct.pack("<I", self.data.size)))
        fakes.Grids.enqueue(work)
        return new


Grid.__module__ = "gridframe"


@pytest.mark.parametrize("beside_a_tensor", [True, False])
def test_arrays_like_those_of_cupy_are_copied(monkeypatch, beside_a_tensor):
    fakes.install_grids(monkeypatch)
    interop.register("gridframe", fakes.Grids)
    package = sys.modules["gridframe"]
    package.empty_like = lambda x: Grid(aligned(x.data.shape).view(Pointed))
    package.ascontiguousarray = lambda x: x
    wanted = "bind" if beside_a_tensor else "node"

    def grid(*values):
        new = Grid(aligned(len(values)).view(Pointed))
        new.data[:] = values
        return new

    try:
        f = bound((lambda g, x: (g + g, x * 2)) if beside_a_tensor else (lambda g: (g + g,)))
        with contextlib.nullcontext() if beside_a_tensor else pytest.warns(RuntimeWarning, match="tensor"):
            f(*[grid(1, 2), tensor(3, 4)][: 1 + beside_a_tensor])
        for i in range(3):
            got = f(*[grid(i, 2), tensor(3, i)][: 1 + beside_a_tensor])
            fakes.DEVICE[0].synchronize(fakes.streams[0])
            want = [[2 * i, 4], [6, 2 * i]][: 1 + beside_a_tensor]
            assert [each.data.tolist() for each in got] == want
        (explained,) = f.explain()
    finally:
        interop.unregister("gridframe")
    assert explained.inputs == wanted
    assert explained.why.endswith("copied are: g") is beside_a_tensor
    assert "dense tensor" in explained.why


def test_calls_whose_writes_are_found_by_a_comparison_are_not_told_by_addresses(monkeypatch):
    """What repeats a call in C for arrays at the same addresses compares nothing."""
    fakes.install_grids(monkeypatch)
    interop.register("gridframe", fakes.Grids)
    package = sys.modules["gridframe"]
    package.empty_like = lambda x: Grid(aligned(x.data.shape).view(Pointed))
    package.ascontiguousarray = lambda x: x
    made = []
    init = StaticInputs.__init__
    monkeypatch.setattr(
        StaticInputs, "__init__", lambda self, *a, **k: made.append(self) or init(self, *a, **k)
    )
    try:
        f = ag.graphed(lambda g: g + g, warmup=0, inputs="node", outputs="static")
        f(Grid(aligned(2).view(Pointed)))
        fakes.DEVICE[0].synchronize(fakes.streams[0])
    finally:
        interop.unregister("gridframe")
    (inputs,) = made
    assert (inputs.in_graph, [*inputs.merged]) == (True, [0])
    assert inputs.addresses() is None


def test_an_array_that_shares_memory_with_one_that_is_copied():
    """Both are written, and the results go back in the order of the arguments, as with copies."""

    @bound
    def f(y, x):
        x.add_(y)
        y.written()
        launch("add_rows", add_rows, y.ptr, struct.pack("<I", y.stride()[0]), x.ptr, x.size)

    def add_rows(out, step, x, n):
        n, step = bound_device.number(n), bound_device.number(step)
        target = bound_device.floats(bound_device.number(out), n * step)[::step]
        target += bound_device.floats(bound_device.number(x), n)

    f(with_gaps(3, 4), tensor(1, 2))
    assert f.explain()[0].inputs == "bind"
    both = aligned(64)
    x = Tensor(both[:2])
    for start, want in ((8, [8, 11]), (1, [1, 4, 2, 7]), (8, [8, 11])):
        both[:] = range(64)
        f(Tensor(both[start : start + 4 : 2]), x)
        fakes.DEVICE[0].synchronize(fakes.streams[0])
        assert both[: len(want)].tolist() == want
        assert both[start + 2] == 2 * (start + 2) + 1


def test_arrays_whose_bytes_are_not_their_elements_are_copied(monkeypatch):
    monkeypatch.setattr(Tensor, "is_neg", lambda self: getattr(self, "negative", False))
    f = bound(lambda x, y: x + y)
    x, y = tensor(1, 2), tensor(3, 4)
    f(x, y), f(x, y)
    copies()
    x.negative = True
    f(x, y)
    assert copies() == 1
    x.negative = False
    f(x, y)
    assert copies() == 0
    assert is_bound(f)


def test_an_array_that_nodes_can_not_copy_is_copied_in_every_call(monkeypatch):
    monkeypatch.setattr(Tensor, "is_neg", lambda self: getattr(self, "negative", False))
    f = ag.graphed(lambda x, y: x + y, warmup=0, inputs="node", outputs="static")
    x, y = tensor(1, 2), tensor(3, 4)
    f(x, y)
    assert f.explain()[0].inputs == "node"
    x.negative = True
    for i in range(3):
        x.data[:] = i
        assert f(x, y).tolist() == [3 + i, 4 + i]
    x.negative = False
    assert f(x, y).tolist() == [5, 6]


@pytest.mark.promise("dropped-arrays-outlive-runs")
def test_a_framework_that_can_be_told_who_uses_an_array(monkeypatch):
    told = []
    streams = SimpleNamespace(current_stream=lambda device: ("current", device))
    monkeypatch.setattr(sys.modules["fakeframe"], "accelerator", streams, raising=False)
    monkeypatch.setattr(Tensor, "record_stream", lambda *each: told.append(each), raising=False)
    f = bound(lambda x, y: x + y)
    x, y = tensor(1, 2), tensor(3, 4)
    f(x, y)
    del told[:]
    f(x, y)
    assert [(id(one), stream[0]) for one, stream in told] == [(id(x), "current"), (id(y), "current")]


# ---- traps: it copies, and is never wrong --------------------------------------------------------------


def check(function, why, make=lambda i: (tensor(i, 2), tensor(10, i)), warns=True):
    """Whatever the trap is: results are those of eager runs, and there is a reason for the copies."""
    f = bound(function)
    want = ag.graphed(function, warmup=1 << 30)
    for i in range(1, 4):
        ours, theirs = make(i), make(i)
        if i == 1 and warns:
            with pytest.warns(RuntimeWarning, match="copies its inputs for arguments like these"):
                got = f(*ours)
        else:
            got = f(*ours)
        assert got.tolist() == want(*theirs).tolist()
        assert [each.tolist() for each in ours] == [each.tolist() for each in theirs]
    (explained,) = f.explain()
    assert explained.inputs == "node" if warns else "bind"
    assert why in explained.why
    assert f.cache_info().captures == 1


@pytest.mark.promise("bind-warns")
def test_an_address_in_a_packed_structure():
    def function(x, y):
        new = empty_like(x)
        block = struct.pack("<IQQQ", x.data.size, new.data_ptr(), x.data_ptr(), y.data_ptr())
        launch("add_packed", bound_device.add_packed, block)
        return new

    check(function, "node 0, a kernel (add_packed) has the address of an input in a packed structure")


@pytest.mark.promise("bind-warns")
@pytest.mark.parametrize("kept", [False, True], ids=["new", "kept"])
def test_a_table_of_addresses_in_memory(device, kept):
    tables = {}

    def function(x, y):
        new, table = empty_like(x), tables.get(0) or Tensor(aligned(2, "u8"))
        if kept:
            tables[0] = table
        held = np.array([x.data_ptr(), y.data_ptr()], "u8")
        fakes.enqueue_copy(table.data_ptr(), held)
        launch("add_from_table", bound_device.add_from_table, new.ptr, table.ptr, x.size)
        return new

    check(function, "a replay with its arrays elsewhere gives another result than an eager run")


def test_a_table_through_which_an_argument_is_written(device):
    def function(x, y):
        table, new = Tensor(aligned(2, "u8")), x + y
        held.append(np.array([x.data_ptr(), y.data_ptr()], "u8"))
        fakes.enqueue_copy(table.data_ptr(), held[-1])
        launch("clear_first", clear_first, table.ptr)
        return new

    def clear_first(table):
        bound_device.floats(int(bound_device.array_at(bound_device.number(table), 1, "u8")[0]), 2)[:] = 0

    held = []
    f = bound(function)
    with pytest.warns(RuntimeWarning, match="writes to the captured array of argument x"):
        f(tensor(1, 2), tensor(3, 4))
    assert f.explain()[0].inputs == "node"


def test_a_table_that_is_written_before():
    """Not by the graph: so every capture has written another one, at the same place."""
    table = Tensor(aligned(2, "u8"))

    def function(x, y):
        new = empty_like(x)
        table.data[:] = x.data_ptr(), y.data_ptr()
        launch("add_from_table", bound_device.add_from_table, new.ptr, table.ptr, x.size)
        return new

    f = bound(function)
    with pytest.warns(RuntimeWarning, match="copies its inputs"):
        f(tensor(1, 2), tensor(3, 4))
    assert f.explain()[0].inputs == "node"
    assert "another result" in f.explain()[0].why


def test_an_address_that_is_derived_on_the_host():
    base = Tensor(aligned(2))

    def function(x, y):
        new = empty_like(x)
        distance = struct.pack("<q", x.data_ptr() - base.data_ptr())
        launch("add_from_base", bound_device.add_from_base, new.ptr, base.ptr, distance, y.ptr, x.size)
        return new

    check(function, "has a parameter that is derived from the address of an input")


def test_a_distance_between_two_arguments():
    def function(x, y):
        new = empty_like(x)
        distance = struct.pack("<q", x.data_ptr() - y.data_ptr())
        launch("add_from_base", bound_device.add_from_base, new.ptr, y.ptr, distance, y.ptr, x.size)
        return new

    check(function, "has a parameter that is derived from the address of an input")


def test_an_address_that_is_kept_from_the_first_capture():
    kept = []

    def function(x, y):
        kept[:] = kept or [x.ptr]
        new = empty_like(x)
        launch("add", bound_device.add, new.ptr, kept[0], y.ptr, x.size)
        return new

    f = bound(function)
    with pytest.warns(RuntimeWarning, match="has an address in an input that does not follow the input"):
        f(tensor(1, 2), tensor(3, 4))
    assert f.explain()[0].inputs == "node"


@pytest.mark.promise("bind-warns")
def test_a_collective():
    def function(x, y):
        new = empty_like(x)
        launch("ncclDevKernel_AllReduce_Sum_f64", bound_device.add, new.ptr, x.ptr, y.ptr, x.size)
        return new

    check(function, "is a collective")


def test_a_collective_that_a_framework_has_reported(monkeypatch):
    monkeypatch.setattr(ag.Graph, "collectives", ("all_reduce",))
    check(lambda x, y: x + y, "asks for a collective")


def test_a_function_of_the_host():
    def function(x, y):
        new = x + y
        fakes.enqueue(np.multiply, new.data, y.data, new.data)
        return new

    check(function, "is a function of the host")


def test_a_kernel_that_is_another_one_elsewhere():
    turn = []

    def function(x, y):
        turn.append(1)
        new = empty_like(x)
        launch("add", bound_device.add, new.ptr, x.ptr, y.ptr, x.size, rest=len(turn) % 2)
        return new

    check(function, "is a different one in every capture")


def test_nothing_but_zeros_in_an_integer_argument():
    def function(x, index):
        new = empty_like(x)
        launch("take", take, new.ptr, x.ptr, index.ptr, x.size)
        return new

    def take(out, x, index, n):
        n = bound_device.number(n)
        which = bound_device.array_at(bound_device.number(index), n, "i8")
        bound_device.floats(bound_device.number(out), n)[:] = bound_device.floats(bound_device.number(x), n)[
            which
        ]

    def make(*index):
        return lambda i: (tensor(i, 2), tensor(*index, dtype="i8"))

    check(function, "holds only zeros", make(0, 0))
    check(function, "", make(1, 0), warns=False)


def test_a_result_that_no_eager_run_repeats():
    def function(x, y):
        new = empty_like(x)
        launch("noisy", noisy, new.ptr, x.ptr, x.size)
        return new

    def noisy(out, x, n):
        bound_device.floats(bound_device.number(out), 2)[:] = list(os.urandom(2))

    f = bound(function)
    with pytest.warns(RuntimeWarning, match="eager runs differ among themselves"):
        f(tensor(1, 2), tensor(3, 4))


def test_a_function_that_is_captured_only_once():
    runs = []

    def function(x, y):
        runs.append(1)
        if len(runs) == 2:
            raise RuntimeError("once is enough")
        return x + y

    f = bound(function)
    with pytest.warns(RuntimeWarning, match="can't be captured again: RuntimeError: once is enough"):
        assert f(tensor(1, 2), tensor(3, 4)).tolist() == [4, 6]
    assert f.explain()[0].inputs == "node"


# ---- the driver refuses ----------------------------------------------------------------------------


def test_an_address_that_the_driver_refuses_is_copied(device):
    f = bound(lambda x, y: (x + y) * 2 + x)
    f(tensor(1, 2), tensor(3, 4))
    x, y = tensor(5, 6), tensor(7, 8)
    type(device).refused = (x.data_ptr(),)
    for _ in range(2):
        assert f(x, y).tolist() == [29, 34]
    type(device).refused = ()
    assert f(x, y).tolist() == [29, 34]
    assert f.cache_info().captures == 1
    assert is_bound(f)


def test_a_graph_that_can_not_be_changed_back_is_dropped(device):
    f = bound(lambda x, y: (x + y) * 2 + x)
    x, y = tensor(1, 2), tensor(3, 4)
    f(x, y)
    x = tensor(5, 6)
    (recorded,) = f._cache.graphs.values()
    statics = [each.static for each in recorded.inputs.bound._bindables]
    type(device).refused = (x.data_ptr(), *statics)
    with pytest.warns(RuntimeWarning, match="refuses to change the parameters"):
        assert f(x, y).tolist() == [21, 26]
    assert f(x, y).tolist() == [21, 26]
    assert f.explain()[0].inputs == "node"
    assert f.cache_info().captures == 2


@pytest.mark.parametrize("change", [1, 2, 3, 4])
def test_an_interrupt_between_two_changes(device, change):
    f = bound(lambda x, y: ((x + y) * 2 + x) + y)
    f(tensor(1, 2), tensor(3, 4))
    old, new = (tensor(1, 1), tensor(2, 2)), (tensor(5, 6), tensor(7, 8))
    assert f(*old).tolist() == [9, 9]
    type(device).interrupted = change
    with contextlib.suppress(KeyboardInterrupt):
        f(*new)
    type(device).interrupted = 0
    for _ in range(2):
        assert f(*old).tolist() == [9, 9]
        assert f(*new).tolist() == [36, 42]
    assert is_bound(f)


def test_threads(device):
    f = bound(lambda x, y: x + y, outputs="copy")
    f(tensor(1, 2), tensor(3, 4))
    wrong = []

    def work(number):
        for i in range(40):
            result = f(tensor(i, number), tensor(number, i))
            if result.tolist() != [i + number, number + i]:
                wrong.append((number, i))

    in_threads(*[partial(work, number) for number in range(4)])
    assert wrong == []
    assert is_bound(f)


def test_a_write_that_nobody_counts_is_missed_with_copies_and_verify_says_so():
    @ag.graphed(warmup=0, verify="first")
    def f(x, y):
        launch("add", bound_device.add, x.ptr, x.ptr, y.ptr, x.size)

    with pytest.raises(ag.VerificationError, match="if the function returns the argument"):
        f(tensor(1, 1), tensor(1, 2))


def test_graphs_that_are_verified_as_well():
    f = bound(lambda x, y: x + y, verify="first")
    for i in range(3):
        assert f(tensor(i, 2), tensor(3, 4)).tolist() == [i + 3, 6]
    assert is_bound(f)


# ---- options ---------------------------------------------------------------------------------------


def test_a_backend_that_does_not_tell_parameters(device, monkeypatch):
    monkeypatch.setattr(type(device), "parameters", ReadsGraphs.parameters)
    f = bound(lambda x: x * 2)
    with pytest.warns(RuntimeWarning, match="the parameters of node 0, a kernel .*are not known"):
        f(tensor(1, 2))


def test_a_framework_that_does_not_tell_its_pool(monkeypatch):
    monkeypatch.setattr(fakes.Fake, "pool_contents", lambda self, pool, device: None, raising=False)
    f = bound(lambda x: x * 2)
    with pytest.warns(RuntimeWarning, match="does not report what memory the pool"):
        f(tensor(1, 2))


def test_methods_explain_the_graphs_of_their_instance():
    class Model:
        @ag.graphed(warmup=0, inputs="bind")
        def double(self, x):
            return x * 2

    one, other = Model(), Model()
    one.double(tensor(1, 2))
    assert len(one.double.explain()) == len(Model.double.explain()) == 1
    assert other.double.explain() == []


@pytest.mark.promise("results-of-eager-runs")
@pytest.mark.parametrize("seed", range(4))
def test_random_calls_at_random_places_are_equal_to_eager_ones(seed):
    draw = random.Random(seed)
    state = Tensor(aligned(4))
    state.data[:] = 0

    def function(x, y, z):
        h = (x + y) * 2
        x.add_(z)
        state.add_(h)
        return h + z, state + x

    f = bound(function, outputs=draw.choice(["copy", "static"]))
    ours, theirs = aligned(4096), np.zeros(4096)
    before = np.zeros(4)
    for _ in range(150):
        ours[:] = theirs[:] = draw.choices(range(100), k=4096)
        starts = draw.sample(range(0, 4092, draw.choice([4, 64])), 3)
        fakes.DEVICE[0].synchronize(fakes.streams[0])
        before[:] = state.data
        x, y, z = (theirs[s : s + 4].copy() for s in starts)
        h = (x + y) * 2
        x = x + z
        got = f(*(Tensor(ours[s : s + 4]) for s in starts))
        assert [each.tolist() for each in got] == [(h + z).tolist(), (before + h + x).tolist()]
        assert ours[starts[0] : starts[0] + 4].tolist() == x.tolist()
    assert is_bound(f)
    assert sys.modules["fakeframe"].Tensor is Tensor


@pytest.mark.parametrize("returned", [0, 1, 2])
def test_an_array_that_is_given_twice_and_written_is_not_copied(returned):
    @bound
    def f(x, y, z):
        x.add_(y)
        return (x, y, z)[returned]

    for i in range(3):
        x, z = tensor(i, 2), tensor(5, 6)
        assert f(x, x, z) is (x, x, z)[returned]
        fakes.DEVICE[0].synchronize(fakes.streams[0])
        assert (x.tolist(), z.tolist()) == ([2 * i, 4], [5, 6])
        if i == 0:
            copies()
    assert copies() == 0
    assert is_bound(f)


@pytest.mark.parametrize("number", [0, 1])
def test_the_node_that_cannot_be_changed_is_called_by_its_name(device, monkeypatch, number):
    real = device.node_setter

    def node_setter(self, graph, executable, node):
        return None if node == number else real(graph, executable, node)

    monkeypatch.setattr(type(device), "node_setter", node_setter)
    name = ("add", "scale")[number]
    f = bound(lambda x, y: (x + y, y * 2.0))
    with pytest.warns(RuntimeWarning, match=rf"parameters of node {number} \({name}\) can't be changed"):
        f(tensor(1, 2), tensor(3, 4))


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("ncclDevKernel_Sum", True),
        ("void RCCL_kernel", True),
        ("one_shot_all_reduce", True),
        ("my_AllGather_f32", True),
        ("all_to_all", True),
        ("x_reduce_scatter", True),
        ("symmmem_get", True),
        ("reduce_all", False),
        ("gather", False),
    ],
)
@pytest.mark.parametrize("body", [None, 0, 1])
def test_names_of_collectives(name, refused, body):
    node = GraphNode(1, "kernel", name)
    if body is not None:
        bodies = [([GraphNode(0, "kernel", "a"), GraphNode(1, "kernel", "b")], [])] * 2
        bodies[body] = ([GraphNode(0, "kernel", "a"), node], [])
        node = GraphNode(1, "conditional", "if", bodies=tuple(bodies))
    subject = "n" if body is None else "a kernel inside n"
    why = f"^{subject} \\({name}\\) is a collective"
    with pytest.raises(captures.NotFollowing, match=why) if refused else contextlib.nullcontext():
        captures._check_name("n", node)


@pytest.mark.parametrize("left", [(5, 5, 5), (5, 5, 6, 6, 5, 8)], ids=["no doubt", "doubts"])
@pytest.mark.parametrize("fails", [False, True])
def test_every_further_capture_is_reset(monkeypatch, left, fails):
    runs, made = [], []
    real = captures._captured

    def noting(capture, arrays):
        made.append(real(capture, arrays))
        return made[-1]

    monkeypatch.setattr(captures, "_captured", noting)

    def function(x, y):
        runs.append(1)
        garbage = left[min(len(runs), len(left)) - 1]
        new = empty_like(x)
        block = struct.pack("<QQQQQI", garbage, new.data_ptr(), 0, x.data_ptr(), y.data_ptr(), 2)
        launch("ncclKernel" if fails and len(runs) > 1 else "add_padded", bound_device.add_padded, block)
        return new

    f = bound(function)
    with pytest.warns(RuntimeWarning, match="a different one") if fails else contextlib.nullcontext():
        assert f(tensor(1, 2), tensor(3, 4)).tolist() == [4, 6]
    assert len(made) >= 2
    assert [graph._runner for graph in made] == [None] * len(made)


def test_the_graphs_own_memory_is_that_of_all_static_arrays_and_results():
    f = bound(lambda x, y: (x + y, y * 2.0))
    f(tensor(1, 2), tensor(3, 4, 5)[:2])
    (recorded,) = f._cache.graphs.values()
    own = recorded.inputs.bound._own
    arrays = [*recorded.inputs.arrays, *(array for array, _ in recorded.result.outputs)]
    assert len(arrays) == 4
    assert {extent(each) for each in arrays} <= {*own}


def test_an_array_that_cannot_be_copied_is_not_told_to_be():
    """Its address is a part of the signature."""
    block = fakes.Block(np.ones(2))

    def function(x, y, place):
        return x + y

    f = bound(function)
    x, y = tensor(1, 2), with_gaps(3, 4)
    assert f(x, y, block).tolist() == [4, 6]
    assert f.explain()[0].why.endswith("copied are: y")


@pytest.mark.parametrize(("start", "stop", "why"), [(0, 64, "x"), (64, 128, "y"), (0, 128, None), (0, 0, "")])
def test_kept_memory_directly_beside_an_argument(start, stop, why):
    """Memory that is kept may end where the static array of another argument begins."""
    both = Tensor(aligned(128))
    leaves = [Tensor(aligned(64)), Tensor(aligned(64))]
    statics = [both[:64], both[64:]]
    kinds = [array_type_of(each) for each in leaves]
    inputs = bound_inputs.Inputs(leaves, statics, kinds, (0, 1))
    found = bound_inputs.bindables(inputs, [both[start:stop]])
    assert [each.argument for each in found] == {"x": [1], "y": [0], None: [], "": [0, 1]}[why]
    assert [(each.static, each.nbytes) for each in found] == [
        (statics[each.argument].data_ptr(), 512) for each in found
    ]


class Elsewhere(Tensor):
    """A tensor of another package."""


Elsewhere.__module__ = "otherframe.tensors"


def test_tensors_of_two_packages_elsewhere(monkeypatch):
    """Those of each package are in memory of its own, made by it, in the opposite order."""
    fakes.install(monkeypatch, "otherframe")
    made = []

    def maker(name, kind):
        def empty(n, dtype, device):
            made.append((name, device.ordinal))
            return kind(aligned(n, dtype))

        return empty

    for name, kind in (("otherframe", Elsewhere), ("fakeframe", Tensor)):
        monkeypatch.setattr(sys.modules[name], "Tensor", kind, raising=False)
        monkeypatch.setattr(sys.modules[name], "uint8", np.uint8, raising=False)
        monkeypatch.setattr(sys.modules[name], "empty", maker(name, kind), raising=False)
    memory = aligned(4096)
    kinds = [Elsewhere, Tensor, Elsewhere, Tensor, Elsewhere]
    data = [
        memory[640:1700],
        memory[1703:2040],
        memory[1:3],
        memory[64:191:2].reshape(8, 8),
        memory[2048:2048],
    ]
    arrays = [kind(each) for kind, each in zip(kinds, data, strict=True)]
    types = [array_type_of(each) for each in arrays]
    assert [each.package.__name__ for each in types[:2]] == ["otherframe", "fakeframe"]
    others = elsewhere(arrays, types)
    assert made == [("fakeframe", 0), ("otherframe", 0)]
    for kind, x, other in zip(kinds, arrays, others, strict=True):
        assert type(other) is kind
        assert (other.shape, other.stride(), other.dtype) == (x.shape, x.stride(), x.dtype)
        assert (other.data_ptr() - x.data_ptr()) % ALIGNMENT == 0
    for kind in (Elsewhere, Tensor):
        own = [i for i in range(5) if kinds[i] is kind and arrays[i].data.size]
        assert sorted(own, key=lambda i: arrays[i].data_ptr()) == sorted(
            own, key=lambda i: -others[i].data_ptr()
        )
        spans = sorted(extent(others[i]) for i in own)
        assert all(end + ALIGNMENT <= start for (_, end), (start, _) in pairwise(spans))


# ---- arguments of several libraries, sizes and places ------------------------------------------------


class Words:
    """A setter that notes what is written."""

    function = None

    def __init__(self, written, node):
        self.written, self.node = written, node

    def words(self, places):
        def set_words(*values):
            self.written.append((self.node, *zip(places, values, strict=True)))

        return set_words


class Leaf(SimpleNamespace):
    """A tensor with nothing but an address."""

    negative = False

    def record_stream(self, stream):
        self.told.append(stream)


STATICS, SIZES = (0x10000, 0x20000, 0x30000), (0x400, 0x200, 0x800)
OWN = [(0x80000, 0x80400), (0x90000, 0x90400)]


def library(name):
    return lambda device: (name, device)


def placed(*addresses):
    return [
        Leaf(ptr=each, device=f"device {i}", told=[], nbytes=SIZES[i % len(SIZES)])
        for i, each in enumerate(addresses)
    ]


def made_of(arguments=(0, 1, 2), users=None, firsts=(0, 1, 2)):
    """Return inputs of three nodes: of the first array, of the first and the second, and of the third."""
    users, written = users or [library("one")] * 3, []
    bindables = [
        bound_inputs.Bindable(argument, lambda x: x.ptr, lambda x: x.negative, STATICS[i], SIZES[i], users[i])
        for i, argument in enumerate(arguments)
    ]
    words = [
        bound_inputs.ArgumentWord(*each)
        for each in ((4, 0, 8, 0, 0), (6, 1, 0, 0, 16), (6, 0, 16, 1, 4), (9, 0, 0, 2, 0))
        if each[3] < len(arguments)
    ]
    setters = {node: Words(written, node) for node in sorted({each.node for each in words})}
    return bound_inputs.BoundInputs(bindables, words, setters, OWN, firsts), written


def test_each_word_is_written_with_the_address_of_its_own_argument():
    inputs, written = made_of()
    first = placed(0x40000, 0x50000, 0x60000)
    assert inputs.patch(first) == frozenset()
    assert written == [
        (4, ((0, 8), 0x40000)),
        (6, ((1, 0), 0x40010), ((0, 16), 0x50004)),
        (9, ((0, 0), 0x60000)),
    ]
    for addresses, nodes in [
        ((0x40000, 0x50000, 0x60000), []),
        ((0x40000, 0x50000, 0x70000), [9]),
        ((0x40000, 0x51000, 0x70000), [6]),
        ((0x41000, 0x51000, 0x70000), [4, 6]),
        ((0x42000, 0x51000, 0x71000), [4, 6, 9]),
        ((0x42000, 0x51000, 0x71000), []),
    ]:
        written.clear()
        assert inputs.patch(placed(*addresses)) == frozenset()
        assert [node for node, *_ in written] == nodes
        assert [*inputs.addresses(3)] == [*addresses]


@pytest.mark.parametrize(
    ("addresses", "copied"),
    [
        ((0x40000, 0x40400, 0x40600), ()),  # one directly behind the other
        ((0x40600, 0x40400, 0x40800), (0, 2)),
        ((0x40600, 0x40400, 0x40A00), ()),
        ((0x40000, 0x40200, 0x50000), (0, 1)),
        ((0x40200, 0x40000, 0x40600), ()),
        ((0x40200, 0x40000, 0x40400), (0, 2)),
        ((0x50000, 0x40600, 0x40000), (1, 2)),
        ((0x40000, 0x50000, 0x40000), (0, 2)),
        ((0x40000, 0x40200, 0x40200), (0, 1, 2)),
        ((0x40800, 0x40200, 0x40000), (1, 2)),
        ((0, 0x50000, 0x60000), (0,)),
        ((0x40000, 0, 0), (1, 2)),
        ((0x40000, 0x50100, 0x60000), (1,)),
        ((*STATICS,), ()),
        ((0x7FE00, 0x50000, 0x60000), (0,)),  # into the graph's own memory
        ((0x7FC00, 0x50000, 0x60000), ()),
        ((0x40000, 0x80400, 0x8F800), ()),
        ((0x40000, 0x80200, 0x8FA00), (1, 2)),
    ],
)
def test_which_arguments_are_copied_for_their_places(monkeypatch, addresses, copied):
    monkeypatch.setattr(bound_inputs, "extent", lambda x: (x.ptr, x.ptr + x.nbytes))
    inputs, written = made_of()
    for _ in range(2):
        assert inputs.patch(placed(*addresses)) == set(copied)
        wanted = [STATICS[i] if i in copied else address for i, address in enumerate(addresses)]
        assert [*inputs._now] == wanted
        assert inputs.addresses(3) == (None if copied else inputs._now)
        assert inputs.patch(placed(0x41000, 0x51000, 0x61000)) == frozenset()
        assert [*inputs.addresses(3)] == [0x41000, 0x51000, 0x61000]
    assert written


@pytest.mark.parametrize("negative", [(0,), (1,), (0, 2)])
def test_which_arguments_are_copied_for_their_elements(monkeypatch, negative):
    monkeypatch.setattr(bound_inputs, "extent", lambda x: (x.ptr, x.ptr + 8))
    inputs, _ = made_of()
    leaves = placed(0x40000, 0x50000, 0x60000)
    for i in negative:
        leaves[i].negative = True
    for _ in range(2):
        assert inputs.patch(leaves) == {*negative}
        assert not inputs.addresses(3)
        assert inputs.patch(placed(0x40000, 0x50000, 0x60000)) == frozenset()
        assert [*inputs.addresses(3)] == [0x40000, 0x50000, 0x60000]


@pytest.mark.parametrize(
    ("other", "copied"),
    [
        ((0x48000, 0x48800), ()),
        ((0x40400, 0x40800), ()),
        ((0x403FF, 0x40800), (1,)),
        ((0x3FF00, 0x40001), (1,)),
        ((0x50100, 0x50101), (3,)),
        ((0x40000, 0x50001), (1, 3)),
        ((0x40100, 0x40100), ()),
        (None, (1, 3)),
    ],
)
def test_an_array_beside_those_that_are_bound(monkeypatch, other, copied):
    """Its memory is looked at in every call, since its address is no part of what is compared."""
    monkeypatch.setattr(bound_inputs, "extent", lambda x: x.span)
    inputs, _ = made_of(arguments=(1, 3), firsts=(0, 1, 3))
    leaves = placed(0, 0x40000, 0, 0x50000)
    for span, expected in (((0x70000, 0x70001), ()), (other, copied), ((0x70000, 0x70001), ())):
        leaves[0].span = span
        for leaf, size in zip(leaves[1::2], SIZES, strict=False):
            leaf.span = (leaf.ptr, leaf.ptr + size)
        assert inputs.patch(leaves) == set(expected)


def test_memory_that_the_graph_writes_is_added(monkeypatch):
    monkeypatch.setattr(bound_inputs, "extent", lambda x: (x.ptr, x.ptr + 1))
    told, patches = [], bound_inputs.patches

    def made(*args):
        told.append((list(args[4]), patches(*args)))
        return told[-1][1]

    monkeypatch.setattr(bound_inputs, "patches", made)
    inputs, _ = made_of()
    leaves = placed(0x40000, 0x50000, 0x60000)
    assert inputs.patch(leaves) == frozenset()
    inputs.add_own((0x50000, 0x50001))
    assert inputs.addresses(3) is None
    assert inputs.patch(leaves) == {1}
    inputs.add_own((0x607FF, 0x60800))
    assert inputs.patch(leaves) == {1, 2}
    assert inputs.patch(placed(0x80200, 0x90200, 0x61000)) == {0, 1}
    own, in_c = told[-1]
    assert own[-2:] == [(0x50000, 0x50001), (0x607FF, 0x60800)]
    assert inputs.patches is in_c


@pytest.mark.parametrize("names", ["aaa", "aba", "abb", "abc"])
def test_each_array_is_kept_by_its_own_library(names):
    libraries = {name: library(name) for name in names}
    inputs, _ = made_of(arguments=(1, 2, 3), users=[libraries[name] for name in names])
    leaves = placed(0, 0x40000, 0x50000, 0x60000)
    inputs.keep(leaves)
    assert [each.told for each in leaves] == [[], *([(name, "device 1")] for name in names)]
    assert inputs.user("here") == (("a", "here") if len(libraries) == 1 else None)
