"""A backend for a runtime that records explicitly: a stream runs its work, or writes it on a tape.

The runtime is a toy, so that the contract can be seen: `TapeStream` runs each piece of work at once,
in the caller's thread. While it has a tape, it writes the work there instead. A tape is a graph, and
it is its own executable: replaying runs what is written on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from threading import RLock
from typing import Any, NamedTuple

from accelerator_graph.backends.base import (
    Availability,
    CaptureInfo,
    CaptureStatus,
    Enqueues,
    GraphEdge,
    GraphNode,
    ReadsGraphs,
)
from accelerator_graph.errors import CaptureError, driver_error


class Entry(NamedTuple):
    """One piece of work on a tape."""

    kind: str
    run: Callable[[], object]
    name: str = ""


class TapeStream:
    """The runtime's stream."""

    def __init__(self) -> None:
        self.tape: list[Entry] | None = None
        self.failure: Exception | None = None
        self.lock = RLock()  # re-entrant: a signal handler may enqueue work in the middle of a replay

    def enqueue(self, entry: Entry) -> None:
        with self.lock:
            if self.tape is None:
                self.run([entry])
            else:
                self.tape.append(entry)

    def run(self, entries: Iterable[Entry]) -> None:
        """Run them without other work in between. The first failure ends that, and waits to be asked for."""
        with self.lock:
            try:
                for entry in entries:
                    entry.run()
            except Exception as error:
                self.failure = self.failure or error

    def take_failure(self) -> Exception | None:
        with self.lock:
            failure, self.failure = self.failure, None
            return failure


class TapeBackend(Enqueues, ReadsGraphs):
    """The runtime, as accelerator_graph sees it."""

    api_version = 1
    priority = None  # it is no accelerator: a program that names no backend must not get it
    recording = "explicit"  # nobody enqueues on a TapeStream behind the library's back
    stream_modules = frozenset({"accelerator_graph_tape"})
    replay_ignores_captures = True  # a tape runs where it is asked to, also beside a tape that records
    survives_fork = True

    @classmethod
    def probe(cls) -> Availability:
        return Availability(True, versions={"tape": "1.2"}, devices=1)

    # ---- streams: work is done when `enqueue` returns, so there is nothing to wait for ----------

    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> TapeStream:
        return TapeStream()

    def destroy_stream(self, stream: TapeStream) -> None: ...

    def device_of(self, stream: TapeStream) -> int:
        return 0

    def synchronize(self, stream: TapeStream) -> None:
        if stream.tape is not None:
            raise CaptureError("a stream can't be synchronized while it captures.", reason="illegal_call")
        failure = stream.take_failure()
        if failure is not None:
            raise driver_error(
                backend=self.name, call="launch", code=None, code_name="WORK_FAILED", detail=repr(failure)
            ) from failure

    def as_stream(self, obj: object) -> TapeStream | None:
        return obj if isinstance(obj, TapeStream) else None

    # ---- enqueue -------------------------------------------------------------------------------

    def fill(self, stream: TapeStream, dst: Any, value: int, nbytes: int | None) -> None:
        target = bytes_of(dst, nbytes)  # what is wrong with it is said now, not when the tape runs
        source = bytes([value]) * len(target)
        stream.enqueue(Entry("memset", partial(target.__setitem__, slice(None), source)))

    def copy(self, stream: TapeStream, dst: Any, src: Any, nbytes: int | None) -> None:
        source = bytes_of(src, nbytes, writable=False)
        target = bytes_of(dst, len(source))
        stream.enqueue(Entry("memcpy", partial(target.__setitem__, slice(None), source)))

    def launch(self, stream: TapeStream, work: Any, /, *args: Any, **how: Any) -> None:
        name = getattr(work, "__qualname__", type(work).__name__)
        stream.enqueue(Entry("host", partial(work, *args, **how), name))

    # ---- capture: a token is the stream with its tape, so an old token never ends a new capture --

    def capture_status(self, stream: TapeStream) -> CaptureStatus:
        return CaptureStatus.NONE if stream.tape is None else CaptureStatus.ACTIVE

    def capture_info(self, stream: TapeStream) -> CaptureInfo | None:
        tape = stream.tape
        return None if tape is None else CaptureInfo(id(tape), len(tape))

    def capture_begin(self, stream: TapeStream, mode: str) -> tuple[TapeStream, list[Entry]]:
        tape: list[Entry] = []
        stream.tape = tape
        return stream, tape

    def capture_end(self, token: tuple[TapeStream, list[Entry]]) -> list[Entry]:
        stream, tape = token
        if stream.tape is not tape:
            raise CaptureError("the capture has ended already.")
        stream.tape = None
        return tape

    # ---- graphs and executables ----------------------------------------------------------------

    def instantiate(self, graph: list[Entry]) -> list[Entry]:
        return graph

    def replay(self, executable: list[Entry], stream: TapeStream) -> None:
        stream.run(executable)

    def destroy_graph(self, graph: list[Entry]) -> None: ...  # it may still be in use as an executable

    def destroy_executable(self, executable: list[Entry]) -> None: ...

    def nodes(self, graph: list[Entry], executable: Any = None) -> tuple[list[GraphNode], list[GraphEdge]]:
        nodes = [GraphNode(id, entry.kind, entry.name) for id, entry in enumerate(graph)]
        return nodes, [GraphEdge(id - 1, id) for id in range(1, len(graph))]


def bytes_of(buffer: Any, nbytes: int | None, *, writable: bool = True) -> memoryview:
    """Return the first `nbytes` bytes of a buffer, or all of them."""
    view = memoryview(buffer).cast("B")
    if view.readonly and writable:
        raise ValueError("the memory is read-only; pass one that can be written.")
    if nbytes is not None and not 0 <= nbytes <= len(view):
        raise ValueError(f"nbytes is {nbytes}, and the memory has {len(view)}.")
    return view[:nbytes]
