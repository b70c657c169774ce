"""Waiting for events on the HIP backend, in captures: what keeps its order there, and what is refused."""

import pytest

from accelerator_graph import errors
from backends.hip.bench import answer, bare_begin, bare_end, edges_of, nodes_of, status_of, step
from backends.tools import MODES, child, linked, replayed
from threads import in_thread

pytest_plugins = ["backends.hip.fixtures"]
pytestmark = pytest.mark.usefixtures("no_error_left")


@pytest.fixture
def third(backend):
    stream = backend.create_stream(0)
    yield stream
    backend.destroy_stream(stream)


@pytest.fixture
def marked(backend):
    """Marks streams with events that are destroyed afterwards."""
    events = []

    def mark(stream):
        events.append(backend.record_event(stream))
        return events[-1]

    yield mark
    for event in events:
        backend.destroy_event(event)


def refused(backend, stream, event, reason):
    with pytest.raises(errors.DriverError, match=r"^backend 'hip': wait_event: .*\.$") as raised:
        backend.wait_event(stream, event)
    assert raised.value.reason == reason


# ---- in one capture ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_wait_becomes_dependencies(backend, kernels, cells, stream, other, third, marked, mode):
    """Each piece of work has exactly the edges that its waits ask for."""
    token = backend.capture_begin(stream, mode)
    step(backend, kernels, stream, cells.at(0), 1, 5)
    linked(backend, stream, other)
    early = marked(other)
    linked(backend, other, third)
    step(backend, kernels, third, cells.at(0), 3, 0)
    linked(backend, third, other)
    step(backend, kernels, other, cells.at(0), 1, 2)
    backend.wait_event(third, early)
    linked(backend, other, third)
    linked(backend, third, third)
    step(backend, kernels, third, cells.at(0), 2, 0)
    for fork in (other, third):
        linked(backend, fork, stream)
    step(backend, kernels, stream, cells.at(0), 1, 1)
    graph = backend.capture_end(token)
    first, second, middle, fourth, last = nodes_of(graph.handle)
    needed = {(first, second), (second, middle), (middle, fourth), (fourth, last)}
    assert needed <= set(edges_of(graph.handle))
    assert [status_of(each) for each in (stream, other, third)] == ["none"] * 3
    replayed(backend, graph, stream)
    once = lambda value: ((value + 5) * 3 + 2) * 2 + 1  # noqa: E731
    assert cells[0] == once(once(0))


def test_the_per_thread_stream_forks_and_is_joined(backend, kernels, cells, stream):
    own = backend.as_stream(2)
    for first, second in ((stream, own), (own, stream)):
        cells[0] = 0
        token = backend.capture_begin(first, "thread_local")
        step(backend, kernels, first, cells.at(0), 10, 1)
        for _ in range(2):
            linked(backend, first, second)
            step(backend, kernels, second, cells.at(0), 10, 2)
            linked(backend, second, first)
            step(backend, kernels, first, cells.at(0), 10, 3)
        replayed(backend, backend.capture_end(token), first)
        assert cells[0] == 1232312323


def test_a_mark_ahead_of_all_work_links_too(backend, kernels, cells, stream, other, marked):
    token = backend.capture_begin(stream, "thread_local")
    start = marked(stream)
    backend.wait_event(other, start)
    backend.wait_event(stream, start)
    step(backend, kernels, other, cells.at(0), 10, 1)
    backend.wait_event(other, start)
    step(backend, kernels, other, cells.at(0), 10, 2)
    linked(backend, other, stream)
    replayed(backend, backend.capture_end(token), stream)
    assert cells[0] == 1212


# ---- not in one capture --------------------------------------------------------------------------


@pytest.mark.promise("waits-from-outside-are-refused")
def test_events_from_outside_are_refused_and_the_capture_goes_on(
    backend, kernels, cells, stream, other, third, marked
):
    before, elsewhere = marked(stream), marked(other)
    token = backend.capture_begin(stream, "thread_local")
    step(backend, kernels, stream, cells.at(0), 10, 1)
    linked(backend, stream, third)
    for event in (before, elsewhere, marked(other), marked(backend.as_stream(0))):
        for taking_part in (stream, third):
            refused(backend, taking_part, event, "foreign_capture")
    step(backend, kernels, third, cells.at(0), 10, 2)
    linked(backend, third, stream)
    replayed(backend, backend.capture_end(token), stream)
    assert cells[0] == 1212
    for event in (before, elsewhere):
        backend.wait_event(stream, event)


def test_events_of_another_capture_are_refused_and_both_go_on(
    backend, kernels, cells, stream, other, third, marked
):
    tokens = [backend.capture_begin(each, "thread_local") for each in (stream, other)]
    step(backend, kernels, stream, cells.at(0), 10, 1)
    step(backend, kernels, other, cells.at(1), 10, 1)
    linked(backend, other, third)
    for each in (other, third):
        refused(backend, each, marked(stream), "foreign_capture")
        refused(backend, stream, marked(each), "foreign_capture")
    step(backend, kernels, third, cells.at(1), 10, 2)
    linked(backend, third, other)
    graphs = [backend.capture_end(token) for token in tokens]
    assert [len(nodes_of(graph.handle)) for graph in graphs] == [1, 2]
    for graph, each in zip(graphs, (stream, other), strict=True):
        replayed(backend, graph, each)
    assert (cells[0], cells[1]) == (11, 1212)


def test_events_of_a_capture_that_is_over_are_refused(backend, kernels, cells, stream, other, third, marked):
    token = backend.capture_begin(stream, "thread_local")
    step(backend, kernels, stream, cells.at(0), 10, 1)
    linked(backend, stream, other)
    events = [marked(stream), marked(other)]
    linked(backend, other, stream)
    backend.destroy_graph(backend.capture_end(token))
    token = backend.capture_begin(stream, "thread_local")
    step(backend, kernels, stream, cells.at(0), 10, 2)
    for event in events:
        for each in (stream, other, third, backend.as_stream(2)):
            refused(backend, each, event, "foreign_capture")
            assert status_of(each) == ("active" if each is stream else "none")
    step(backend, kernels, stream, cells.at(0), 10, 3)
    replayed(backend, backend.capture_end(token), stream)
    assert cells[0] == 2323


def test_an_event_of_another_threads_own_stream(backend, kernels, cells, stream, marked):
    """It links as any other; of the capture that is over by then, the handle alone tells nothing."""
    own = backend.as_stream(2)

    def capture(join):
        token = backend.capture_begin(own, "relaxed")
        step(backend, kernels, own, cells.at(0), 10, 1)
        event = marked(own)
        in_thread(lambda: join(event))
        linked(backend, stream, own) if status_of(stream) == "active" else None
        replayed(backend, backend.capture_end(token), own)
        return event

    def join(event):
        backend.wait_event(stream, event)
        step(backend, kernels, stream, cells.at(0), 10, 2)

    event = capture(join)
    assert cells[0] == 1212
    capture(lambda event: None)
    in_thread(lambda: refused(backend, stream, event, "foreign_capture"))
    assert status_of(stream) == "none"


@pytest.mark.parametrize("handle", [0, 1])
def test_the_null_stream_does_not_wait_for_a_capture(backend, kernels, cells, stream, other, marked, handle):
    null, outside = backend.as_stream(handle), marked(other)
    token = backend.capture_begin(stream, "thread_local")
    step(backend, kernels, stream, cells.at(0), 10, 1)
    refused(backend, null, marked(stream), "default_stream")
    backend.wait_event(null, outside)
    step(backend, kernels, stream, cells.at(0), 10, 2)
    replayed(backend, backend.capture_end(token), stream)
    assert cells[0] == 1212


def test_a_broken_capture_is_neither_marked_nor_waited_on(backend, block, stream, other, third, marked):
    outside = marked(other)
    token = backend.capture_begin(stream, "thread_local")
    backend.fill(stream, block, 1, None)
    event = marked(stream)
    assert answer("hipStreamQuery", int(stream)) == 900
    answer("hipGetLastError")
    for each in (event, outside):
        refused(backend, stream, each, "invalidated")
    with pytest.raises(errors.DriverError) as raised:
        backend.record_event(stream)
    assert raised.value.reason == "invalidated"
    backend.wait_event(third, event)  # the runtime takes it in, all the same
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_end(token)
    assert raised.value.reason == "invalidated"
    assert [status_of(each) for each in (stream, other, third)] == ["none"] * 3
    token = backend.capture_begin(third, "thread_local")
    backend.fill(third, block, 3, None)
    replayed(backend, backend.capture_end(token), third)
    assert block.read() == bytes([3]) * block.nbytes


# ---- what the runtime does by itself: these say when `_hip/events.py` can be simpler ----------------

BARE = (
    "from backends.tools import *\n"
    "from backends.hip.bench import *\n"
    "call('hipInit', 0)\n"
    "main, a, b = bare_stream(), bare_stream(), bare_stream()\n"
    "block = Block()\n"
    "bare_begin(main, 'thread_local')\n"
    "call('hipMemsetAsync', block.pointer, 1, 64, main)\n"
    "for waiting, ahead in {waits}: assert fork(ahead, waiting) == 0\n"
    "print('waited', flush=True)\n"
    "print(bare_end(main)[0])"
)
MUTUAL = "(a, main), (b, main), (a, b), (a, main), (b, a)"
NESTED = "(a, main), (b, a), (a, b), (main, a)"


@pytest.mark.parametrize(
    ("waits", "version"),
    [(MUTUAL, "any"), ("(a, main), (a, a), (main, a)", "any"), (NESTED, "6.4"), ("(a, main), (0, a)", "7.2")],
    ids=["mutual", "itself", "nested", "null"],
)
def test_upstream_waits_that_end_the_process(runtime, waits, version):
    """rocm-systems#11369."""
    if version not in ("any", ".".join(map(str, runtime))):
        pytest.skip(f"that is how HIP {version} answers")
    status, printed, _ = child(BARE.format(waits=f"({waits})"))
    assert printed == "waited"
    assert status < 0 or status > 1


def test_upstream_an_event_of_another_capture_is_waited_for_by_none(runtime, stream, other):
    """Both captures end well, as if nothing had been asked for."""
    from backends.hip.bench import fork

    assert bare_begin(int(stream), "thread_local") == bare_begin(int(other), "thread_local") == 0
    assert fork(stream, other) == 0
    for each in (stream, other):
        code, graph = bare_end(int(each))
        assert code == 0
        answer("hipGraphDestroy", graph)
