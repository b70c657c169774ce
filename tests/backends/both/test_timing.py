"""Events between the nodes of a graph, on the CUDA and the HIP backend."""

import itertools

import pytest

import accelerator_graph as ag
from backends.tools import diamond

pytestmark = pytest.mark.usefixtures("no_error_left")


def bytes_of_a_diamond(backend, stream, other, block, cuts):
    """Run a graph in which each word depends on earlier ones, with events; return the words and the times."""

    def word(index):
        return block.pointer + 8 * index

    def work(stream, n):
        if n == 0:
            backend.fill(stream, word(0), 1, 8)
            backend.copy(stream, word(1), word(0), 8)
        elif n < 3:  # the branches
            backend.copy(stream, word(2 * n), word(1), 8)
            backend.copy(stream, word(2 * n + 1), word(2 * n), 8)
        else:
            backend.copy(stream, word(6), word(3), 8)
            backend.copy(stream, word(7), word(5), 8)

    before, after = cuts
    backend.fill(stream, block, 0, None)
    graph = diamond(backend, stream, other, work)
    executable, events = backend.instantiate_timed(graph, before, after)
    backend.destroy_graph(graph)
    start = backend.record_event(stream, timed=True)
    backend.replay(executable, stream)
    end = backend.record_event(stream, timed=True)
    backend.synchronize(stream)
    times = [backend.elapsed_time(start, event) for event in (*events, end)]
    found = block.read()[:64]
    backend.destroy_executable(executable)
    for event in (start, end, *events):
        backend.destroy_event(event)
    return found, times


@pytest.mark.parametrize(
    "cuts",
    [([], []), ([0], []), ([], [0]), ([], [7]), ([2, 4], [1, 3]), ([6], [5]), ([*range(8)], [*range(8)])],
)
def test_events_change_nothing_but_the_time(backend, stream, other, block, cuts):
    found, times = bytes_of_a_diamond(backend, stream, other, block, cuts)
    assert found == bytes([1] * 64)
    *events, end = times
    assert all(0 <= time <= end for time in events)
    before = dict(zip(cuts[0], events, strict=False))
    after = dict(zip(cuts[1], events[len(cuts[0]) :], strict=True))
    assert all(before[node] <= after[node] for node in before.keys() & after.keys())


def test_an_event_moves_with_each_run(backend, stream, block):
    token = backend.capture_begin(stream, "thread_local")
    backend.fill(stream, block, 1, None)
    graph = backend.capture_end(token)
    executable, (event,) = backend.instantiate_timed(graph, [], [0])
    start = backend.record_event(stream, timed=True)
    times = []
    for _ in range(3):
        backend.replay(executable, stream)
        backend.synchronize(stream)
        times.append(backend.elapsed_time(start, event))
    assert all(earlier < later for earlier, later in itertools.pairwise(times))
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)
    for each in (start, event):
        backend.destroy_event(each)


def test_a_profile_tells_the_times_of_labels_on_two_branches(backend, block):
    stream = ag.Stream(backend=backend.name)
    side = ag.Stream(like=stream)
    with stream, ag.Graph(keep_graph=True) as graph:
        with ag.label("first"):
            stream.fill(block, 1)
        side.wait(stream)
        with ag.label("side"), ag.label("inner"):
            side.fill(block.pointer, 2, 8)
        with ag.label("main"):
            stream.fill(block.pointer + 8, 3, 8)
        stream.wait(side)
        stream.fill(block.pointer + 16, 4, 8)
    profile = graph.profile(3, state=[block])
    assert [each.label.name for each in profile.labels] == ["first", "side", "inner", "main"]
    first, outer, inner, main = profile.labels
    assert first.begin == 0
    assert (outer.begin, outer.time, outer.own) == (inner.begin, inner.time, 0)
    assert first.end <= min(outer.begin, main.begin)
    assert max(outer.end, main.end) <= profile.with_events
    assert 0 < profile.with_events < 1e6
    assert "[no label]" in str(profile)
