"""The work of the tape backend for the conformance kit, in a module that programs do not import."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from accelerator_graph_tape import TapeStream

from accelerator_graph import Stream
from accelerator_graph.testing.works.host import HostWork, fails


class TapeWork(HostWork):
    """A piece of work is a callable, and a cell is in the memory of the process."""

    kernel_name = "step"

    def __init__(self, backend: str = "tape") -> None:
        super().__init__(backend)

    def own_stream(self) -> AbstractContextManager[TapeStream]:
        return nullcontext(TapeStream())

    def fail(self, stream: Stream) -> bool:
        stream.launch(fails)
        return True
