"""A capture that torch records, and the executable that it becomes."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from ..._interpreter import process


class Recording:
    """A capture, and later the graph: torch's object and the handle borrowed from it."""

    def __init__(self, stream: Any, device: int) -> None:
        self.stream = stream
        self.device = device
        self.thread: threading.Thread = process.thread.identity.thread
        self.torch_graph: Any = None
        self.generators: list[Any] = []
        """The generators that a replay may use, if torch must be told about them; otherwise empty."""
        self.handle: Any = None
        """The backend's graph."""
        self.nodes: int | None = None
        """How many nodes were recorded; None if that was not known at the end."""
        self.routed = False
        """True once torch's allocator uses the pool."""
        self.over = False
        self.graph_is_needed = True
        self.executable: Executable | None = None


class Executable:
    """A borrowed executable."""

    __slots__ = ("handle", "needs_torch", "recording")

    def __init__(self, recording: Recording, handle: Any) -> None:
        self.recording: Recording = recording
        self.handle: Any = handle
        self.needs_torch: bool | None = None if recording.generators else True
        """True if torch must replay it because it draws random numbers; None if that is not known yet."""


def new_graph(torch: Any) -> Any:
    """Make a graph of torch's own class, even while `accelerator_graph.compat` has replaced its name."""
    named = torch.cuda.CUDAGraph
    for kind in named.__mro__:  # for a class of torch, `getattr` takes long to say that there is none
        if "torchs_own" in kind.__dict__:
            named = kind.__dict__["torchs_own"]
            break
    return named(keep_graph=True)


@cache
def decides_itself(kind: Any) -> bool:
    """Return True if generators join a capture automatically and replays run hooks, as since torch 2.14.

    torch does not tell which generators have joined, so every replay must go through torch.
    """
    return not hasattr(kind, "register_generator_state") or hasattr(kind, "register_replay_start_hook")


def offsets(generators: list[Any]) -> list[int] | None:
    """Return the offsets of generators; None if torch does not tell them now."""
    try:
        return [generator.get_offset() for generator in generators]
    except RuntimeError:  # not permitted during a capture
        return None
