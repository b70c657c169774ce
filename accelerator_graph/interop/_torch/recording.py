"""A capture that torch records, and what becomes of it."""

from __future__ import annotations

import threading
from typing import Any


class Recording:
    """A capture, and later the graph: torch's object and what is borrowed from it."""

    def __init__(self, stream: Any, device: int) -> None:
        self.torch_graph: Any = None
        self.stream = stream
        self.device = device
        self.thread = threading.current_thread()
        self.generators: list[Any] = []
        """All whose numbers a replay may use, where torch has to be told them; else none."""
        self.handle: Any = None
        """The backend's graph, or its executable."""
        self.routed = False
        """Whether torch's allocator has been sent to the pool."""
        self.over = False
        self.graph_is_needed = True
        self.executable: Executable | None = None


class Executable:
    """A borrowed executable."""

    __slots__ = ("handle", "needs_torch", "recording")

    def __init__(self, recording: Recording, handle: Any) -> None:
        self.recording = recording
        self.handle = handle
        self.needs_torch: bool | None = None
        """Whether torch has to replay it, for its random numbers; None as long as that is not known."""


def new_graph(torch: Any) -> Any:
    """Make a graph of torch's own class, also while `accelerator_graph.compat` has taken its name."""
    named = torch.cuda.CUDAGraph
    return getattr(named, "torchs_own", named)(keep_graph=True)


def decides_itself(torch_graph: Any) -> bool:
    """Say whether generators join a capture by themselves, and replays run hooks: since torch 2.14.

    Nobody can be asked which ones have joined. Every replay has to go through torch then.
    """
    return not hasattr(torch_graph, "register_generator_state") or hasattr(
        torch_graph, "register_replay_start_hook"
    )


def offsets(generators: list[Any]) -> list[int] | None:
    """Return where generators stand; None if torch doesn't tell now."""
    try:
        return [generator.get_offset() for generator in generators]
    except RuntimeError:  # refused in a capture
        return None
