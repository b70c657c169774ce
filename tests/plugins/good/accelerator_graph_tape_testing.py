"""The work of the tape backend for the conformance kit, in a module that programs do not import."""

from __future__ import annotations

from accelerator_graph import Stream
from accelerator_graph.testing.works.host import HostWork, fails


class TapeWork(HostWork):
    """A piece of work is a callable, and a cell is in the memory of the process."""

    def __init__(self, backend: str = "tape") -> None:
        super().__init__(backend)

    def fail(self, stream: Stream) -> bool:
        stream.launch(fails)
        return True
