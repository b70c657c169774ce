"""Where nodes come from: the lines that `stacks` keeps, and where they are shown."""

import json
import os
import sys

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.base import Frame, Misfit
from accelerator_graph.backends.cpu import CpuBackend, CpuCalls
from threads import in_thread

HERE = os.path.abspath(__file__)


def work(): ...


def line_of(text):
    """The number of the only line of this file that ends with a comment."""
    with open(HERE, encoding="utf-8") as file:
        [found] = [number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}")]
    return found


def fill_all(stream, cell):
    for value in range(3):
        stream.fill(cell, value)  # the loop


def program(stream, cell):
    stream.launch(work)  # the launch
    fill_all(stream, cell)  # the call


class Adding:
    """An operator of Python's that records: no call of C is seen."""

    def __init__(self, stream):
        self.stream = stream

    def __add__(self, cell):
        self.stream.fill(cell, 1)
        return self


def captured(record, *observers, backend="cpu"):
    graph = ag.Graph(keep_graph=True, observe=[ag.stacks(), *observers])
    with ag.Stream(backend=backend) as stream, graph:
        record(stream)
    return graph


def lines_of(graph):
    """The innermost line of each node in this file."""
    return [next(each.line for each in node.stack if each.file == HERE) for node in graph.describe().nodes]


@pytest.fixture
def cell():
    return bytearray(4)


@pytest.fixture
def planted():
    yield lambda kind: ag.backends.register("planted", kind)
    ag.backends.unregister("planted")


def test_each_node_has_its_line_and_the_callers_of_that(cell):
    graph = captured(lambda stream: program(stream, cell))
    nodes = graph.describe().nodes
    assert lines_of(graph) == [line_of("the launch"), *[line_of("the loop")] * 3]
    assert nodes[1].stack[:2] == (
        Frame(HERE, line_of("the loop"), "fill_all"),
        Frame(HERE, line_of("the call"), "program"),
    )
    assert not any("accelerator_graph" + os.sep in each.file for node in nodes for each in node.stack)


def test_there_are_eight_frames_at_most_and_one_of_them_is_the_users(cell, tmp_path):
    """A library is what is in site-packages."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "deep_library.py").write_text(
        "def down(depth, call):\n    return down(depth - 1, call) if depth else call()\n"
    )
    names: dict = {}
    source = (folder / "deep_library.py").read_text()
    exec(compile(source, str(folder / "deep_library.py"), "exec"), names)

    def record(stream):
        names["down"](20, work)
        names["down"](20, lambda: stream.fill(cell, 1))  # a lambda of the user's
        names["down"](20, _method(stream, cell))  # only the library is inside

    first, second = (node.stack for node in captured(record).describe().nodes)
    assert [len(first), len(second)] == [8, 8]
    assert first[0] == Frame(HERE, line_of("a lambda of the user's"), first[0].function)
    assert [each.own for each in second] == [False] * 7 + [True]
    assert second[-1].line == line_of("only the library is inside")


def _method(stream, cell):
    from functools import partial

    return partial(stream.fill, cell, 1)


def test_operators_count_as_their_line(cell):
    def record(stream):
        adding = Adding(stream)
        adding + cell  # an operator
        work()

    frames = captured(record).describe().nodes[0].stack
    assert [each.function for each in frames][:2] == ["Adding.__add__", frames[1].function]
    assert frames[1].line == line_of("an operator")


def test_forks_count_as_the_lines_that_enqueue(cell):
    def record(stream):
        side = ag.Stream(like=stream)
        for _ in range(2):
            side.wait(stream)
            side.fill(cell, 1)  # on the fork
            stream.launch(work)  # beside it
            stream.wait(side)

    found = lines_of(captured(record))
    assert found == [line_of("on the fork"), line_of("beside it")] * 2


def test_what_other_threads_record_is_the_line_that_waits(cell):
    def record(stream):
        in_thread(lambda: stream.fill(cell, 1))  # the thread

    assert lines_of(captured(record)) == [line_of("the thread")]


def test_together_with_diagnosis_and_progress(cell):
    for others in ([ag.diagnose()], [ag.progress()], [ag.progress(), ag.diagnose(), ag.stacks()]):
        graph = captured(lambda stream: program(stream, cell), *others)
        fills = [node for node in graph.describe().nodes if node.nbytes == len(cell)]
        assert [node.stack[0].line for node in fills] == [line_of("the loop")] * 3
    before = sys.gettrace()
    captured(lambda stream: program(stream, cell))
    assert sys.gettrace() is before


def test_nodes_are_counted_only_when_there_are_more(cell, monkeypatch):
    """Counting takes drivers time, and there are many lines."""
    calls = []
    count = CpuBackend.capture_info

    def counting(self, stream):
        calls.append(stream)
        return count(self, stream)

    monkeypatch.setattr(
        CpuCalls, "front", lambda self: count(self._backend, self._stream).nodes, raising=False
    )
    monkeypatch.setattr(CpuBackend, "capture_info", counting)

    def record(stream):
        for value in range(10):
            stream.fill(cell, value)
            for _ in range(100):
                work()

    captured(record)
    assert 10 <= len(calls) < 100


def test_stacks_stay_with_the_work(cell):
    graph, other = (captured(lambda stream: program(stream, cell)) for _ in range(2))
    lines = lines_of(graph)
    assert lines_of(graph.clone()) == lines
    with graph.recapture():
        graph_stream = ag.current_stream()
        graph_stream.fill(cell, 1)  # captured again
    assert lines_of(graph) == [line_of("captured again")]
    graph.update(other)
    assert lines_of(graph) == lines


def test_a_capture_that_fails_leaves_nothing(cell):
    graph = ag.Graph(keep_graph=True, observe=ag.stacks())
    with ag.Stream(backend="cpu") as stream:
        with pytest.raises(ZeroDivisionError), graph:
            fill_all(stream, 1 / 0)
        with graph:
            stream.launch(work)  # the second time
    assert lines_of(graph) == [line_of("the second time")]


def test_a_backend_that_does_not_count(planted):
    class CountsNothing(CpuBackend):
        def capture_info(self, stream):
            return None

    planted(CountsNothing)
    with pytest.raises(ag.UnsupportedError, match=r"stacks\(\): .*can't count") as error:
        captured(lambda stream: None, backend="planted")
    assert error.value.capability == "nodes"


def test_nodes_in_another_order_have_no_stacks(planted, cell):
    class Backwards(CpuBackend):
        def nodes(self, graph, executable=None):
            nodes, edges = super().nodes(graph)
            return nodes, [each._replace(source=each.target, target=each.source) for each in edges]

    planted(Backwards)
    graph = captured(lambda stream: program(stream, cell), backend="planted")
    assert {node.stack for node in graph.describe().nodes} == {()}


# ---- where they are shown -------------------------------------------------------------------------


def test_descriptions_show_and_keep_them(cell):
    described = captured(lambda stream: program(stream, cell)).describe()
    name = os.path.basename(HERE)
    assert str(described).splitlines()[1].endswith("recorded at")
    assert str(described).splitlines()[3].endswith(f"{name}:{line_of('the loop')} in fill_all")
    read = ag.GraphDescription.from_json(described.to_json())
    assert [node.stack for node in read.nodes] == [node.stack for node in described.nodes]
    frames = json.loads(described.to_json())["frames"]
    assert len(frames) == len({tuple(each) for each in frames}) < sum(len(n.stack) for n in described.nodes)


def test_they_do_not_count_when_descriptions_are_compared(cell):
    first, second = (captured(lambda s: program(s, cell)).describe() for _ in range(2))  # two stacks
    moved = captured(lambda s: (s.launch(work), fill_all(s, cell))).describe()
    assert first.nodes[0].stack != moved.nodes[0].stack
    assert first == second == moved
    assert hash(first) == hash(moved)
    assert ag.diff(first, moved) == []
    numbered = moved._replace(nodes=tuple(node._replace(profiler_id=node.id) for node in moved.nodes))
    assert numbered == first


def test_differences_name_the_line(cell):
    def record(stream):
        program(stream, cell)
        stream.fill(cell, 9)  # one more

    before, after = (captured(each).describe() for each in (lambda s: program(s, cell), record))
    at = f"{os.path.basename(HERE)}:{line_of('one more')} in"
    [sentence] = ag.diff(before, after)
    assert f"memset, {at}" in sentence


def test_errors_name_the_line(cell, planted):
    graph = captured(lambda stream: program(stream, cell))
    graph.instantiate()
    at = rf"\(recorded at {HERE}:{line_of('the loop')} in fill_all\)"
    with pytest.raises(ValueError, match=rf"^Graph\.set_node\(\): node 1 {at}: value must be 0 to 255"):
        graph.set_node(1, value=256)

    class Particular(CpuBackend):
        def update(self, executable, former, graph):
            return Misfit("it is red", 1)

    planted(Particular)
    graph, other = (captured(lambda s: program(s, cell), backend="planted") for _ in range(2))
    graph.instantiate()
    where = f"{HERE}:{line_of('the loop')} in fill_all"
    assert str(graph.update(other)) == (
        f"A new executable was made: at node 1, it is red (recorded at {where})."
    )


def test_an_error_of_the_driver_names_the_line_too(cell, planted):
    class Refuses(CpuBackend):
        def node_setter(self, graph, executable, node):
            setter = super().node_setter(graph, executable, node)

            def refuse():
                raise ag.DriverError("no.", backend="planted", call="set")

            setter._apply = refuse
            return setter

    planted(Refuses)
    graph = captured(lambda stream: program(stream, cell), backend="planted")
    graph.instantiate()
    with pytest.raises(ag.DriverError) as error:
        graph.set_node(1, value=7)
    [note] = error.value.__notes__
    assert f"{HERE}:{line_of('the loop')} in fill_all" in note


def test_the_page_has_the_stacks(cell, tmp_path):
    graph = captured(lambda stream: program(stream, cell))
    graph.debug_dump(tmp_path / "graph.html")
    assert f"{HERE}:{line_of('the loop')} in fill_all" in (tmp_path / "graph.html").read_text()
