"""`graphed(inputs="bind")` of functions that keep arrays, write state, or note addresses elsewhere."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph._graphed import binding, python_state
from accelerator_graph.interop import registry as interop
from graphed import bound_device, fakes
from graphed.bound_device import Tensor, aligned, empty_like, launch, tensor

MODES = ("copy", "node", "bind")
pytestmark = pytest.mark.filterwarnings("ignore:.*copies its inputs:RuntimeWarning")


@pytest.fixture(autouse=True)
def device(monkeypatch):
    backend = fakes.opened(monkeypatch, bound_device.PatchableDevice)
    bound_device.install(monkeypatch)
    yield backend
    backend.synchronize(fakes.streams[0])
    bound_device.free_all()
    interop.unregister("fakeframe")
    ag.backends.unregister("fakedevice")


def graphed(function, mode, **options):
    return ag.graphed(function, warmup=0, inputs=mode, **{"outputs": "static", **options})


def inputs_of(f):
    (explained,) = f.explain()
    return explained.inputs, explained.why


def gives_sums(f, kept):
    """Call a function that returns twice the sum of its arguments, and keeps the sum."""
    for i in range(4):
        assert f(tensor(i, 1), tensor(2, i)).tolist() == [2 * i + 4, 2 * i + 2]
        assert kept().tolist() == [i + 2, i + 1]


@pytest.mark.parametrize("mode", MODES)
def test_an_array_that_the_function_keeps_beside_its_result(mode):
    kept = SimpleNamespace(sum=None)

    def function(x, y):
        kept.sum = x + y
        return kept.sum * 2

    f = graphed(function, mode)
    gives_sums(f, lambda: kept.sum)
    assert inputs_of(f) == (mode, "")


class Slotted:
    __slots__ = ("sum",)


def test_a_class_with_slots_is_no_state():
    f = graphed(lambda x, y: x + y if Slotted else None, "bind")
    assert f(tensor(1, 1), tensor(2, 3)).tolist() == [3, 4]
    assert inputs_of(f) == ("bind", "")


@pytest.mark.parametrize("mode", MODES)
def test_an_attribute_in_a_slot(mode):
    kept = Slotted()

    def function(x, y):
        kept.sum = x + y
        return kept.sum * 2

    f = graphed(function, mode)
    gives_sums(f, lambda: kept.sum)


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_of_a_tensor(mode):
    """As that of a parameter, whose gradient is another tensor after every run, and is used between calls."""
    weight = tensor(1, 1)
    weight.is_leaf, weight.grad = True, None

    def function(x, y):
        weight.grad = x + y
        return weight.grad * 2

    f = graphed(function, mode)
    gives_sums(f, lambda: weight.grad)
    assert inputs_of(f) == (mode, "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("part", [slice(0, 1), slice(None)], ids=["a part", "the whole"])
def test_an_argument_that_the_function_keeps(mode, part):
    kept = SimpleNamespace(x=())

    def function(x, y):
        kept.x = (x[part] if part.stop else x,)
        return x + y

    f = graphed(function, mode)
    for i in range(4):
        assert f(tensor(i, 1), tensor(2, i)).tolist() == [i + 2, i + 1]
        assert kept.x[0].tolist()[0] == i
    inputs, why = inputs_of(f)
    assert inputs == mode
    assert why.endswith("the function keeps a part need no copies, so copied are: x") == (mode == "bind")


def test_where_every_argument_is_kept():
    kept = []

    def function(x, y):
        kept[:] = x, y
        return x + y

    f = graphed(function, "bind")
    for i in range(4):
        assert f(tensor(i, 1), tensor(2, i)).tolist() == [i + 2, i + 1]
        assert [each.tolist() for each in kept] == [[i, 1], [2, i]]
    assert inputs_of(f) == ("node", "the result or the function keeps a part of every dense argument")


@pytest.mark.parametrize("mode", MODES)
def test_an_array_that_does_not_tell_its_memory(mode):
    def no_storage():
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    weights = tensor(1, 2)
    weights.data_ptr = no_storage

    def function(x, y):
        assert weights is not None
        return x + y

    f = graphed(function, mode)
    for i in range(4):
        assert f(tensor(i, 1), tensor(2, i)).tolist() == [i + 2, i + 1]
    why = "the result or the function keeps an array that does not report its memory"
    assert inputs_of(f) == (("node", why) if mode == "bind" else (mode, ""))


@pytest.mark.parametrize("mode", MODES)
def test_an_object_in_the_result_that_holds_a_part_of_an_argument(mode):
    f = graphed(lambda x, y: SimpleNamespace(sum=x + y, parts=[x[1:]]), mode)
    for i in range(4):
        result = f(tensor(i, 1, i), tensor(2, i, 2))
        assert result.sum.tolist() == [i + 2, i + 1, i + 2]
        assert result.parts[0].tolist() == [1, i]


@pytest.mark.promise("proof-restores-the-state")
@pytest.mark.parametrize("mode", MODES)
def test_state_that_the_first_run_makes(mode):
    kept = SimpleNamespace(three=None)

    def function(x, y):
        if kept.three is None:
            kept.three = empty_like(x)
            launch("fill", fill, kept.three.ptr, x.size)
        return x + y + kept.three

    def fill(out, n):
        bound_device.floats(bound_device.number(out), bound_device.number(n))[:] = 3

    f = graphed(function, mode)
    for i in range(4):
        assert f(tensor(i, 1), tensor(2, i)).tolist() == [i + 5, i + 4]


def test_state_that_the_first_run_makes_where_nothing_can_be_bound():
    kept = SimpleNamespace(three=None, runs=0)

    def function(x, y):
        if kept.three is None:
            kept.three = x * 0.0
        kept.runs += 1
        if kept.runs > 1:
            raise RuntimeError("once is enough")
        return x + y + kept.three

    f = graphed(function, "bind")
    for i in range(4):
        assert f(tensor(i, 1), tensor(2, i)).tolist() == [i + 2, i + 1]


def test_a_table_that_no_reference_leads_to():
    """It is written by the Python code of every run, as a library in C may do."""
    memory = aligned(2, "u8").ctypes.data

    def function(x, y):
        new = empty_like(x)
        bound_device.array_at(memory, 2, "u8")[:] = x.data_ptr(), y.data_ptr()
        launch("add_from_table", bound_device.add_from_table, new.ptr, struct.pack("<Q", memory), x.size)
        return new

    f = graphed(function, "bind")
    for i in range(4):
        assert f(tensor(i, 1), tensor(2, i)).tolist() == [i + 2, i + 1]
    inputs, why = inputs_of(f)
    assert inputs == "node"
    assert "another result than an eager run" in why


def test_an_argument_that_holds_its_result_before_the_capture():
    def function(x, out):
        launch("scale", bound_device.scale, out.ptr, x.ptr, struct.pack("<d", 2.0), x.size)

    f = graphed(function, "bind")
    f(tensor(1, 2), tensor(2, 4))
    assert inputs_of(f) == ("bind", "")
    for offset in (0, 8, 0, 16):
        out = tensor(0, 0, offset=offset)
        f(tensor(5, offset), out)
        assert out.tolist() == [10, 2 * offset]


@pytest.mark.parametrize("mode", MODES)
def test_an_argument_that_is_a_part_of_the_state_that_is_written(mode):
    state = Tensor(aligned(256))

    def function(x):
        launch("shift", shift, state[32:96].ptr, x.ptr, x.size)

    def shift(out, x, n):
        n = bound_device.number(n)
        target, source = (bound_device.floats(bound_device.number(each), n) for each in (out, x))
        for i in range(n):
            target[i] = source[i]

    f = graphed(function, mode)
    f(Tensor(aligned(64)))
    for _ in range(2):
        fakes.DEVICE[0].synchronize(fakes.streams[0])
        state.data[:] = range(256)
        f(Tensor(state.data[:64]))
        fakes.DEVICE[0].synchronize(fakes.streams[0])
        assert state.tolist()[32:96] == list(range(64))
    assert inputs_of(f) == (mode, "")


# ---- what torch holds in C++ -------------------------------------------------------------------


grads = {}


class Weight(Tensor):
    """A tensor whose gradient no reference of Python leads to."""

    is_leaf, grad_fn = True, None

    @property
    def grad(self):
        return grads.get(id(self))

    @grad.setter
    def grad(self, grad):
        grads[id(self)] = grad


@pytest.mark.parametrize("mode", MODES)
def test_an_argument_that_becomes_a_gradient(mode):
    weight = Weight(aligned(2))

    def function(x, y):
        weight.grad = x
        return x + y

    f = graphed(function, mode)
    for i in range(4):
        assert f(tensor(i, 1), tensor(2, i)).tolist() == [i + 2, i + 1]
        assert weight.grad.tolist() == [i, 1]
    assert inputs_of(f)[0] == mode


def test_a_tensor_with_a_graph_of_autograd(monkeypatch):
    monkeypatch.setattr(Tensor, "grad_fn", None, raising=False)
    monkeypatch.setattr(Tensor, "is_leaf", False, raising=False)
    kept = []

    def function(x, y):
        kept[:] = [x + y]
        kept[0].grad_fn = "AddBackward0"
        return x + y

    f = graphed(function, "bind")
    assert f(tensor(1, 2), tensor(3, 4)).tolist() == [4, 6]
    assert inputs_of(f) == (
        "node",
        "it keeps a tensor with a graph of autograd, which may have saved its arguments",
    )


def test_a_function_that_can_reach_more_than_is_looked_at(monkeypatch):
    monkeypatch.setattr(python_state, "_MOST", 3)
    kept = SimpleNamespace(**{name: SimpleNamespace(of=name) for name in "abcdef"})
    f = graphed(lambda x, y: (x + y, kept.a)[0], "bind")
    assert f(tensor(1, 2), tensor(3, 4)).tolist() == [4, 6]
    assert inputs_of(f) == ("node", "it can reach more references than are looked at")


@pytest.mark.promise("proof-restores-the-state")
def test_a_dict_that_was_replaced_is_as_it_was():
    kept = SimpleNamespace(table={"a": 1}, other={"b": 2})
    before = kept.table
    state = python_state.PythonState(lambda: kept, lambda x: False)
    before["c"] = 3
    kept.table = kept.other = {"d": 4}
    state.restore()
    assert kept.table is before
    assert (kept.table, kept.other) == ({"a": 1}, {"b": 2})


@pytest.mark.parametrize("kept", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("with_graph", [None, 0, 1])
def test_which_arrays_the_roots_reach(monkeypatch, kept, with_graph):
    """Those of the type of any argument; one with a graph of autograd among them is enough for a doubt."""
    monkeypatch.setattr(Tensor, "is_leaf", False, raising=False)
    state = [tensor(1), Weight(aligned(1))]
    state[0].grad_fn = None
    if with_graph is not None:
        monkeypatch.setattr(Weight, "grad_fn", None)
        state[with_graph].grad_fn = "AddBackward0"
    roots = [{"a": [state[i]]} for i in kept] + [fakes.full(1, 0)]
    arguments = [tensor(2), Weight(aligned(2))]
    if with_graph in kept:
        with pytest.raises(binding.NotFollowing, match="graph of autograd"):
            binding._kept_arrays(roots, arguments)
    else:
        found = binding._kept_arrays(roots, arguments)
        assert sorted(map(id, found)) == sorted(id(state[i]) for i in kept)
        assert binding._kept_arrays(roots, []) == []
