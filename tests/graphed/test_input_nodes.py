"""`graphed(inputs="node")`: the copies to static inputs are nodes, and calls change where these read from."""

from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import accelerator_graph as ag
from accelerator_graph._graphed import input_nodes
from accelerator_graph.backends.base import Capability
from accelerator_graph.errors import driver_error
from graphed import fakes
from graphed.fakes import Tensor, calls


class Dense(Tensor):
    """A tensor that tells its address."""

    negative = False
    refused = False

    def stride(self):
        return tuple(step // self.data.itemsize for step in self.data.strides)

    def data_ptr(self):
        return self.data.ctypes.data

    def element_size(self):
        return self.data.itemsize

    def is_neg(self):
        return self.negative

    nbytes = property(lambda self: self.data.nbytes)


Dense.__module__ = "fakeframe.tensors"


@pytest.fixture(autouse=True)
def plain(device, monkeypatch):
    monkeypatch.setattr(sys.modules["fakeframe"], "Tensor", Dense, raising=False)
    made = []

    def kept_empty_like(x):
        made.append(fakes.empty_like(x))
        return made[-1]

    # whose memory an allocator would use again in the order of the stream
    monkeypatch.setattr(sys.modules["fakeframe"], "empty_like", kept_empty_like)
    yield
    device.synchronize(fakes.streams[0])


def dense(*values):
    return Dense(np.array(values, dtype=float))


class Wrapped:
    """A node's setter whose words are set by a function."""

    function = None

    def __init__(self, setter, set_words):
        self.setter, self.set_words = setter, set_words
        self.blocks, self.enable = setter.blocks, setter.enable

    def words(self, places):
        return partial(self.set_words, self.setter.words(places))


@pytest.fixture
def set_addresses(device, monkeypatch):
    """The addresses that copies were told to read from."""
    real, found = device.node_setter, []

    def note(set_source, address):
        found.append(address)
        set_source(address)

    def node_setter(self, *args):
        return Wrapped(real(*args), note)

    monkeypatch.setattr(type(device), "node_setter", node_setter, raising=False)
    return found


def test_the_graph_copies_its_inputs_itself(set_addresses):
    f = ag.graphed(lambda x, y: x + y, warmup=0, inputs="node")
    first = dense(1, 2), dense(10, 20)
    assert f(*first).tolist() == [11, 22]
    x, y = dense(3, 4), dense(30, 40)
    calls.clear()
    assert f(x, y).tolist() == [33, 44]
    assert len([each for each in calls if each[0] in ("copy", "all")]) == 1  # of the result
    assert set_addresses[-2:] == [x.data_ptr(), y.data_ptr()]
    del set_addresses[:]
    x.data[:] = 5
    assert f(x, y).tolist() == [35, 45]
    assert f(x, dense(0, 0)).tolist() == [5, 5]
    assert len(set_addresses) == 1


def test_with_a_static_input_given_back(device):
    f = ag.graphed(lambda x: x.add_(dense(1, 1)), warmup=0, inputs="node", outputs="static")
    for _ in range(3):
        x = dense(1, 2)
        assert f(x) is x
        assert x.tolist() == [2, 3]


def test_arrays_whose_bytes_are_not_their_elements_are_copied_first(set_addresses):
    f = ag.graphed(lambda x, y: x + y, warmup=0, inputs="node")
    f(dense(1, 2), dense(10, 20))
    x = dense(3, 4)
    x.negative = True
    del set_addresses[:]
    assert f(x, dense(1, 1)).tolist() == [4, 5]
    assert x.data_ptr() not in set_addresses
    x.negative = False
    assert f(x, dense(1, 1)).tolist() == [4, 5]
    assert x.data_ptr() in set_addresses


def test_arrays_that_the_driver_refuses_are_copied_first(device, monkeypatch):
    real, refused = device.node_setter, set()

    def choosy(set_source, address):
        if address in refused:
            raise driver_error(backend="fakedevice", call="set", code=1, code_name="INVALID_VALUE")
        set_source(address)

    def node_setter(self, *args):
        return Wrapped(real(*args), choosy)

    monkeypatch.setattr(type(device), "node_setter", node_setter, raising=False)
    f = ag.graphed(lambda x, y: x + y, warmup=0, inputs="node")
    f(dense(1, 2), dense(10, 20))
    x, y = dense(3, 4), dense(1, 1)
    refused.add(x.data_ptr())
    for _ in range(2):
        assert f(x, y).tolist() == [4, 5]
        x.data[:] = 3, 4
    assert f(dense(7, 8), y).tolist() == [8, 9]


def test_where_sources_cannot_be_changed_every_call_copies(device, monkeypatch):
    monkeypatch.setattr(type(device), "node_setter", lambda self, *args: None, raising=False)
    runs = []

    @ag.graphed(warmup=0, inputs="node")
    def f(x):
        runs.append(1)
        return x + x

    for i in range(3):
        assert f(dense(i, 1)).tolist() == [2 * i, 2]
    assert f.cache_info().captures == 1


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda i: Dense(np.arange(8.0)[::2] * 0 + i), id="dense"),
        pytest.param(lambda i: Dense(np.full((4, 2), float(i))[:, 0]), id="with gaps"),
        pytest.param(lambda i: Dense(np.full((2, 3), float(i)).T), id="transposed"),
        pytest.param(lambda i: Dense(np.full(0, float(i))), id="empty"),
        pytest.param(lambda i: Tensor(np.full(3, float(i))), id="of a subclass"),
    ],
)
def test_all_kinds_of_arrays(make):
    f = ag.graphed(lambda x: x + x, warmup=0, inputs="node")
    for i in range(3):
        x = make(i)
        assert np.array_equal(f(x).tolist(), (x.data + x.data).tolist())


def test_an_option_that_does_not_exist():
    with pytest.raises(ValueError, match="inputs must be 'copy', 'node' or 'bind', not 'nodes'"):
        ag.graphed(lambda x: x, inputs="nodes")


def test_the_static_array_itself_is_not_copied(device):
    """As an argument that the function keeps is."""
    kept = []

    def function(x):
        kept[:] = [x]
        return x + x

    f = ag.graphed(function, warmup=0, inputs="node")
    f(dense(1, 2))
    (static,) = kept
    for x in (static, static, dense(3, 4), static, dense(5, 6)):
        contents = x.tolist()
        assert f(x).tolist() == [2 * each for each in contents]


def test_the_static_array_of_another_argument():
    """Which that argument's copy would overwrite first."""
    kept = []

    def function(x, y):
        kept[:] = [x, y]
        return x + x + y

    f = ag.graphed(function, warmup=0, inputs="node")
    assert f(dense(1, 2), dense(10, 20)).tolist() == [12, 24]
    one, other = kept
    for x, y in ((dense(3, 4), one), (dense(5, 6), one), (other, one), (one, dense(7, 8)), (other, one)):
        expected = (2 * x.data + y.data).tolist()
        assert f(x, y).tolist() == expected


@pytest.mark.parametrize("reader", range(3))
@pytest.mark.parametrize("read", range(3))
def test_the_static_array_of_any_other_argument(reader, read):
    kept = []

    def function(x, y, z):
        kept[:] = [x, y, z]
        return x + x + y + z + z + z

    f = ag.graphed(function, warmup=0, inputs="node")
    assert f(dense(1, 2), dense(10, 20), dense(100, 200)).tolist() == [312, 624]
    statics = [*kept]
    for value in (3, 4):
        arguments = [dense(value, 2), dense(10 * value, 20), dense(100 * value, 200)]
        arguments[reader] = statics[read]
        x, y, z = (each.data for each in arguments)
        expected = (2 * x + y + 3 * z).tolist()
        assert f(*arguments).tolist() == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param(True, [set(), set(), {0}, {1}, {2}, {3}, {4}, {5}, {6, 7}], id="events"),
        pytest.param(False, [set(), {0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}], id="no events"),
    ],
)
def test_the_copies_are_on_branches_where_streams_can_wait(device, monkeypatch, events, expected):
    able = device.capabilities(0)
    if not events:
        monkeypatch.setattr(type(device), "capabilities", lambda self, ordinal: able - {Capability.EVENTS})
    f = ag.graphed(lambda *xs: xs[0] + xs[-1], warmup=0, inputs="node")
    assert f(*(dense(i) for i in range(8))).tolist() == [7]
    (recorded,) = f._cache.graphs.values()
    found = recorded.graph.describe()
    assert [{edge.source for edge in found.edges if edge.target == node} for node in range(9)] == expected


def test_the_streams_of_branches_are_used_again(device, monkeypatch):
    create, made = type(device).create_stream, []

    def create_stream(self, *args, **how):
        made.append(create(self, *args, **how))
        return made[-1]

    monkeypatch.setattr(type(device), "create_stream", create_stream)
    for inputs in ("copy", "copy", "node", "node", "node"):
        f = ag.graphed(lambda *xs: xs[0] + xs[-1], warmup=0, inputs=inputs)
        assert f(*(dense(i) for i in range(8))).tolist() == [7]
        made.append(None)
    assert [each is None for each in made[made.index(None) :]] == [True, True, False, True, True, True]


def test_arrays_that_no_node_copies_are_copied_together(device):
    def gaps(i):
        return Dense(np.full((4, 2), float(i))[:, 0])

    f = ag.graphed(lambda x, y, z: x + y + z, warmup=0, inputs="node", outputs="static")
    for i in range(3):
        arguments = dense(i, i, i, i), gaps(1), gaps(10)
        calls.clear()
        assert f(*arguments).tolist() == [11 + i] * 4
    assert [name for name, _ in calls if name in ("copy", "all")] == ["all"]


@pytest.mark.parametrize(("arrays", "branches"), [(7, 1), (8, 2), (15, 3), (16, 4), (24, 4)])
def test_how_many_branches_copies_are_worth(device, arrays, branches):
    f = ag.graphed(lambda *xs: xs[0] + xs[-1], warmup=0, inputs="node")
    assert f(*(dense(i) for i in range(arrays))).tolist() == [arrays - 1]
    (recorded,) = f._cache.graphs.values()
    found = recorded.graph.describe()
    assert len({*range(arrays)} - {edge.target for edge in found.edges}) == branches


def copied_by_nodes(f):
    (recorded,) = f._cache.graphs.values()
    return recorded.inputs._nodes.arguments


@pytest.mark.parametrize("negative", [0, 1])
def test_arrays_whose_bytes_are_not_their_elements_are_not_captured_as_copies(device, negative):
    f = ag.graphed(lambda x, y: x + y, warmup=0, inputs="node")
    arguments = dense(1, 2), dense(10, 20)
    arguments[negative].negative = True
    assert f(*arguments).tolist() == [11, 22]
    assert copied_by_nodes(f) == {1 - negative: 0}
    assert f(dense(3, 4), dense(5, 6)).tolist() == [8, 10]


@pytest.mark.parametrize("lacking", [0, 1])
def test_one_node_whose_source_cannot_be_changed(device, monkeypatch, lacking):
    real = device.node_setter

    def node_setter(self, graph, executable, node):
        return None if node == lacking else real(graph, executable, node)

    monkeypatch.setattr(type(device), "node_setter", node_setter)
    f = ag.graphed(lambda x, y: x + y + y, warmup=0, inputs="node")
    for i in range(3):
        assert f(dense(i, 1), dense(10, i)).tolist() == [20 + i, 1 + 2 * i]
    assert copied_by_nodes(f) == {}


@pytest.fixture
def switched(device, monkeypatch):
    """Which nodes were left out and put back; the next switch is interrupted behind that, if asked for."""
    real, found = device.node_setter, SimpleNamespace(calls=[], interrupted=False)

    def node_setter(self, graph, executable, node):
        setter = real(graph, executable, node)
        enable = setter.enable

        def switch(wanted):
            found.calls.append((node, wanted))
            enable(wanted)
            if found.interrupted:
                found.interrupted = False
                raise KeyboardInterrupt

        setter.enable = switch
        return setter

    monkeypatch.setattr(type(device), "node_setter", node_setter)
    return found


def kept_arrays(function):
    """Graph a function of two arrays, and return it with the static ones."""
    kept = []

    def keeping(x, y):
        kept[:] = [x, y]
        return function(x, y)

    f = ag.graphed(keeping, warmup=0, inputs="node")
    assert f(dense(1, 2), dense(10, 20)).tolist() == [12, 24]
    return f, kept


@pytest.mark.parametrize("number", [0, 1])
def test_only_the_copy_of_a_static_array_to_itself_is_left_out(switched, number):
    f, kept = kept_arrays(lambda x, y: x + x + y)
    for i in range(2):
        arguments = [dense(3, i), dense(30, i)]
        assert f(*arguments).tolist() == [36, 3 * i]
        arguments[number] = kept[number]
        expected = (2 * arguments[0].data + arguments[1].data).tolist()
        switched.calls.clear()
        assert f(*arguments).tolist() == expected
        assert f(*arguments).tolist() == expected
        assert switched.calls == [(number, False)]
        x, y = dense(5, i), dense(7, i)
        assert f(x, y).tolist() == [17, 3 * i]
        assert switched.calls == [(number, False), (number, True)]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("again", [False, True])
def test_an_interrupt_behind_a_switch(switched, number, again):
    f, kept = kept_arrays(lambda x, y: x + x + y)
    first = [dense(3, 4), dense(30, 40)]
    assert f(*first).tolist() == [36, 48]
    own = [*first]
    own[number] = kept[number]
    switched.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        f(*own)
    new = [dense(5, 6), dense(70, 80)]
    for arguments in [own, new] if again else [new, own]:
        expected = (2 * arguments[0].data + arguments[1].data).tolist()
        assert f(*arguments).tolist() == expected


def test_where_nodes_read_all_arrays_of_a_call(device):
    def sources():
        found = recorded.inputs.addresses()
        return found and [*found]

    f = ag.graphed(lambda x, y: x + y, warmup=0, inputs="node", outputs="static")
    x, y, negative, other = dense(1, 2), dense(10, 20), dense(3, 4), dense(5, 6)
    assert f(x, y).tolist() == [11, 22]
    (recorded,) = f._cache.graphs.values()
    assert sources() == [x.data_ptr(), y.data_ptr()]
    negative.negative = other.negative = True
    for arguments in ((negative, y), (x, negative), (negative, other)):
        f(*arguments).tolist()
        assert sources() is None
        f(x, y).tolist()
        assert sources() == [x.data_ptr(), y.data_ptr()]
    assert recorded.inputs._nodes.addresses(3) is None


@pytest.mark.parametrize("written", [0, 1])
def test_a_call_that_copies_back_is_not_told_by_addresses(device, written):
    """What repeats a call in C for arrays at the same addresses copies nothing back."""
    f = ag.graphed(lambda *xs: xs[written].add_(xs[1 - written]), warmup=0, inputs="node", outputs="static")
    for _ in range(2):
        given = dense(1, 2), dense(10, 20)
        assert f(*given) is given[written]
        assert given[written].tolist() == [11, 22]
        (recorded,) = f._cache.graphs.values()
        assert recorded.inputs.addresses() is None


@pytest.mark.parametrize("number", [0, 1])
def test_an_interrupt_behind_a_change(device, monkeypatch, number):
    """Nobody knows what the node reads then."""
    real, interrupted = device.node_setter, []

    def node_setter(self, graph, executable, node):
        def change(set_source, address):
            set_source(address)
            if interrupted == [node]:
                del interrupted[:]
                raise KeyboardInterrupt

        return Wrapped(real(graph, executable, node), change)

    monkeypatch.setattr(type(device), "node_setter", node_setter)
    f = ag.graphed(lambda x, y: x + x + y, warmup=0, inputs="node")
    old, new = (dense(1, 2), dense(10, 20)), (dense(3, 4), dense(30, 40))
    for _ in range(2):
        assert f(*old).tolist() == [12, 24]
        interrupted[:] = [number]
        with pytest.raises(KeyboardInterrupt):
            f(*new)
        assert f(*old).tolist() == [12, 24]
        assert f(*new).tolist() == [36, 48]


# ---- changes in C --------------------------------------------------------------------------------------


class InC:
    """A setter whose function C calls."""

    def __init__(self, number, executable=7, context=(), guard=None):
        self.start = 0x1000 * number
        arguments = (executable, 10 + number, 20 + number, *context)
        self.function = SimpleNamespace(address=30 + number, arguments=arguments, guard=guard)

    def address_of(self, block, offset):
        return self.start + 0x100 * block + offset


class WithoutC(InC):
    def __init__(self, number):
        super().__init__(number)
        self.function = None


GUARD = SimpleNamespace(address=91, context=92)
WORDS = [[(0, 8, 1, 16)], [(1, 0, 0, 0), (0, 24, 1, 4)]]


def in_c(monkeypatch, setters, count=2, own=((50, 60), (70, 90))):
    monkeypatch.setattr(input_nodes, "fast", SimpleNamespace(Patches=lambda *given: given))
    now = input_nodes.addresses([0] * count)
    given = now, [4, 5], [100, 200], 16, own, [*zip(setters, WORDS, strict=True)]
    return now, input_nodes.patches(*given)


@pytest.mark.parametrize(
    ("context", "guard"), [((), None), ((5,), None), ((5,), GUARD)], ids=["plain", "context", "guard"]
)
def test_what_c_is_told(monkeypatch, context, guard):
    setters = InC(1, context=context, guard=guard), InC(2, context=context, guard=guard)
    now, made = in_c(monkeypatch, setters)
    owner, executable, told, sizes, captured, alignment, own, nodes, *condition = made
    assert (owner, executable, alignment) == (setters, 7, 16)
    assert told is now
    assert ([*sizes], [*captured], [*own]) == ([4, 5], [100, 200], [50, 60, 70, 90])
    where = context[0] if context else 0
    assert nodes == (
        (31, 11, 21, where, ((0x1008, 1, 16),)),
        (32, 12, 22, where, ((0x2100, 0, 0), (0x2018, 1, 4))),
    )
    assert condition == ([91, 92] if guard else [])


@pytest.mark.parametrize(
    ("setters", "count"),
    [
        pytest.param((WithoutC(1), InC(2)), 2, id="the first has no function"),
        pytest.param((InC(1), WithoutC(2)), 2, id="the second has no function"),
        pytest.param((InC(1), InC(2, executable=8)), 2, id="another executable"),
        pytest.param((InC(1, guard=GUARD), InC(2)), 2, id="one guard"),
        pytest.param((InC(1), InC(2, guard=GUARD)), 2, id="another guard"),
        pytest.param((InC(1), InC(2)), 129, id="more arrays than C takes"),
    ],
)
def test_what_c_cannot_change(monkeypatch, setters, count):
    assert in_c(monkeypatch, setters, count)[1] is None
    assert in_c(monkeypatch, (InC(1), InC(2)), 128)[1] is not None
