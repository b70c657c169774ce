"""Replays that would use memory that is gone are refused, if it is watched: on the CPU backend."""

import _thread
import gc
import itertools
import sys
import warnings
import weakref
from types import ModuleType, SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph import interop
from accelerator_graph._checking import observer
from accelerator_graph.interop import registry
from accelerator_graph.interop.base import Framework

HERE = __file__
VARIABLE = "ACCELERATOR_GRAPH_CHECK"
LIMIT = 120


class Array:
    """An array of the stand-in's."""

    __slots__ = ("__weakref__", "device", "dtype", "shape", "standin")

    __module__ = "standin.arrays"

    def __init__(self, *shape):
        self.shape, self.dtype, self.device = shape, "float32", "lane:0"


class Standin(Framework):
    """Sees what its function `use` is given."""

    api_version = 1

    def backend(self):
        return "cpu"

    def observe(self, pool, used):
        standin = sys.modules["standin"]
        standin.log.append(("observe", pool))
        standin.used.append(used)

        def undo():
            standin.log.append(("undo", pool))
            if used in standin.used:
                standin.used.remove(used)

        return undo


SOURCE = """
def use(array):
    return [used(array) for used in used]

def work(array, done):
    use(array)
    done.release()
"""


@pytest.fixture(name="standin", autouse=True)
def standin_fixture(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    standin = ModuleType("standin")
    standin.used, standin.log = [], []
    exec(SOURCE, standin.__dict__)
    monkeypatch.setitem(sys.modules, "standin", standin)
    interop.register("standin", Standin)
    yield standin
    interop.unregister("standin")
    assert not standin.used


@pytest.fixture(name="runs")
def runs_fixture():
    return []


def watched(g):
    """What a graph watches."""
    lists = [each for each in g._runner.observations if isinstance(each, observer.Watchlist)]
    return lists[0] if lists else ()


def capture(standin, runs, *arrays, **options):
    """A graph over arrays, on a stream of its own."""
    stream = ag.Stream(backend="cpu")
    g = ag.Graph(stream=stream, **{"observe": ag.ownership(), **options})
    with g:
        for array in arrays:
            standin.use(array)
        stream.launch(runs.append, 1)
    return g


def line(text):
    """The place of the one line in this file that has a text."""
    with open(HERE) as file:
        [number] = [i for i, each in enumerate(file, 1) if each.rstrip().endswith(text)]
    return f"{HERE}:{number}"


def ways(g):
    """Every way to replay a graph."""
    return [g.replay, g.bind(), g.bind(ag.Stream(backend="cpu")), lambda: g.replay(g.stream)]


def refused(g, runs, *more):
    """What is said of it."""
    said = set()
    for replay in [*ways(g), *more]:
        with pytest.raises(ag.GraphStateError) as info:
            replay()
        said.add(str(info.value))
    g.stream.synchronize()
    assert runs == []
    [message] = said
    return message


def runs_well(g, runs, *more):
    for replay in [*ways(g), *more]:
        replay()
        g.stream.synchronize()
        gc.collect()
        deadline = itertools.count()
        while not runs and next(deadline) < 1_000_000:  # on another stream
            pass
        assert runs.pop() == 1
        assert not runs


# ---- what frameworks see -----------------------------------------------------------------------


@pytest.mark.promise("freed-input-is-refused")
def test_a_freed_input_is_refused_and_named(standin, runs):
    x = Array(4, 2)
    stream = ag.Stream(backend="cpu")
    g = ag.Graph(stream=stream, observe=ag.ownership())
    with g:
        standin.use(x)  # here it is used
        stream.launch(runs.append, 1)
    bound = g.bind()
    runs_well(g, runs, bound)
    del x  # here it is freed
    message = refused(g, runs, bound)
    first, fact = message.split("\n  ")
    assert first == (
        "An array that the graph uses is gone, and a replay would use what is there now; keep arrays as long "
        "as the graph, for example with graph.retain(x), and capture again."
    )
    assert fact == (
        "standin.Array of shape (4, 2), float32, on lane:0, first used at "
        f"{line('# here it is used')}, freed at {line('# here it is freed')}"
    )


def test_several_are_counted_and_the_first_are_shown(standin, runs):
    arrays = [Array(i) for i in range(8)]
    g = capture(standin, runs, *arrays)
    del arrays[1:]
    message = refused(g, runs)
    assert message.startswith("7 arrays that the graph uses are gone")
    assert [f"shape ({i},)" in message for i in range(8)] == [False, *[True] * 5, False, False]
    assert "and 2 more" in message


def test_what_is_kept_is_fine(standin, runs):
    x, y = Array(), Array()
    g = capture(standin, runs, x, g_keeps := y)
    g.retain(x)
    del x, y
    runs_well(g, runs)
    del g_keeps
    refused(g, runs)


def test_what_is_taken_back_is_fine(standin, runs):
    x = Array()
    stream = ag.Stream(backend="cpu")
    with ag.Graph(stream=stream, observe=ag.ownership()) as g:
        [forget] = standin.use(x)
        stream.launch(runs.append, 1)
        forget()
        forget()
    del x
    runs_well(g, runs)


def test_work_in_a_thread_of_the_frameworks_own(standin, runs):
    x, done = Array(), _thread.allocate_lock()
    done.acquire()
    stream = ag.Stream(backend="cpu")
    with ag.Graph(stream=stream, observe=ag.ownership()) as g:
        _thread.start_new_thread(standin.work, (x, done))
        assert done.acquire(timeout=LIMIT)  # here it goes on
        stream.launch(runs.append, 1)
    deadline = itertools.count()
    while sys.getrefcount(x) > 2 and next(deadline) < 10_000_000:  # the thread's
        pass
    del x
    assert f"used at {HERE}:" in refused(g, runs)


def test_a_class_of_the_users_own_does_not_hide_the_place(standin, runs):
    class Mine(Array):
        __module__ = __name__

    x = Mine()
    g = capture(standin, runs, x)
    del x
    assert f"standin.{Mine.__qualname__} of shape (), float32, on lane:0, first used at {HERE}:" in refused(
        g, runs
    )


def test_observing_ends_with_the_capture(standin, runs):
    g = capture(standin, runs)
    assert [what for what, _ in standin.log] == ["observe", "undo"]
    assert {pool for _, pool in standin.log} == {g.pool()}


def test_observing_ends_with_a_capture_that_fails(standin, runs):
    x, y = Array(), Array()
    stream = ag.Stream(backend="cpu")
    g = ag.Graph(stream=stream, observe=ag.ownership())
    g.watch(y)
    with pytest.raises(ZeroDivisionError), g:
        standin.use(x) and 1 // 0
    assert [what for what, _ in standin.log] == ["observe", "undo"]
    del x
    with g:
        stream.launch(runs.append, 1)
    runs_well(g, runs)
    del y
    refused(g, runs)


def test_an_error_in_observe_leaves_no_trace(standin, runs, monkeypatch):
    monkeypatch.setattr(Standin, "observe", lambda *_: 1 // 0)
    stream = ag.Stream(backend="cpu")
    g = ag.Graph(stream=stream, observe=ag.ownership())
    with pytest.raises(ZeroDivisionError), g:
        raise AssertionError
    assert g.state == "empty"
    monkeypatch.setattr(Standin, "observe", Framework.observe)
    with g:
        stream.launch(runs.append, 1)
    runs_well(g, runs)


# ---- on and off --------------------------------------------------------------------------------


@pytest.mark.promise("nobody-watches")
@pytest.mark.parametrize(
    ("variable", "given", "on"),
    [
        (None, None, False),
        ("", None, False),
        ("0", None, False),
        (" 1 ", None, True),
        ("1", True, True),
        ("0", True, False),
    ],
)
def test_the_variable_adds_it_or_forbids_it(standin, runs, monkeypatch, variable, given, on):
    if variable is not None:
        monkeypatch.setenv(VARIABLE, variable)
    capture(standin, runs, observe=ag.ownership() if given else ())
    assert bool(standin.log) is on


@pytest.mark.parametrize("value", ["yes", "true", "2", "every", "every:0", "every:-1", "always:3"])
def test_other_values_are_errors(monkeypatch, value):
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ValueError, match=f"^{VARIABLE} is {value!r}; set it to 1, 0 or every:N, "):
        ag.Graph()


def test_nothing_is_in_the_way_of_replays_without_it(standin, runs, monkeypatch):
    monkeypatch.setattr(observer.Watchlist, "check", lambda self: pytest.fail("it is checked"))
    x = Array()
    runs_well(capture(standin, runs, x, observe=()), runs)
    with pytest.raises(pytest.fail.Exception, match="it is checked"):
        capture(standin, runs, x).replay()


@pytest.mark.parametrize("asked", ["by the variable", "by its option"])
def test_graphed_refuses_as_well(standin, runs, monkeypatch, asked):
    np = pytest.importorskip("numpy")
    if asked == "by the variable":
        monkeypatch.setenv(VARIABLE, "1")
    weights = [Array()]

    @ag.graphed(warmup=1, check=asked == "by its option")
    def f(x):
        standin.use(weights[0])
        out = np.empty_like(x)
        ag.current_stream().launch(np.add, x, 1, out)
        return out

    with ag.Stream(backend="cpu") as stream:
        for i in range(4):
            y = f(np.full(3, i))
            stream.synchronize()
            assert (y == i + 1).all()
        assert f.cache_info().replays == 3
        weights[0] = Array()
        with pytest.raises(ag.GraphStateError, match="gone"):
            f(np.full(3, 9))
        f.cache_clear()
        for i in range(4):
            y = f(np.full(3, i))
            stream.synchronize()
            assert (y == i + 1).all()


# ---- watch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "during", "after", "kept", "bound"])
def test_watch_in_any_state(runs, when):
    stream, x = ag.Stream(backend="cpu"), Array()
    g = ag.Graph(when == "kept", stream=stream)
    if when == "before":
        assert g.watch(x) is x
    with g:
        stream.launch(runs.append, 1)
        if when == "during":
            g.watch(x)
    more = []
    if when == "kept":
        g.watch(x)
        g.instantiate()
    if when == "bound":
        more.append(g.bind())
        g.replay(), more[0](), stream.synchronize(), runs.clear()
        g.watch(x)
    if when == "after":
        g.watch(x)
    g.watch(x)
    runs_well(g, runs, *more)
    del x
    message = refused(g, runs, *more)
    assert f"watched at {HERE}:" in message
    if when == "kept":
        refused(g, runs)
        g.instantiate()
        refused(g, runs)
    g.reset()
    with g:
        stream.launch(runs.append, 1)
    runs_well(g, runs)


def test_watched_in_a_capture_that_failed_is_forgotten(runs):
    x = Array()
    stream = ag.Stream(backend="cpu")
    g = ag.Graph(stream=stream)
    with pytest.raises(ZeroDivisionError), g:
        g.watch(x) and 1 // 0
    del x
    with g:
        stream.launch(runs.append, 1)
    runs_well(g, runs)


def test_a_view_of_numpys_keeps_the_memory(standin, runs):
    np = pytest.importorskip("numpy")
    x = np.arange(12).reshape(3, 4)[1:]
    g = capture(standin, runs, observe=())
    g.watch(x)
    y = x[0]
    del x
    runs_well(g, runs)
    del y
    assert "numpy.ndarray of shape (2, 4), int64, on cpu, at 0x" in refused(g, runs) or np.__version__ < "2"


class Memory:
    """As CuPy's: without weak references."""

    __slots__ = ("__dict__",)


class OnDevice:
    def __init__(self, memory):
        self.data, self.shape = SimpleNamespace(mem=memory, ptr=4096), (3,)

    @property
    def __cuda_array_interface__(self):
        raise AssertionError("it may synchronise")


def test_the_memory_of_an_array_on_a_device_is_watched(standin, runs):
    x = OnDevice(Memory())
    g = capture(standin, runs, observe=())
    g.watch(x)
    y = OnDevice(x.data.mem)
    del x
    g.watch(y)
    runs_well(g, runs)
    del y
    message = refused(g, runs)
    assert message.startswith("2 arrays")
    assert "OnDevice of shape (3,), at 0x1000, watched" in message


@pytest.mark.parametrize("what", [3, "text", b"bytes", (1, 2)])
def test_what_can_not_be_watched(what):
    g = ag.Graph()
    with pytest.raises(
        TypeError, match=r"can't be referenced weakly; keep it alive with graph\.retain\(x\)\.$"
    ):
        g.watch(what)
    assert not any(g._observers)


def test_an_array_over_bytes_can_not_be_watched():
    np = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match=r"'ndarray', whose memory is of type 'bytes', can't be watched"):
        ag.Graph().watch(np.frombuffer(b"12345678")[:1])


def test_a_graph_does_not_keep_what_it_watches_nor_itself(standin, runs):
    x = Array()
    g = capture(standin, runs, x)
    entry = next(iter(watched(g)._entries.values()))
    assert entry() is x
    del x
    assert entry() is None
    gc.collect()
    gc.disable()
    try:
        gone = weakref.ref(g)
        del g
        assert gone() is None
    finally:
        gc.enable()


# ---- torch -------------------------------------------------------------------------------------


@pytest.fixture(name="torch")
def torch_fixture(monkeypatch):
    """torch without a GPU: what it does on the CPU is taken for captured work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
    from accelerator_graph.interop._torch import observing
    from accelerator_graph.interop.torch import Torch

    class OnHost(Torch):
        backend = Standin.backend
        current_stream = recorder = lambda *_: None
        prepare = route = release = lambda *_: None

    monkeypatch.setitem(registry._made, "torch", OnHost())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_snapshot", list)
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(observing, "_on_device", lambda tensor: True)
    yield torch
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def captured(runs, work, every=0):
    stream = ag.Stream(backend="cpu")
    g = ag.Graph(stream=stream, observe=ag.ownership(every))
    with g:
        result = g.retain(work())
        stream.launch(runs.append, 1)
    return g, result


def found(g):
    return len(watched(g).arrays())


def test_nothing_more_of_torch_is_imported(torch, runs, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    monkeypatch.delitem(vars(torch), "_dynamo", raising=False)
    x = torch.ones(3)
    captured(runs, lambda: x + 1)
    assert "torch._dynamo" not in sys.modules


def test_tensors_that_operators_use(torch, runs):
    x, y = torch.ones(3), torch.ones(3)
    nested = [torch.ones(2), torch.ones(4)]

    def work():
        made = x + 1  # torch
        made += y
        made.mul_(2)
        torch.cat(nested).sum()
        torch.empty(5).fill_(1)

    g, _ = captured(runs, work)
    assert found(g) == 4
    runs_well(g, runs)
    nested.pop()
    message = refused(g, runs)
    assert message.startswith("An array")
    assert "torch.Tensor of shape (4,), torch.float32, on cpu, at 0x" in message


def test_a_view_keeps_the_storage(torch, runs):
    x = torch.ones(3)
    arrays = [x]
    g, _ = captured(runs, lambda: arrays[0] + 1)
    arrays[0] = x[1:]
    del x
    runs_well(g, runs)
    arrays.clear()
    refused(g, runs)


@pytest.mark.parametrize("how", ["set_", "data", "resize_"])
def test_a_tensor_that_was_given_other_memory(torch, runs, how):
    x = torch.nn.Parameter(torch.ones(3))
    # nobody says that memory moves under a storage that lives, so replays have to look
    g, _ = captured(runs, lambda: (x.detach() + 1).sum(), every=int(how == "resize_"))
    runs_well(g, runs)
    if how == "set_":
        x.detach().set_(torch.ones(3))
        x.data = torch.ones(3)
    elif how == "data":
        x.data = torch.ones(3)
    else:
        x.untyped_storage().resize_(0)
    assert ("given other memory" in refused(g, runs)) is (how == "resize_")


def test_a_backward_pass(torch, runs):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    inputs = [torch.ones(2, 3)]

    def work():
        net(inputs[0]).sum().backward()

    g, _ = captured(runs, work)
    assert found(g) == 5  # four parameters, and the input; gradients were made here
    net.zero_grad()
    runs_well(g, runs)
    inputs.clear()
    refused(g, runs)


def test_foreign_memory_sparse_and_fake_tensors_are_let_be(torch, runs):
    from torch._subclasses.fake_tensor import FakeTensorMode

    foreign = torch.frombuffer(bytearray(8), dtype=torch.uint8)
    sparse = torch.eye(3).to_sparse()
    with FakeTensorMode():
        fake = torch.ones(3)

    def work():
        foreign + 1
        sparse @ torch.ones(3, 1)
        fake + 1
        torch.ones(0) + 1

    g, _ = captured(runs, work)
    assert found(g) == 0


def test_what_the_pool_holds_is_no_input(torch, runs, monkeypatch):
    arrays = [torch.ones(3), torch.ones(3)]

    def work():
        arrays[0] + arrays[1]
        [(_, pool)] = sys.modules["standin"].log
        segments = [
            {"address": array.data_ptr(), "total_size": 4, "segment_pool_id": each, "blocks": []}
            for array, each in zip(arrays, [(0, 0), list(pool)], strict=True)
        ]
        monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)

    g, _ = captured(runs, work)
    assert found(g) == 1
    arrays.pop()
    runs_well(g, runs)
    arrays.pop()
    refused(g, runs)


def test_tensors_that_others_are_made_of(torch, runs):
    from torch.testing._internal.two_tensor import TwoTensor

    two = TwoTensor(torch.ones(3), torch.ones(3))
    g, _ = captured(runs, lambda: two + 1)
    assert found(g) == 2


def test_work_that_is_not_captured_is_not_seen(torch, runs, monkeypatch):
    x = torch.ones(3)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    g, _ = captured(runs, lambda: x + 1)
    assert found(g) == 0


def test_a_mode_of_the_users_that_is_left_on(torch, runs):
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    x, stack = torch.ones(3), torch.utils._python_dispatch._get_current_dispatch_mode_stack
    with Mode() as mode:
        g, _ = captured(runs, lambda: x + 1)
        assert stack() == [mode]
        undo = registry._made["torch"].observe((1, 0), lambda array: None)
        assert len(stack()) == 2
        undo()
        undo()
        assert stack() == [mode]
    assert found(g) == 1


@pytest.mark.parametrize("warm", [False, True])
def test_compiled_code_stays_compiled(torch, runs, warm):
    compiled, weights, inputs = [], torch.ones(3, 3), [torch.ones(3, 3)]

    def backend(graph, examples):
        compiled.append(graph)
        return graph.forward

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f = torch.compile(lambda x: torch.relu(x @ weights) + 1, backend=backend, fullgraph=True)
        if warm:
            f(inputs[0])
        g, y = captured(runs, lambda: f(inputs[0]))
    assert len(compiled) == 1
    assert torch.equal(y, torch.full((3, 3), 4.0))
    assert found(g) == 2
    inputs.clear()
    assert f"first used at {HERE}:" in refused(g, runs)


def test_a_storage_in_the_place_of_one_that_is_gone(torch):
    from accelerator_graph.interop._torch import observing

    x, used = torch.ones(3), []
    inputs = observing._Inputs(torch, used.append)
    inputs._known[id(x.untyped_storage())] = weakref.ref(torch.ones(1).untyped_storage())
    inputs.note([x], None)
    inputs.note([x], None)
    assert len(used) == 1


def test_pinned_memory_and_that_of_the_device_are_watched(torch, monkeypatch):
    from accelerator_graph.interop._torch import observing

    on_device, pinned, ordinary, used = torch.ones(1), torch.ones(2), torch.ones(3), []
    monkeypatch.setattr(observing, "_on_device", lambda tensor: tensor is on_device)
    pinned.is_pinned = lambda: True
    inputs = observing._Inputs(torch, used.append)
    inputs.note([on_device, pinned, ordinary], None)
    inputs.note([pinned, ordinary], None)  # a copy between the two enqueues nothing here
    assert [len(each) for each in used] == [1, 2]
