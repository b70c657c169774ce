"""What a graph refuses in which state, and what it says."""

from __future__ import annotations

from typing import Literal

State = Literal["empty", "capturing", "captured", "ready"]

_NOTHING = "nothing was captured; capture first, with `with graph:` or capture_begin() and capture_end()"
_CAPTURING = "the graph is being captured; call capture_end() first, or reset() to abandon the capture"
_FULL = "the graph holds a capture; call reset() first, or make another Graph"
_NOT_BEGUN = "no capture has begun; call capture_begin() first"
CAPTURED_BEFORE = "the graph was captured before this process was forked; capture it again"
BEGUN_BEFORE = "the capture was begun before this process was forked; capture again"
_UNBORN = "the graph has no executable yet; call instantiate() first"

_BEFORE = {"empty": _NOTHING, "capturing": _CAPTURING}
_ONLY_EMPTY = {"capturing": _CAPTURING, "captured": _FULL, "ready": _FULL}

REFUSED: dict[str, dict[str, str]] = {
    "capture_begin()": _ONLY_EMPTY,
    "capture_end()": {"empty": _NOT_BEGUN, "captured": _NOT_BEGUN, "ready": _NOT_BEGUN},
    "instantiate()": _BEFORE,
    "replay()": _BEFORE,
    "bind()": _BEFORE,
    "pool()": _BEFORE,
    "num_nodes": _BEFORE,
    "debug_dump()": _BEFORE,
    "raw_graph()": _BEFORE,
    "raw_executable()": _BEFORE | {"captured": _UNBORN},
    "raw_cuda_graph()": _BEFORE,
    "raw_cuda_graph_exec()": _BEFORE | {"captured": _UNBORN},
    "enable_debug_mode()": _ONLY_EMPTY,
    "register_generator_state()": _ONLY_EMPTY,
    "graph_pool": _ONLY_EMPTY,
    "capture_error_mode": _ONLY_EMPTY,
}
"""What may not be done in which state, and what is said of it. All the rest may."""
