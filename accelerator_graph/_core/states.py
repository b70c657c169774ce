"""The state table: the operations that a graph refuses in each state, with the sentence for the error."""

from __future__ import annotations

from typing import Literal

GraphState = Literal["empty", "capturing", "captured", "ready"]
"""The state of a graph; ``"captured"`` has no executable yet."""

_NOTHING = "nothing was captured; capture first, with `with graph:` or capture_begin() and capture_end()"
_CAPTURING = "the graph is being captured; call capture_end() first, or reset() to abandon the capture"
_FULL = "the graph holds a capture; call reset() first, or make another Graph"
_NOT_BEGUN = "no capture has begun; call capture_begin() first"
_NO_EXECUTABLE = "the graph has no executable yet; call instantiate() first"
CAPTURED_BEFORE_FORK = "the graph was captured before this process was forked; capture it again"
BEGUN_BEFORE_FORK = "the capture was begun before this process was forked; capture again"
NOT_KEPT = (
    "the graph was not kept; make it with keep_graph=True, or call enable_debug_mode() before the capture"
)
HAS_EXECUTABLE = (
    "the graph has its executable already; make it with keep_graph=True to instantiate it more than once"
)
RESET_MEANWHILE = "another thread has reset the graph; capture again"
ENDED_INSIDE = "the capture was ended inside its `with` block; leave that to the block"

_UNTIL_CAPTURED: dict[GraphState, str] = {"empty": _NOTHING, "capturing": _CAPTURING}
_UNLESS_EMPTY: dict[GraphState, str] = {"capturing": _CAPTURING, "captured": _FULL, "ready": _FULL}

REFUSED: dict[str, dict[GraphState, str]] = {
    "capture_begin()": _UNLESS_EMPTY,
    "capture_end()": {"empty": _NOT_BEGUN, "captured": _NOT_BEGUN, "ready": _NOT_BEGUN},
    "instantiate()": _UNTIL_CAPTURED,
    "replay()": _UNTIL_CAPTURED,
    "bind()": _UNTIL_CAPTURED,
    "update()": _UNTIL_CAPTURED,
    "recapture()": _UNTIL_CAPTURED,
    "clone()": _UNTIL_CAPTURED,
    "pool()": _UNTIL_CAPTURED,
    "num_nodes": _UNTIL_CAPTURED,
    "describe()": _UNTIL_CAPTURED,
    "memory()": _UNTIL_CAPTURED,
    "check()": _UNTIL_CAPTURED,
    "set_node()": _UNTIL_CAPTURED | {"captured": _NO_EXECUTABLE},
    "set_nodes()": _UNTIL_CAPTURED | {"captured": _NO_EXECUTABLE},
    "debug_dump()": _UNTIL_CAPTURED,
    "profile()": _UNTIL_CAPTURED,
    "raw_graph()": _UNTIL_CAPTURED,
    "raw_executable()": _UNTIL_CAPTURED | {"captured": _NO_EXECUTABLE},
    "raw_cuda_graph()": _UNTIL_CAPTURED,
    "raw_cuda_graph_exec()": _UNTIL_CAPTURED | {"captured": _NO_EXECUTABLE},
    "enable_debug_mode()": _UNLESS_EMPTY,
    "register_generator_state()": _UNLESS_EMPTY,
    "graph_pool": _UNLESS_EMPTY,
    "capture_error_mode": _UNLESS_EMPTY,
}
"""The sentence by operation and state. Everything that is not listed is allowed."""

REFUSED_UNLESS_KEPT: dict[str, str] = {
    "instantiate()": HAS_EXECUTABLE,
    "clone()": NOT_KEPT,
    "describe()": NOT_KEPT,
    "check()": NOT_KEPT,
    "set_node()": NOT_KEPT,
    "set_nodes()": NOT_KEPT,
    "debug_dump()": NOT_KEPT,
    "raw_graph()": NOT_KEPT,
    "raw_cuda_graph()": NOT_KEPT,
}
"""What a graph that is ready refuses as well if it was not kept: the sentence by operation."""
