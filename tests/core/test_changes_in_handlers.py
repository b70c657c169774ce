"""A signal handler that changes a graph in the middle of another change is refused, or was in time."""

import sys

import pytest

import accelerator_graph as ag
from accelerator_graph._core import capture_table
from core.test_interrupts import Interrupter, framework  # noqa: F401
from lanes import sample

CELL = bytearray(1)


def captured(stream, value):
    with ag.Graph(keep_graph=True, stream=stream) as graph:
        stream.fill(CELL, value)
    return graph


class Handler(Interrupter):
    """Calls a function at one line, instead of raising."""

    def __init__(self, at, call):
        super().__init__(at, KeyboardInterrupt)
        self._call = call

    def __call__(self, frame, event, arg):
        try:
            return super().__call__(frame, event, arg)
        except KeyboardInterrupt:
            sys.settrace(None)
            try:
                self._call()
            except (ag.GraphStateError, ValueError) as error:
                self.refused = error
        return None


CHANGES = {
    "update": lambda graph, other: graph.update(other),
    "set_node": lambda graph, other: graph.set_node(0, value=9),
    "instantiate": lambda graph, other: graph.instantiate(),
    "reset": lambda graph, other: graph.reset(),
}


@pytest.mark.parametrize("inside", CHANGES)
@pytest.mark.parametrize("change", CHANGES)
def test_one_change_at_a_time(change, inside):
    stream, beside = (ag.Stream(backend="cpu") for _ in range(2))
    refused = 0
    for at in sample("lines"):
        graph, other = captured(stream, 1), captured(stream, 2)
        graph.instantiate()
        bound = graph.bind(beside)
        handler = Handler(at, lambda: CHANGES[inside](graph, other))  # noqa: B023
        before = sys.gettrace()
        sys.settrace(handler)
        try:
            CHANGES[change](graph, other)
        except ag.GraphStateError:
            assert inside in ("reset", "update"), handler.where
        finally:
            sys.settrace(before)
        if not handler.where:
            break
        refused += hasattr(handler, "refused")
        assert not capture_table.live
        seen = []
        for call in (bound, lambda: graph.replay(beside)):  # noqa: B023
            CELL[0] = 0
            if graph.state == "empty":
                with pytest.raises(ag.GraphStateError):
                    call()
            else:
                call()
            beside.synchronize()
            seen.append(CELL[0])
        assert seen[0] == seen[1], handler.where
        if graph.state == "ready":
            assert graph.describe().nodes[0].value == seen[0], handler.where
    assert at > 50
    assert bool(refused) == ((change, inside) != ("reset", "reset"))  # a reset may be called again


def test_a_change_in_the_middle_of_the_first_import(monkeypatch):
    """What changes graphs is imported when it is first used, and a module that is half there is of no use."""
    changes = {
        "set_node": CHANGES["set_node"],
        "recapture": lambda graph, other: graph.recapture(),
        "clone": lambda graph, other: graph.clone(),
        "update": CHANGES["update"],
    }
    stream, refused = ag.Stream(backend="cpu"), 0
    for at in sample("lines"):
        for name in ("update", "node_changes"):
            monkeypatch.delitem(sys.modules, f"accelerator_graph._core.{name}", raising=False)
        graphs = [captured(stream, value) for value in (1, 2, 3, 4)]
        for graph in graphs:
            graph.instantiate()

        errors = []

        def change():
            for each in changes.values():
                try:
                    each(*graphs[2:])  # noqa: B023
                except ag.GraphStateError as error:
                    errors.append(str(error))  # noqa: B023

        handler = Handler(at, change)
        before = sys.gettrace()
        sys.settrace(handler)
        try:
            graphs[0].set_node(0, value=5)
            graphs[0].update(graphs[1])
        finally:
            sys.settrace(before)
        if not handler.where:
            break
        assert all("in the middle of importing" in each for each in errors), handler.where
        refused += len(errors)
    assert at > 100
    assert refused
