"""The state machine of `Graph`: every cell of the table is a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability

from .._case import Case, applied, expect, folder

ERROR = "error"

STATES = ("empty", "capturing", "capturing kept", "captured", "ready", "ready kept")
"""The states of a graph; "kept" means that it was made with ``keep_graph=True``."""

# fmt: off
TABLE: dict[str, tuple[str, ...]] = {
    #                      empty        capturing    capturing k. captured    ready    ready kept
    "capture_begin":      ("capturing", ERROR,       ERROR,       ERROR,      ERROR,   ERROR),
    "capture_end":        (ERROR,       "ready",     "captured",  ERROR,      ERROR,   ERROR),
    "instantiate":        (ERROR,       ERROR,       ERROR,       "ready",    ERROR,   "ready"),
    "replay":             (ERROR,       ERROR,       ERROR,       "ready",    "ready", "ready"),
    "bind":               (ERROR,       ERROR,       ERROR,       "ready",    "ready", "ready"),
    "update":             (ERROR,       ERROR,       ERROR,       "ready",    "ready", "ready"),
    "recapture":          (ERROR,       ERROR,       ERROR,       "ready",    "ready", "ready"),
    "clone":              (ERROR,       ERROR,       ERROR,       "captured", ERROR,   "ready"),
    "pool":               (ERROR,       ERROR,       ERROR,       "captured", "ready", "ready"),
    "num_nodes":          (ERROR,       ERROR,       ERROR,       "captured", "ready", "ready"),
    "debug_dump":         (ERROR,       ERROR,       ERROR,       "captured", ERROR,   "ready"),
    "raw_graph":          (ERROR,       ERROR,       ERROR,       "captured", ERROR,   "ready"),
    "raw_executable":     (ERROR,       ERROR,       ERROR,       ERROR,      "ready", "ready"),
    "enable_debug_mode":  ("empty",     ERROR,       ERROR,       ERROR,      ERROR,   ERROR),
    "graph_pool":         ("empty",     ERROR,       ERROR,       ERROR,      ERROR,   ERROR),
    "capture_error_mode": ("empty",     ERROR,       ERROR,       ERROR,      ERROR,   ERROR),
    "retain":             ("empty",     "capturing", "capturing", "captured", "ready", "ready"),
    "reset":              ("empty",     "empty",     "empty",     "empty",    "empty", "empty"),
}
# fmt: on
"""The state after each call in each state; ``"error"`` is a `GraphStateError` that changes nothing."""

OPTIONAL = {
    "num_nodes": Capability.NODES,
    "debug_dump": Capability.NODES,
    "raw_graph": Capability.HANDLES,
    "raw_executable": Capability.HANDLES,
}
"""The capability that a call needs: without it, the call may be an `UnsupportedError`."""


class StateRules(Case):
    """Every call, in every state: what it leads to, or that it is refused."""

    def _check_cell(self, call: str, state: str) -> None:
        expected = dict(zip(STATES, TABLE[call], strict=True))[state]
        stream, cell = self.stream(), self.cell()
        other = self._in_state("captured", stream, cell)
        graph = self._in_state(state, stream, cell)
        before = graph.state
        assert before == state.partition(" ")[0]

        def do() -> None:
            if call == "update":
                graph.update(other)
            elif call == "recapture":
                with graph.recapture():
                    self.enqueue(stream, cell)
            else:
                _call(call, graph)

        if expected == ERROR:
            expect(ag.GraphStateError, do, match=call)
            assert graph.state == before
        else:
            self._permitted(call, do, graph, expected)
        runs = int(call == "replay" and expected != ERROR)
        assert self.read(cell) == applied(runs)
        self._finish(graph, stream, cell, recorded=state != "empty")
        assert self.read(cell) == applied(runs + 1)

    def _in_state(self, state: str, stream: ag.Stream, cell: Any) -> ag.Graph:
        """Make a graph in a state; if it is not empty, it holds one piece of work."""
        graph = self.graph(stream, keep_graph="kept" in state or state == "captured")
        if state != "empty":
            graph.capture_begin()
            self.enqueue(stream, cell)
        if state in ("captured", "ready", "ready kept"):
            graph.capture_end()
        if state == "ready kept":
            graph.instantiate()
        return graph

    def _permitted(self, call: str, do: Callable[[], None], graph: ag.Graph, expected: str) -> None:
        needed = OPTIONAL.get(call)
        before = graph.state
        try:
            do()
        except ag.UnsupportedError as error:
            refused = error
        else:
            assert graph.state == expected
            return
        assert needed is not None, refused
        assert not self.has(needed), f"backend {self.backend.name!r} has {str(needed)!r}, but: {refused}"
        assert refused.capability == needed
        assert graph.state == before

    def _finish(self, graph: ag.Graph, stream: ag.Stream, cell: Any, *, recorded: bool) -> None:
        """From any state, continue to one replay of one piece of work."""
        if graph.state == "empty":
            graph.capture_begin()
            recorded = False
        if not recorded:
            self.enqueue(stream, cell)
        if graph.state == "capturing":
            graph.capture_end()
        graph.replay()


def _call(call: str, graph: ag.Graph) -> None:
    if call == "num_nodes":
        assert graph.num_nodes > 0
    elif call == "graph_pool":
        graph.graph_pool = ag.graph_pool_handle()
    elif call == "capture_error_mode":
        graph.capture_error_mode = "default"
    elif call == "retain":
        assert graph.retain(graph.__class__) is ag.Graph
    elif call == "debug_dump":
        with folder() as path:
            graph.debug_dump(path / "graph.dot")
    else:
        getattr(graph, call)()


def _test(call: str, state: str, expected: str) -> Callable[[StateRules], None]:
    def test(self: StateRules) -> None:
        self._check_cell(call, state)

    outcome = "is an error and changes nothing" if expected == ERROR else f"leaves it {expected}"
    test.__name__ = f"test_state_{call}_when_{state.replace(' ', '_')}"
    test.__qualname__ = f"{StateRules.__qualname__}.{test.__name__}"
    kept = "kept " if state.endswith(" kept") else ""
    test.__doc__ = f"`{call}` on a {kept}graph that is {state.removesuffix(' kept')} {outcome}."
    return test


for _name, _row in TABLE.items():
    for _state, _expected in zip(STATES, _row, strict=True):
        _made = _test(_name, _state, _expected)
        setattr(StateRules, _made.__name__, _made)
