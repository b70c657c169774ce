"""`Graph.set_node`: single nodes of an executable are changed, all that is wanted or nothing."""

import itertools
import signal
import threading
from types import SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph.backends._contract.contents import NodeSetter
from accelerator_graph.errors import driver_error
from accelerator_graph.inspection.contents import all_nodes
from accelerator_graph.inspection.drawing import to_dot
from core.test_interrupts import Interrupter


@pytest.fixture
def stream():
    return ag.Stream(backend="cpu")


class Scene:
    """A graph that fills 8 bytes, and copies 8 bytes; a callable comes last."""

    def __init__(self, stream):
        self.stream = stream
        self.filled, self.source, self.target = (bytearray(8) for _ in range(3))
        self.source[:] = b"\x05" * 8
        self.graph = ag.Graph(keep_graph=True, stream=stream)
        with self.graph:
            stream.fill(self.filled, 1)
            stream.copy(self.target, self.source)
            stream.launch(int)
        self.graph.instantiate()

    def run(self):
        self.filled[:] = self.target[:] = bytes(8)
        self.graph.replay()
        self.stream.synchronize()
        return self.filled[0], self.target[0]

    def nodes(self):
        return self.graph.describe().nodes


@pytest.fixture
def scene(stream):
    return Scene(stream)


def test_a_description_says_what_can_be_changed(scene):
    fill, copy, call = scene.nodes()
    assert fill.settable == ("target", "value", "enabled")
    assert copy.settable == ("source", "target", "enabled")
    assert call.settable == ()
    assert (fill.changed, fill.enabled) == ((), True)


def test_nodes_are_changed_for_the_runs_to_come(scene):
    other, elsewhere = bytearray(b"\x07" * 8), bytearray(8)
    scene.graph.set_node(0, value=3)
    scene.graph.set_node(1, source=other)
    assert scene.run() == (3, 7)
    scene.graph.set_node(1, target=elsewhere)
    assert scene.run() == (3, 0)
    assert elsewhere == other


def test_what_is_bound_runs_the_changed_nodes(scene):
    launch = scene.graph.bind()
    scene.graph.set_node(0, value=4)
    launch()
    scene.stream.synchronize()
    assert scene.filled[0] == 4


@pytest.mark.promise("enqueued-runs-are-not-changed")
def test_runs_that_are_under_way_are_not_changed(scene):
    gate = threading.Event()
    scene.stream.launch(gate.wait)
    scene.graph.replay()
    scene.graph.set_nodes({0: {"value": 9}, 1: {"enabled": False}})
    gate.set()
    scene.stream.synchronize()
    assert (scene.filled[0], scene.target[0]) == (1, 5)
    assert scene.run() == (9, 0)


def test_nodes_are_left_out_and_put_back(scene):
    scene.graph.set_node(0, enabled=False)
    assert scene.run() == (0, 5)
    scene.graph.set_node(0, value=6)
    assert scene.run() == (0, 5)
    scene.graph.set_node(0, enabled=True)
    assert scene.run() == (6, 5)


def test_a_description_shows_what_was_set(scene):
    other = bytearray(8)
    scene.graph.set_nodes({0: {"value": 3, "enabled": False}, 1: {"source": other}})
    fill, copy, _ = described = scene.graph.describe()[2]
    assert (fill.value, fill.enabled, fill.changed) == (3, False, ("value", "enabled"))
    assert copy.changed == ("source",)
    scene.graph.set_node(1, source=scene.source)
    assert copy.source != scene.nodes()[1].source
    shown = scene.graph.describe()
    assert "(disabled)" in str(shown)
    assert '"memset (disabled)"' in to_dot(shown)
    assert ">0: memset (disabled)<" in shown._repr_html_()
    json = scene.graph.describe().to_json()
    assert ag.GraphDescription.from_json(json) == scene.graph.describe()
    before = scene.graph.describe()
    scene.graph.instantiate()
    assert scene.nodes()[0].changed == ()
    assert scene.run() == (1, 5)
    assert "is enabled instead of disabled" in str(ag.diff(before, scene.graph.describe()))
    assert described[0].id == 0


def test_memory_that_was_set_keeps_its_place(scene):
    other = bytearray(b"\x07" * 8)
    scene.graph.set_node(1, source=other)
    with pytest.raises(BufferError):
        other.extend(bytes(1 << 20))
    scene.graph.set_node(1, source=scene.source)
    other.extend(bytes(1 << 20))
    assert scene.run() == (1, 5)


def test_an_update_in_place_ends_what_was_set(scene):
    graph, other = scene.graph, bytearray(b"\x07" * 8)
    graph.set_nodes({0: {"value": 3}, 1: {"source": other}})
    assert graph.update(graph.clone()).in_place
    assert [node.changed for node in scene.nodes()] == [()] * 3
    assert scene.nodes()[0].value == 1
    graph.set_node(0, enabled=True)
    assert scene.run() == (1, 5)


WRONG = [
    (0, {}, TypeError, "pass what to change"),
    (
        0,
        {"colour": 1},
        TypeError,
        "pass what to change: one or more of arguments, source, target, value, enabled",
    ),
    (0, {"source": bytearray(8)}, ValueError, r"node 0 has no source that can be changed"),
    (2, {"enabled": False}, ValueError, r"node 2 can't be changed, or is not there; see settable in"),
    (0, {"value": 256}, ValueError, "value must be 0 to 255, not 256"),
    (0, {"value": -1}, ValueError, "value must be 0 to 255, not -1"),
    (0, {"value": "1"}, TypeError, "value must be an int"),
    (0, {"enabled": 1}, TypeError, "enabled must be True or False, not 1"),
    (1, {"source": 0}, ValueError, "0x0 is not the address of memory"),
    (1, {"source": bytearray(7)}, ValueError, "has 7 bytes, not 8"),
    (1, {"target": bytes(8)}, ValueError, "read-only"),
    (1, {"target": object()}, TypeError, "has no memory that can be found"),
    (1, {"arguments": [1]}, ValueError, "has no arguments that can be changed"),
    (3, {"value": 1}, ValueError, "the graph has the nodes 0 to 2, not 3"),
    (-1, {"value": 1}, ValueError, "the graph has the nodes 0 to 2, not -1"),
    ("0", {"value": 1}, TypeError, "node must be an int"),
]


@pytest.mark.promise("bad-nodes-are-refused-first")
@pytest.mark.parametrize(("node", "change", "kind", "match"), WRONG)
def test_bad_input_is_refused_before_anything_is_touched(scene, node, change, kind, match):
    with pytest.raises(kind, match=match):
        scene.graph.set_nodes({1: {"enabled": False}} | {node: change})
    assert scene.run() == (1, 5)
    assert all(not each.changed for each in scene.nodes())


def test_device_memory_is_refused(scene):
    interface = {"data": (64, False), "shape": (8,), "typestr": "|u1", "version": 3}

    with pytest.raises(TypeError, match="is device memory"):
        scene.graph.set_node(1, source=SimpleNamespace(__cuda_array_interface__=interface))


def test_changes_that_are_no_dict(scene):
    with pytest.raises(TypeError, match="must be a dict by node"):
        scene.graph.set_nodes([(0, {"value": 1})])
    with pytest.raises(TypeError, match="pass what to change"):
        scene.graph.set_nodes({0: 1})
    scene.graph.set_nodes({})
    assert scene.run() == (1, 5)


@pytest.mark.promise("bad-nodes-are-refused-first")
def test_graphs_without_an_executable_or_a_definition(stream):
    graph = ag.Graph(keep_graph=True, stream=stream)
    with pytest.raises(ag.GraphStateError, match=r"set_node\(\): nothing was captured"):
        graph.set_node(0, value=1)
    with graph:
        stream.fill(bytearray(8), 1)
        with pytest.raises(ag.GraphStateError, match="is being captured"):
            graph.set_node(0, value=1)
    with pytest.raises(ag.GraphStateError, match="has no executable yet"):
        graph.set_node(0, value=1)
    with ag.Graph(stream=stream) as other:
        stream.fill(bytearray(8), 1)
    with pytest.raises(ag.GraphStateError, match="was not kept"):
        other.set_node(0, value=1)


@pytest.fixture
def outer(scene):
    """A graph with two runs of that of the scene, and one of these two in another graph."""
    graph = ag.Graph(keep_graph=True, stream=scene.stream)
    with graph:
        for _ in range(2):
            scene.graph.replay()
    around = ag.Graph(keep_graph=True, stream=scene.stream, observe=ag.stacks())
    with around:
        scene.stream.launch(int)
        around.add(graph)
    around.instantiate()
    return around


@pytest.mark.promise("nodes-inside-are-changed")
def test_a_node_inside_a_graph_is_changed_in_this_run_alone(scene, outer):
    def run(graph):
        scene.filled[:] = scene.target[:] = bytes(8)
        graph.replay()
        scene.stream.synchronize()
        return scene.filled[0], scene.target[0]

    other, clone = bytearray(b"\x07" * 8), outer.clone()
    outer.set_nodes({(1, 1, 0): {"value": 3}, (1, 1, 1): {"source": other}})
    assert run(outer) == (3, 7)
    outer.set_node((1, 1, 1), enabled=False)
    outer.set_node((1, 0, 0), target=scene.target)
    assert run(outer) == (3, 5)
    assert [run(each) for each in (scene.graph, clone)] == [(1, 5)] * 2
    (first, _), (second, _) = (node.bodies[0] for node in outer.describe().nodes[1].bodies[0][0])
    assert [node.changed for node in first] == [("target",), (), ()]
    assert [node.changed for node in second] == [("value",), ("source", "enabled"), ()]
    assert (second[0].value, second[1].enabled) == (3, False)
    assert ag.diff(clone.describe(), outer.describe())
    with pytest.raises(BufferError):
        other.extend(bytes(1 << 20))
    outer.instantiate()
    assert run(outer) == (1, 5)


@pytest.mark.parametrize(
    ("node", "match"),
    [
        (
            (1, 1, 3),
            r"node 3 inside node 1 inside node 1 \(recorded at .*\) can't be changed, or is not there",
        ),
        (
            (1, 1, 2),
            "node 2 inside node 1 inside node 1 .* can't be changed, or is not there; see settable in",
        ),
        ((1, 1), "node 1 inside node 1 .* can't be changed"),
        ((1,), r"node must be an int, not \(1,\)"),
        ((), r"node must be an int, not \(\)"),
        ((1, "1"), "node must be an int, not '1'"),
        ((1, 1, -2), "node -2 inside node 1 inside node 1 .* can't be changed, or is not there"),
        ((0, 0), "node 0 inside node 0 .* can't be changed, or is not there"),
        ((2, 0), "the graph has the nodes 0 to 1, not 2"),
        (1, "node 1 .* can't be changed, or is not there"),
    ],
)
def test_a_node_that_is_not_inside_is_refused(outer, node, match):
    with pytest.raises((TypeError, ValueError), match=match):
        outer.set_nodes({(1, 0, 0): {"value": 2}, node: {"enabled": False}})
    assert not any(node.changed for node in all_nodes(outer.describe().nodes))


# ---- all or nothing ------------------------------------------------------------------------------


class Refusing(NodeSetter):
    """Refuses what it is asked to do, by the number of the call."""

    def __init__(self, real, calls, error):
        self._real, self._calls, self._error = real, calls, error
        super().__init__(real.kind, (), lambda: None, nbytes=real.nbytes)
        self.enable, self.check = real.enable, real.check

    blocks = property(lambda self: self._real.blocks)
    settable = property(lambda self: self._real.settable)

    def write(self, contents):
        self._real.write(contents)  # as an interrupt may come after the call
        self._calls.append(contents)
        if len(self._calls) in self._error:
            raise self._error[len(self._calls)]


@pytest.fixture
def refusing(scene, monkeypatch):
    """Have the copy's setter raise errors, by the number of the call."""

    def refuse(errors):
        backend = type(scene.stream._backend)
        real, calls = backend.node_setter, []

        def node_setter(self, graph, executable, node):
            found = real(self, graph, executable, node)
            return Refusing(found, calls, errors) if node == 1 else found

        monkeypatch.setattr(backend, "node_setter", node_setter)

    return refuse


def refusal(code=1):
    return driver_error(backend="cpu", call="set", code=code, code_name="INVALID_VALUE")


@pytest.mark.promise("all-nodes-or-none")
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_failure_undoes_everything(scene, refusing, error):
    refusing({1: error()})
    with pytest.raises(error):
        scene.graph.set_nodes({0: {"value": 2, "enabled": False}, 1: {"source": bytearray(b"\x09" * 8)}})
    assert scene.run() == (1, 5)
    assert all(not each.changed for each in scene.nodes())
    scene.graph.set_node(0, value=3)
    assert scene.run() == (3, 5)


def test_a_refusal_undoes_what_came_before(scene, monkeypatch):
    def refuse(contents):
        raise refusal()

    backend = type(scene.stream._backend)
    real = backend.node_setter

    def node_setter(self, graph, executable, node):
        found = real(self, graph, executable, node)
        if node == 1:
            found._apply = lambda: refuse(None)
        return found

    monkeypatch.setattr(backend, "node_setter", node_setter)
    with pytest.raises(ag.DriverError, match="INVALID_VALUE"):
        scene.graph.set_nodes({0: {"value": 2, "enabled": False}, 1: {"source": bytearray(8)}})
    assert scene.graph.state == "ready"
    assert scene.run() == (1, 5)


@pytest.mark.promise("nodes-that-stay-half-changed")
def test_what_can_not_be_undone_drops_the_executable(scene, refusing):
    bound = scene.graph.bind()
    refusing({1: KeyboardInterrupt(), 2: refusal()})
    with pytest.raises(KeyboardInterrupt) as caught:
        scene.graph.set_nodes({0: {"value": 2}, 1: {"source": bytearray(8)}})
    assert "the graph has none now" in caught.value.__notes__[0]
    assert scene.graph.state == "captured"
    for launch in (bound, scene.graph.replay, scene.graph.bind, lambda: scene.graph.replay(scene.stream)):
        with pytest.raises(ag.GraphStateError, match=r"could not be undone; call instantiate\(\)"):
            launch()
    scene.graph.instantiate()
    assert scene.run() == (1, 5)
    bound()
    scene.graph.replay(scene.stream)
    scene.stream.synchronize()


@pytest.mark.promise("all-nodes-or-none")
def test_an_interrupt_at_any_moment_changes_all_or_nothing(stream):
    seen, sixes = set(), bytearray([6] * 8)
    for at in itertools.count(1):
        scene = Scene(stream)
        interrupter = Interrupter(at, KeyboardInterrupt)
        interrupter.strike(scene.graph.set_nodes, {0: {"value": 2}, 1: {"source": sixes}})
        if not interrupter.where:
            break
        fill, copy, _ = scene.nodes()
        found = scene.run()
        assert found in ((1, 5), (2, 6)), interrupter.where
        seen.add(found)
        if found == (1, 5):
            assert fill.changed == copy.changed == (), interrupter.where
        scene.graph.set_nodes({0: {"value": 3}, 1: {"enabled": False}})
        assert scene.run() == (3, 0), interrupter.where
    assert len(seen) == 2
    assert at > 60


def test_a_signal_handler_can_not_replay_half_changed_nodes(scene, monkeypatch):
    found = []

    def handler(*_):
        for launch in (scene.graph.replay, lambda: scene.graph.replay(scene.stream)):
            with pytest.raises(ag.GraphStateError, match="are being changed by this thread"):
                launch()
            found.append(1)

    before = signal.signal(signal.SIGUSR1, handler)
    real = NodeSetter.write
    monkeypatch.setattr(NodeSetter, "write", lambda *args: (real(*args), signal.raise_signal(signal.SIGUSR1)))
    try:
        scene.graph.set_nodes({0: {"value": 2}, 1: {"source": bytearray(8)}})
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(found) == 4
    assert scene.run() == (2, 0)


@pytest.mark.promise("no-run-sees-some-changes")
def test_no_run_sees_only_some_changes(scene):
    """Another thread replays all the time."""
    sources = [bytearray(bytes([value]) * 8) for value in range(256)]
    seen, over = [], threading.Event()
    graph, stream = scene.graph, scene.stream
    graph.set_nodes({0: {"value": 0}, 1: {"source": sources[0]}})

    def run():
        while not over.is_set():
            graph.replay()
            stream.launch(lambda: seen.append((scene.filled[0], scene.target[0])))
        stream.synchronize()

    thread = threading.Thread(target=run)
    thread.start()
    for value in [*range(256)] * 3:
        graph.set_nodes({0: {"value": value}, 1: {"source": sources[value]}})
    over.set()
    thread.join()
    assert len(set(seen)) > 1
    assert {one - other for one, other in seen} == {0}


# ---- with updates --------------------------------------------------------------------------------


def test_a_graph_that_was_updated(scene):
    other = Scene(scene.stream)
    scene.graph.set_node(0, value=3)
    update = scene.graph.update(other.graph)
    assert scene.nodes()[0].changed == ()
    if update.in_place:
        with pytest.raises(ag.GraphStateError, match=r"updated in place .*; call instantiate\(\) first"):
            scene.graph.set_node(0, value=3)
        scene.graph.instantiate()
    scene.graph.set_node(0, value=4)
    scene.graph.replay()
    scene.stream.synchronize()
    assert other.filled[0] == 4


def test_a_graph_with_a_disabled_node_is_not_updated_in_place(scene):
    other = Scene(scene.stream)
    scene.graph.set_node(0, enabled=False)
    update = scene.graph.update(other.graph)
    assert not update.in_place
    assert "disabled a node" in str(update)
    scene.graph.replay()
    scene.stream.synchronize()
    assert other.filled[0] == 1


def test_a_backend_that_changes_no_nodes(scene, monkeypatch):
    kind = type(scene.stream._backend)
    monkeypatch.setattr(kind, "capabilities", lambda self, device: self.inherited - {"set_node"})
    with pytest.raises(ag.UnsupportedError, match="backend 'cpu' can't change nodes of an executable"):
        scene.graph.set_node(0, value=1)
