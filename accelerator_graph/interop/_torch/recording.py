"""A capture that torch records, and the executable that it becomes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Recording:
    """A capture, and later the graph: torch's object and the handle borrowed from it."""

    stream: Any
    device: int
    thread: threading.Thread = field(default_factory=threading.current_thread)
    torch_graph: Any = None
    generators: list[Any] = field(default_factory=list)
    """The generators that a replay may use, if torch must be told about them; otherwise empty."""
    handle: Any = None
    """The backend's graph."""
    routed: bool = False
    """True once torch's allocator uses the pool."""
    over: bool = False
    graph_is_needed: bool = True
    executable: Executable | None = None


@dataclass(eq=False, slots=True)
class Executable:
    """A borrowed executable."""

    recording: Recording
    handle: Any
    needs_torch: bool | None = None
    """True if torch must replay it because it draws random numbers; None if that is not known yet."""


def new_graph(torch: Any) -> Any:
    """Make a graph of torch's own class, even while `accelerator_graph.compat` has replaced its name."""
    named = torch.cuda.CUDAGraph
    return getattr(named, "torchs_own", named)(keep_graph=True)


def decides_itself(torch_graph: Any) -> bool:
    """Return True if generators join a capture automatically and replays run hooks, as since torch 2.14.

    torch does not tell which generators have joined, so every replay must go through torch.
    """
    return not hasattr(torch_graph, "register_generator_state") or hasattr(
        torch_graph, "register_replay_start_hook"
    )


def offsets(generators: list[Any]) -> list[int] | None:
    """Return the offsets of generators; None if torch does not tell them now."""
    try:
        return [generator.get_offset() for generator in generators]
    except RuntimeError:  # not permitted during a capture
        return None
