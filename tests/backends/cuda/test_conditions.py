"""Loops and branches as conditional nodes: what stands in them, what is refused, and what is left."""

import contextlib
import ctypes
import gc
import sys
from array import array
from types import SimpleNamespace

import pytest

from lanes import require

pytestmark = require("cuda")

import accelerator_graph as ag
from accelerator_graph._core import ownership
from accelerator_graph.backends.base import addresses_in
from accelerator_graph.testing.works.cuda import CudaWork
from backends.cuda.bench import call, current, driver, need_conditions
from core.test_interrupts import Interrupter, nothing_is_captured, sample
from processes import execute

LESS = 2**32 - 1


@pytest.fixture
def work(backend):
    need_conditions(backend)
    return CudaWork()


@pytest.fixture
def stream(work):
    with ag.Stream(backend="cuda") as stream:
        yield stream
        stream.synchronize()


def step(work, cell, a=1, b=1):
    work.enqueue(ag.current_stream(), cell, a, b)


def countdown(work, cell, body=lambda: None, **how):
    def once():
        body()
        step(work, cell, 1, LESS)

    return ag.while_((cell, "uint32"), once, **how)


def can_be_captured(graph, work, stream, cell):
    """Check that a graph whose capture has failed is empty, and that the next one is right."""
    assert graph.state == "empty"
    with graph:
        step(work, cell, 0, 7)
    graph.replay()
    stream.synchronize()
    assert work.read(cell) == 7


def put(work, stream, cell, value):
    work.enqueue(stream, cell, 0, value)


def test_a_graph_with_a_loop_is_one_graph(work, stream):
    cell, counter = work.new(), work.new()
    with ag.Graph(keep_graph=True) as graph:
        loop = countdown(work, counter, lambda: step(work, cell))
        ag.cond((cell, "uint32"), lambda: step(work, cell), lambda: step(work, cell, 0, 100))
    kinds = [node.kind for node in graph.describe().nodes]
    assert kinds == ["kernel", "conditional", "kernel", "conditional"]
    loops, branches = (graph.describe().nodes[i] for i in (1, 3))
    assert [loops.name, branches.name] == ["while", "if"]
    assert [len(nodes) for nodes, _ in (*loops.bodies, *branches.bodies)] == [3, 1, 1]
    launch = graph.bind()
    for times, want in ((3, 4), (0, 5), (1000, 1006)):
        put(work, stream, counter, times)
        launch()
        stream.synchronize()
        assert (work.read(cell), loop.count) == (want, times)
    native = graph._runner.captured.native
    found = addresses_in(ag.backends.get("cuda").parameters(native))
    assert found is not None
    assert {cell, counter} <= found
    assert not any("not looked at" in each for each in graph.check().notes)
    assert ag.GraphDescription.from_json(graph.describe().to_json()) == graph.describe()
    assert len(graph.profile(replays=2).times) == 2
    other = ag.Stream(backend="cuda")
    put(work, stream, counter, 2)
    stream.synchronize()
    graph.replay(other)
    other.synchronize()
    assert (work.read(counter), loop.count) == (0, 2)


def captured_loop(work, counter, **how):
    with ag.Graph(keep_graph=True, **how) as graph:
        step(work, counter)
        countdown(work, counter)
    return graph


@pytest.mark.parametrize("nested", [False, True])
def test_a_call_that_the_thread_may_not_make_breaks_the_graph_around_a_body(work, stream, nested):
    flag, graph = work.new(), ag.Graph(stream=stream)

    def body():
        step(work, flag)
        driver.cuMemAlloc(64)
        step(work, flag)

    @current()
    def capture(observe):
        with observe, graph:
            ag.while_((flag, "uint32"), lambda: ag.cond((flag, "uint32"), body) if nested else body())

    with pytest.raises(ag.CaptureError) as found:
        capture(contextlib.nullcontext())
    assert found.value.reason == "invalidated"
    where = f"test_conditions.py:{body.__code__.co_firstlineno + 2} in "
    with pytest.raises(ag.CaptureError, match=where):
        capture(ag.diagnose())
    can_be_captured(graph, work, stream, flag)


BOTH_BROKEN = """
import sys

import accelerator_graph as ag
from accelerator_graph.testing.works.cuda import CudaWork
from cuda.bindings import driver

by, nested = sys.argv[1], sys.argv[2] == "True"
work = CudaWork()
cell, side = work.new(), ag.Stream(backend="cuda")
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
with ag.Stream(backend="cuda") as stream:
    def body():
        if by == "calls":
            driver.cuStreamSynchronize(ag.current_stream().handle)
            driver.cuMemAlloc(64)
        else:
            side.wait(ag.current_stream())

    graph = ag.Graph()
    try:
        with graph:
            side.wait(stream)
            stream.wait(side)
            ag.while_((cell, "uint32"), lambda: ag.cond((cell, "uint32"), body) if nested else body())
    except ag.CaptureError as error:
        chain = [error]
        while chain[-1].__cause__ is not None:
            chain.append(chain[-1].__cause__)
        notes = [note for each in chain for note in getattr(each, "__notes__", ())]
        print(error, *notes, graph.state, sep="; ")
    for _ in range(3):
        graph = ag.Graph()
        with graph:
            ag.while_((cell, "uint32"), lambda: work.enqueue(ag.current_stream(), cell, 1, 2**32 - 1))
        work.enqueue(stream, cell, 0, 3)
        graph.replay()
        stream.synchronize()
    print(work.read(cell))
"""


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("by", "said"), [("calls", "an earlier call broke"), ("side", "the stream belongs to another capture")]
)
def test_a_body_and_its_graph_that_are_both_broken_do_not_end_the_process(work, by, said, nested):
    """A process of its own: a stream goes on capturing, for which its context can't be waited for."""
    run = execute([sys.executable, "-c", BOTH_BROKEN, by, str(nested)])
    assert run.returncode == 0, run.stderr
    error, count = run.stdout.splitlines()
    assert said in error
    assert "start the process anew" in error
    assert error.endswith("empty")
    assert count == "0"


@pytest.mark.promise("control-native-refuses")
def test_what_a_graph_with_loops_of_the_device_does_not_do(work, stream):
    """It is as it was after that; other work takes its place in a new executable."""
    counter = work.new()
    graph, alike, plain = (
        captured_loop(work, counter),
        captured_loop(work, counter),
        ag.Graph(keep_graph=True),
    )
    with plain:
        step(work, counter, 0, 5)
    one_executable = (
        "has conditional nodes, so only one graph at a time can have an executable of it; capture it"
    )
    for change in (lambda: graph.update(alike), lambda: plain.update(alike), graph.clone):
        with pytest.raises(ag.UnsupportedError, match=one_executable):
            change()
    graph.replay()
    for node in (2, (2, 0)):
        with pytest.raises(ValueError, match=r"node 2 can't be changed, or is not there"):
            graph.set_node(node, enabled=False)
    with (
        pytest.raises(
            ag.CaptureError, match="has conditional nodes, which no driver takes inside another graph"
        ),
        ag.Graph(),
    ):
        graph.replay(stream)
    for each, want in ((graph, 0), (plain, 5)):
        each.replay()
        stream.synchronize()
        assert work.read(counter) == want
    assert not graph.update(plain).in_place
    put(work, stream, counter, 1)
    graph.replay()
    stream.synchronize()
    assert work.read(counter) == 5


@pytest.mark.promise("control-endless")
@pytest.mark.parametrize("native", [True, False])
def test_a_loop_whose_flag_no_work_writes_is_warned_of(work, stream, native):
    """A kernel that has no address in the flag's array; that of an address alone may be in any array."""
    with current():
        memory = int(call(driver.cuMemAlloc, 64))
    other, address = work.new(), memory + 32
    inside, alone = Array(address, 4), (address, "uint32")
    around = Array(address)
    around.data.mem.ptr, around.data.mem.size = memory, 64
    here = ag.current_stream

    def inner(written=other):
        step(work, other)
        ag.cond((other, "uint32"), lambda: step(work, written), native=native)

    for body, warns in (
        (lambda: step(work, other), (inside, around)),
        (lambda: here().fill(other, 0, 4), (inside, around, alone)),
        (lambda: here().copy(other, address, 4), (inside, around, alone)),
        (lambda: step(work, address), ()),
        (lambda: step(work, memory), (inside,)),
        (lambda: here().fill(memory, 0, 64), ()),
        (lambda: here().copy(address, other, 4), ()),
        (inner, (inside, around)),
        (lambda: inner(address), ()),
    ):
        for flag in (inside, around, alone):
            match = r"the loop at .*: no work in its body writes its flag"
            warned = pytest.warns(RuntimeWarning, match=match) if flag in warns else contextlib.nullcontext()
            with warned, ag.Graph(keep_graph=True):
                ag.while_(flag, body, native=native)
    with ag.Graph():
        ag.while_(inside, lambda: step(work, other), native=native)
    with current():
        call(driver.cuMemFree, memory)


def test_a_loop_can_be_captured_and_instantiated_again(work, stream):
    cells, counter = [work.new() for _ in range(2)], work.new()
    with ag.Graph(keep_graph=True) as graph:
        countdown(work, counter, lambda: step(work, cells[0]))

    def recapture():
        with graph.recapture():
            countdown(work, counter, lambda: step(work, cells[1]))

    launch = graph.bind()
    for change, want in (
        (lambda: None, [2, 0]),
        (graph.instantiate, [4, 0]),
        (recapture, [4, 2]),
    ):
        change()
        gc.collect()
        put(work, stream, counter, 2)
        launch()
        stream.synchronize()
        assert [work.read(cell) for cell in cells] == want


class Array:
    """An array of one element in memory of its own, as CuPy has them."""

    def __init__(self, address, whole=4):
        self.shape, self.dtype = (1,), SimpleNamespace(kind="u", itemsize=4)
        self.data = SimpleNamespace(mem=SimpleNamespace(ptr=address, size=whole), ptr=address)

    @property
    def __cuda_array_interface__(self):
        return {"shape": (1,), "typestr": "<u4", "data": (self.data.ptr, False), "version": 3}


FORMS = {
    "while": lambda flag, body: ag.while_(flag, body),
    "then": lambda flag, body: ag.cond(flag, body),
    "otherwise": lambda flag, body: ag.cond(flag, int, body),
    "inside": lambda flag, body: ag.while_(flag, lambda: ag.cond(flag, body)),
}


@pytest.mark.promise("control-native-refuses")
@pytest.mark.parametrize("form", FORMS)
def test_work_on_the_stream_outside_of_a_body_is_refused(work, stream, form):
    cell, graph = work.new(), ag.Graph()
    with pytest.raises(ag.CaptureError, match="work in a body went to the stream outside of it"), graph:
        FORMS[form]((cell, "uint32"), lambda: work.enqueue(stream, cell, 1, 1))
    assert graph.state == "empty"
    with graph:
        step(work, cell)
    graph.replay()
    stream.synchronize()
    assert work.read(cell) == 1


def test_a_flag_is_on_the_device_of_the_capture(work, stream):
    class Elsewhere(Array):
        def __dlpack_device__(self):
            return 2, 1  # CUDA's kind of device, and its number

    host, there = array("I", [1]), Elsewhere(work.new())
    for flag, error, said in (
        (there, ValueError, "while_: the flag is on device 1 and the current stream on device 0"),
        (host, TypeError, "while_: the flag is in host memory"),
    ):
        with ag.Graph() as graph:
            step(work, work.new())
            with pytest.raises(error, match=said):
                ag.while_(flag, int)
        assert graph.num_nodes == 1


def test_loops_on_another_device(work, stream):
    if ag.backends.get("cuda").device_count < 2:
        pytest.skip("there is one device only")
    there = CudaWork(1)
    for each, where in ((there, ag.Stream(1, backend="cuda")), (work, stream)):
        counter, cell = each.new(), each.new()
        with where, ag.Graph() as graph:
            loop = countdown(each, counter, lambda each=each, cell=cell: step(each, cell))
        put(each, where, counter, 3)
        graph.replay()
        where.synchronize()
        assert (each.read(cell), loop.count) == (3, 3)


@pytest.mark.promise("control-native-refuses")
@pytest.mark.filterwarnings("ignore:nothing was recorded inside the label 'nothing'")
@pytest.mark.parametrize("kind", ["host", "pageable"])
def test_what_the_device_does_not_run_is_refused_by_its_label_and_its_line(work, stream, kind):
    flag, data = work.new(), bytearray(4)
    nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    function = driver.CUhostFn(ctypes.cast(nothing, ctypes.c_void_p).value)

    def misplaced():
        if kind == "host":
            driver.cuLaunchHostFunc(ag.current_stream().handle, function, 0)
        else:
            ag.current_stream().copy(flag, data)

    def body():
        if kind == "pageable":
            step(work, flag)
        with ag.label("part"):
            with ag.label("nothing"):
                pass
            misplaced()

    line = misplaced.__code__.co_firstlineno + (2 if kind == "host" else 4)
    what = {"host": "a node of the kind 'host'", "pageable": "a copy to the device from memory that is not"}
    for observe, where in (
        ((), ""),
        (ag.diagnose(), rf" \(recorded at .*test_conditions.py:{line} in .*misplaced\)"),
        (ag.stacks(), rf" \(recorded at .*test_conditions.py:{line} in .*misplaced\)"),
    ):
        graph = ag.Graph(observe=observe)
        said = rf"a body has {what[kind]}.*{where}, in the label 'part', which the device does not run there"
        with pytest.raises(ag.CaptureError, match=said), graph:
            ag.while_((flag, "uint32"), lambda: ag.cond((flag, "uint32"), body))
        assert graph.state == "empty"
    with graph:
        ag.while_((flag, "uint32"), body, native=False)
    graph.replay()


@pytest.mark.parametrize("nested", [False, True])
def test_a_call_that_breaks_a_body_is_found_by_diagnosis(work, stream, nested):
    """And with those outside of it: no half a loop is run for its list."""
    flag, graph = work.new(), ag.Graph(stream=stream)
    put(work, stream, flag, 1)

    def body():
        step(work, flag)
        ag.current_stream().synchronize()

    def capture(observe, *before):
        with observe, graph:
            step(work, flag)
            for each in before:
                each()
            ag.while_((flag, "uint32"), lambda: ag.cond((flag, "uint32"), body) if nested else body())

    line = body.__code__.co_firstlineno + 2
    where = rf"test_conditions.py:{line} in \S*body: Stream.synchronize waits for work"
    with pytest.raises(ag.CaptureError, match=r"the capture of a body of the .* failed"):
        capture(contextlib.nullcontext())
    with pytest.raises(ag.CaptureError, match=rf"the capture of a body of the .* failed at .*{where}"):
        capture(ag.diagnose())
    with pytest.raises(ag.CaptureError, match=rf"(?s)2 calls of .*{where}.*pass native=False") as caught:
        capture(ag.diagnose(all=True), stream.synchronize)
    assert [each.call for each in caught.value.calls] == ["Stream.synchronize"] * 2
    can_be_captured(graph, work, stream, flag)


@pytest.mark.promise("control-native-refuses")
def test_a_break_in_a_body_of_the_device_is_refused(work, stream):
    flag = work.new()
    for mark in (ag.eager(int), ag.graph_break):
        graph = ag.Graph()
        with (
            pytest.raises(ag.CaptureError, match="can't break the capture of a body of the loop at"),
            ag.graph(graph, breaks=True),
        ):
            ag.while_((flag, "uint32"), lambda mark=mark: (step(work, flag), mark()))
        assert graph.state == "empty"
    with pytest.raises(ag.CaptureError, match="would be tested by the host"), ag.Graph():
        countdown(work, flag, lambda: countdown(work, flag, native=False))


def test_loops_of_the_device_stand_in_captures_with_breaks_and_in_loops_of_the_host(work, stream):
    cell, outer, inner, seen = work.new(), work.new(), work.new(), []
    look = ag.eager(lambda: (stream.synchronize(), seen.append(work.read(cell))))
    put(work, stream, outer, 2)

    def body():
        put(work, ag.current_stream(), inner, 3)
        countdown(work, inner, lambda: step(work, cell))
        look()

    graph = ag.Graph(keep_graph=True)
    with ag.graph(graph, stream=stream, breaks=True):
        countdown(work, outer, body, native=False)
    assert seen == [3, 6]
    put(work, stream, outer, 1)
    graph.replay()
    stream.synchronize()
    assert seen == [3, 6, 9]
    ((nodes, _),) = graph.describe().nodes[0].bodies
    assert [node.kind for node in nodes].count("conditional") == 1


@pytest.mark.parametrize("breaks_it", [True, False])
def test_a_body_that_fails_leaves_no_capture(work, stream, breaks_it):
    flag, graph, streams = work.new(), ag.Graph(), []

    def body():
        streams.append(ag.current_stream().handle)
        step(work, flag)
        if breaks_it:
            ag.current_stream().synchronize()
        raise ZeroDivisionError

    def capture():
        with graph:
            step(work, flag)
            countdown(work, flag, lambda: ag.while_((flag, "uint32"), body))

    for _ in range(2):
        with pytest.raises((ag.CaptureError, ag.DriverError, ZeroDivisionError)):
            capture()
    assert len(set(streams)) == 1  # frameworks may know it, so it is not destroyed
    can_be_captured(graph, work, stream, flag)


def test_a_fork_that_a_body_does_not_join_is_an_error(work, stream):
    flag, graph, side = work.new(), ag.Graph(), ag.Stream(backend="cuda")

    def body(joins):
        here = ag.current_stream()
        step(work, flag, 1, LESS)
        side.wait(here)
        work.enqueue(side, cell, 1, 1)
        if joins:
            here.wait(side)

    cell = work.new()
    with pytest.raises(ag.CaptureError), graph:
        ag.while_((flag, "uint32"), lambda: body(False))
    assert graph.state == "empty"

    with graph:
        ag.while_((flag, "uint32"), lambda: body(True))
    put(work, stream, flag, 3)
    graph.replay()
    stream.synchronize()
    assert work.read(cell) == 3


def test_a_mark_in_a_body_of_an_ordinary_capture_is_called(work, stream):
    cell, seen, side = work.new(), [], ag.Stream(backend="cuda")

    def body():
        step(work, cell, 1, LESS)
        ag.graph_break()
        ag.eager(seen.append)(1)

    with ag.graph(ag.Graph(), stream=stream, breaks=True):
        step(work, cell)
        with ag.graph(ag.Graph(), stream=side):
            ag.while_((cell, "uint32"), body)
        ag.eager(seen.append)(2)
        step(work, cell)
    assert seen == [1, 2]


def test_what_an_ordinary_capture_inside_a_body_calls_is_called(work, stream):
    """It does not break that capture, and so it does not break the one around it either."""
    cell, seen, side = work.new(), [], ag.Stream(backend="cuda")
    outer, inner = ag.Graph(), ag.Graph()

    def body():
        with ag.graph(inner, stream=side):
            ag.eager(seen.append)(1)
            ag.graph_break()
            work.enqueue(side, cell, 1, 1)
        step(work, cell, 1, LESS)

    with ag.graph(outer, stream=stream, breaks=True):
        ag.while_((cell, "uint32"), body)
    assert seen == [1]
    stream.synchronize()  # the run in the capture reads the cell, too
    inner.replay()
    side.synchronize()
    assert work.read(cell) == 1
    outer.replay()
    stream.synchronize()
    assert work.read(cell) == 0


def test_collectives_in_a_body_are_the_graphs(work, stream):
    flag = work.new()

    def note(kind):
        step(work, flag, 1, LESS)
        ag.note_collective(kind, "float32", 4)

    with ag.Graph() as graph:
        note("first")
        ag.while_(
            (flag, "uint32"), lambda: (note("second"), ag.cond((flag, "uint32"), lambda: note("third")))
        )
        note("last")
    assert [each.kind for each in graph.collectives] == ["first", "second", "third", "last"]


def test_a_loop_lets_go_of_what_its_graph_had(work, stream):
    flag, bodies = work.new(), ag.backends.get("cuda").driver.bodies
    gc.collect()
    before = len(bodies)
    with ag.Graph() as graph:
        loop = countdown(work, flag)
    assert len(bodies) == before + 1
    graph.reset()
    assert len(bodies) == before
    with pytest.raises(ag.GraphStateError, match="the graph of this loop was reset"):
        loop.count  # noqa: B018


def test_counters_are_used_again(work, stream):
    flag, of_backend = work.new(), ag.backends.get("cuda").driver
    with ag.Graph() as graph:
        countdown(work, flag)
    found = of_backend.tests[int(of_backend.place(0))]
    gc.collect()
    free = len(found.free)
    for _ in range(5):
        graph.reset()
        with graph:
            countdown(work, flag, lambda: ag.cond((flag, "uint32"), int))
    graph.reset()
    gc.collect()
    assert len(found.free) == free + 1


def test_flags_of_all_sizes(work, stream):
    with current():
        memory = call(driver.cuMemAlloc, 128)
    cell = work.new()
    for size, kind in ((1, "bool"), (2, "int16"), (4, "uint32"), (8, "int64")):
        with ag.Graph() as graph:

            def body(size=size):
                step(work, cell)
                ag.current_stream().fill(int(memory), 0, size)

            ag.while_((int(memory), kind), body)
        for value in (1, 0):
            stream.fill(int(memory), 0xFF, 64)
            stream.fill(int(memory), value, size)
            graph.replay()
        stream.fill(int(memory), 7, 128)
    assert ag.backends.get("cuda").read(stream.native, int(memory), 128) == bytes([7] * 128)
    assert work.read(cell) == 4
    with ag.Graph() as graph:  # no kernel can read this one
        ag.while_((int(memory) + 1, "int32"), lambda: step(work, cell), limit=1)
    with pytest.raises(ag.GraphStateError, match="that the host tests"):
        graph.bind()
    with current():
        call(driver.cuMemFree, memory)


@pytest.mark.parametrize("inner", [True, False])
def test_an_error_that_a_body_hides_is_not_hidden(work, stream, inner):
    flag, graph = work.new(), ag.Graph()

    def hides():
        with contextlib.suppress(ZeroDivisionError):
            ag.while_((flag, "uint32"), lambda: 1 / 0, native=True)

    with (
        pytest.raises((ag.CaptureError, ag.GraphStateError), match=r"in a body of|failed in the capture"),
        graph,
    ):
        ag.while_((flag, "uint32"), hides) if inner else hides()
    assert graph.state == "empty"


@pytest.mark.parametrize("ends", ["reset", "capture_end"])
def test_the_end_of_a_capture_in_a_body_is_an_error(work, stream, ends):
    flag, graph = work.new(), ag.Graph()
    graph.capture_begin()
    with pytest.raises(ag.CaptureError, match=r"in a body of the loop at"):
        ag.while_((flag, "uint32"), lambda: (step(work, flag), getattr(graph, ends)()))
    can_be_captured(graph, work, stream, flag)


MAY_BE_LEFT = {}, {"streams": 1}, {"streams": -1}, {"graphs": 3}, {"executables": 1}
"""What a call has just made, such as a graph with bodies; and branches that the thread keeps, or drops."""


@pytest.mark.needs("software_cuda")
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_at_any_line_of_a_capture_leaves_no_trace(work, error):
    flag, cell = work.new(), work.new()

    def capture(graph):
        with graph:
            step(work, cell)
            with ag.label("loop"):
                countdown(work, flag, lambda: ag.cond((cell, "uint32"), lambda: step(work, cell)))

    from simulators.cuda.faults import Accounts

    def live():
        ownership.drain()
        found = Accounts().live()
        return {name: found[name] for name in ("streams", "events", "graphs", "executables")}

    with ag.Stream(backend="cuda"):
        capture(ag.Graph())
    gc.collect()  # what failed captures of other tests have left
    for at in sample("lines"):
        before = live()
        stream = ag.Stream(backend="cuda")
        graph, interrupter = ag.Graph(stream=stream), Interrupter(at, error)
        interrupter.strike(capture, graph)
        if not (where := interrupter.where):
            break
        assert graph.state in ("empty", "ready"), where
        nothing_is_captured(where)
        graph.reset()
        with graph:
            step(work, cell, 0, 3)
        graph.replay()
        stream.synchronize()
        assert work.read(cell) == 3, where
        graph.reset()
        stream.close()
        left = {name: count - before[name] for name, count in live().items() if count != before[name]}
        assert left in MAY_BE_LEFT, where
        assert "graphs" not in left or where.startswith("ownership.py"), where
    assert at > 100
