"""The lines that recorded the nodes of graphs of CUDA and of HIP, and the ids that profilers know."""

import os

import accelerator_graph as ag

HERE = os.path.abspath(__file__)


def line_of(text):
    """The number of the only line of this file that ends with a comment."""
    with open(HERE, encoding="utf-8") as file:
        [found] = [number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}")]
    return found


def test_each_node_has_its_line_on_forks_as_well(backend, block):
    graph = ag.Graph(keep_graph=True, observe=ag.stacks())
    with ag.Stream(backend=backend.name) as stream, graph:
        side = ag.Stream(like=stream)
        for _ in range(2):
            stream.fill(block, 1, 4)  # ahead
            side.wait(stream)
            side.fill(block, 2, 4)  # on the fork
            side.fill(block, 3, 4)  # on the fork again
            stream.wait(side)
        stream.fill(block, 4, 4)  # behind
    lines = [line_of(each) for each in ("ahead", "on the fork", "on the fork again")]
    nodes = graph.describe().nodes
    assert [node.stack[0].line for node in nodes] == [*lines * 2, line_of("behind")]
    assert {node.stack[0].file for node in nodes} == {HERE}


def test_the_front_of_a_stream_moves_with_its_nodes_only(backend, stream, other, block):
    front = backend.native_calls(stream).front
    token = backend.capture_begin(stream, "relaxed")
    fronts = [front()]
    for value in range(3):
        backend.fill(stream, block, value, 4)
        fronts += [front(), front()]
    assert fronts[1::2] == fronts[2::2]
    assert len({*fronts}) == 4
    fork = backend.record_event(stream)
    backend.wait_event(other, fork)
    backend.fill(other, block, 1, 4)
    assert front() == fronts[-1]
    join = backend.record_event(other)
    backend.wait_event(stream, join)
    backend.destroy_graph(backend.capture_end(token))
    for event in (fork, join):
        backend.destroy_event(event)


def test_profilers_ids(backend, block):
    """None on HIP, and before CUDA 13.1; else those of the executable, once there is one."""
    graphs = [ag.Graph(keep_graph=True) for _ in range(2)]
    with ag.Stream(backend=backend.name) as stream:
        for graph in graphs:
            with graph:
                for _ in range(3):
                    stream.fill(block, 1, 4)
    assert {node.profiler_id for graph in graphs for node in graph.describe().nodes} == {None}
    for graph in graphs:
        graph.instantiate()
    ids = [node.profiler_id for graph in graphs for node in graph.describe().nodes]
    if ids[0] is None:
        assert set(ids) == {None}
        return
    assert len({*ids}) == 6
    assert [len({each >> 32 for each in some}) for some in (ids, ids[:3], ids[3:])] == [2, 1, 1]
