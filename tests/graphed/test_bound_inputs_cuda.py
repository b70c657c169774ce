"""`graphed(inputs="bind")` over kernels of CUDA, whose parameters the driver tells and changes."""

import gc
import random
import threading

import pytest

import accelerator_graph as ag
import lanes

pytestmark = lanes.require("cuda")

from accelerator_graph._core import ownership
from graphed import cuda_arrays
from graphed.cuda_arrays import Tensor, empty_like, plus, tensor

TIMEOUT = 120


@pytest.fixture(autouse=True)
def arrays(monkeypatch):
    with cuda_arrays.framework_on_a_stream(monkeypatch):
        yield


@pytest.fixture
def copied(monkeypatch):
    """The sizes of all copies that are enqueued."""
    real, found = type(cuda_arrays.backend).copy, []

    def copy(self, stream, target, source, nbytes):
        found.append(nbytes)
        real(self, stream, target, source, nbytes)

    monkeypatch.setattr(type(cuda_arrays.backend), "copy", copy)
    return found


def bound(function, **options):
    return ag.graphed(function, warmup=0, inputs="bind", **{"outputs": "static", **options})


def explained(f):
    return [(each.inputs, each.why) for each in f.explain()]


@pytest.mark.parametrize("how", ["plus", "kernel", "block", "plus_struct", "child", "child_of_child"])
def test_nothing_is_copied(how, copied):
    f = bound(lambda x, y: plus(how, x, plus("plus", x, y)))
    f(tensor(1, 2), tensor(3, 4))
    assert explained(f) == [("bind", "")]
    del copied[:]
    for i in range(4):
        x, y = tensor(i, 2), tensor(3, i)
        assert f(x, y).tolist() == [2 * i + 3, 4 + i]
    assert copied == []
    for i in range(4):
        assert f(x, tensor(i, i)).tolist() == [6 + i, 4 + i]
    assert f.cache_info().captures == 1


def test_copies_and_fills_are_patched_as_well(copied):
    def function(x, y, z):
        kept = x.clone()
        z.fill_(0)
        return kept + y

    f = bound(function)
    f(tensor(1, 2), tensor(3, 4), tensor(5, 6))
    assert explained(f) == [("bind", "")]
    del copied[:]
    for i in range(3):
        x, y, z = tensor(i, 2), tensor(3, i), tensor(5, 6)
        assert f(x, y, z).tolist() == [i + 3, 2 + i]
        assert z.tolist() == [0, 0]
    assert copied == []


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("plus_packed", "the address of an input in a packed structure"),
        ("plus_from", "a parameter that is derived from the address of an input"),
        ("plus_table", "a replay with its arrays elsewhere gives another result than an eager run"),
        ("ncclDevKernel_plus", "is a collective"),
    ],
)
def test_traps(how, why):
    f = bound(lambda x, y: plus(how, x, y))
    with pytest.warns(RuntimeWarning, match="copies its inputs"):
        f(tensor(1, 2), tensor(3, 4))
    for i in range(3):
        assert f(tensor(i, 2), tensor(3, i)).tolist() == [i + 3, 2 + i]
    ((inputs, reason),) = explained(f)
    assert inputs == "node"
    assert why in reason


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("plus_packed", "a kernel inside node 0, a graph has the address of an input in a packed structure"),
        ("ncclDevKernel_plus", "a kernel inside node 0 .ncclDevKernel_plus. is a collective"),
    ],
)
def test_a_child_with_a_trap_inside(how, why):
    f = bound(lambda x, y: in_child_with(x, y, how))
    with pytest.warns(RuntimeWarning, match=why):
        f(tensor(1, 2), tensor(3, 4))
    for i in range(3):
        assert f(tensor(i, 2), tensor(3, i)).tolist() == [i + 3, 2 + i]


def in_child_with(x, y, how):
    new = empty_like(x)
    cuda_arrays.in_child(lambda: new.copy_(plus(how, x, y)), 1)
    return new


def test_a_kept_address():
    kept = []

    def function(x, y):
        kept[:] = kept or [x.address]
        return plus("plus", Tensor(kept[0], x.shape), y)

    f = bound(function)
    with pytest.warns(RuntimeWarning, match="has an address in an input that does not follow the input"):
        f(tensor(1, 2), tensor(3, 4))


def test_runs_under_way_are_not_changed():
    """A graph whose runs wait is patched for each of the runs behind them."""
    f = bound(lambda x, y: x + y, outputs="copy")
    f(tensor(1, 1), tensor(1, 1))
    arguments = [(tensor(i, i), tensor(10, i)) for i in range(10)]
    passed, gate = [], threading.Event()
    handle = cuda_arrays.current.handle
    wait = cuda_arrays.ctypes.CFUNCTYPE(None, cuda_arrays.ctypes.c_void_p)(
        lambda _: passed.append(gate.wait(TIMEOUT))
    )
    cuda_arrays.call(cuda_arrays.driver.cuCtxSetCurrent, cuda_arrays.context())
    assert cuda_arrays.LIBRARY.cuLaunchHostFunc(cuda_arrays.ctypes.c_void_p(handle), wait, None) == 0
    results = [f(*pair) for pair in arguments]
    gate.set()
    assert [each.tolist() for each in results] == [[i + 10, 2 * i] for i in range(10)]
    assert passed == [True]
    assert explained(f) == [("bind", "")]


def test_a_collected_function_uses_no_stream_that_is_gone(monkeypatch):
    kind, done = type(cuda_arrays.backend), []

    def noted(name):
        real = getattr(kind, name)

        def call(self, native, *args, **options):
            done.append((name, int(native)))
            return real(self, native, *args, **options)

        monkeypatch.setattr(kind, name, call)

    with ag.Stream(backend="cuda") as stream:
        f = bound(lambda x, y: x + y)
        x, y = tensor(1, 2), tensor(3, 4)
        for _ in range(2):
            f(x, y)
    handle = stream.handle
    for name in ("capture_status", "record_event", "destroy_stream"):
        noted(name)
    stream.close()
    cycle = [f, stream]
    cycle.append(cycle)
    del f, stream, cycle
    gc.collect()
    ownership.drain()
    ours = [name for name, native in done if native == handle]
    assert "capture_status" in ours
    assert ours.index("destroy_stream") == len(ours) - 1


@pytest.mark.parametrize("seed", range(3))
def test_random_calls_at_random_places(seed):
    draw = random.Random(seed)

    def function(x, y, z):
        h = plus("plus_struct", x, y)
        x.copy_(plus("block", h, z))
        return plus("kernel", h, x)

    f = bound(function, outputs=draw.choice(["copy", "static"]))
    space = empty_like(Tensor(0, (2048,)))
    for i in range(60):
        values = [float(draw.randrange(100)) for _ in range(2048)]
        space.copy_(tensor(*values))
        starts = [draw.randrange(0, 2040, draw.choice([1, 64])) for _ in range(3)]
        if i == 0:
            starts = [0, 64, 128]
        x, y, z = (values[s : s + 8] for s in starts)
        h = [a + b for a, b in zip(x, y, strict=True)]
        new = [a + b for a, b in zip(h, z, strict=True)]
        got = f(*(Tensor(space.address + 8 * s, (8,)) for s in starts))
        assert got.tolist() == [a + b for a, b in zip(h, new, strict=True)]
        assert space.tolist()[starts[0] : starts[0] + 8] == new
    assert explained(f) == [("bind", "")]
