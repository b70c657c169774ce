"""A capture in progress: its stream, its thread, the facts noted about it, and the graph that it becomes."""

from __future__ import annotations

import itertools
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from .._interpreter import process
from ..errors import AcceleratorGraphError, GraphStateError
from .ownership import Owned
from .streams import describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..backends.base import Recorder
    from ..interop.base import Collective, Framework, Undo
    from . import capture_table
    from .call_site import Site
    from .capture_plan import CaptureMode
    from .marks import LabelledRange, Mark
    from .observation import Observation
    from .pools import Lease
    from .progress import Progress
    from .streams import Stream

_keys = itertools.count()

NO_TOKEN = object()
"""Stands for the token of a recorder that records nothing."""


class CaptureBase:
    """A capture in progress, without the steps that begin and end it.

    Parameters
    ----------
    graph : Graph
        The graph that captures.
    stream : Stream
        The stream to capture.
    home : Stream
        Where replays will go: a hold that nobody else can close.
    lease : Lease
        The graph's part in a pool.
    retained : int
        How many objects the graph retained before; later ones go if the capture fails.
    """

    __slots__ = (
        "__weakref__",
        "_graph",
        "_identity",
        "_key",
        "_owner",
        "_token",
        "_undos",
        "backend",
        "begun_at",
        "collectives",
        "frameworks",
        "home",
        "labels",
        "lease",
        "mode",
        "native",
        "observation",
        "progress",
        "recorder",
        "retained",
        "stream",
        "thread",
    )

    def __init__(
        self,
        graph: capture_table.Retaining,
        stream: Stream,
        home: Stream,
        lease: Lease,
        retained: int,
    ) -> None:
        self._graph = ref(graph)  # which holds this capture; the thread holds the graph
        self.stream = stream
        self.home = home
        self.lease = lease
        self.retained = retained
        self.backend = stream._backend
        self.native = stream._native
        self.recorder: Recorder = stream._backend
        self.frameworks: Sequence[Framework] | None = None
        here = process.thread.identity
        self.thread = here.thread
        self.begun_at: Site | None = None
        self.mode: CaptureMode = "default"
        self.labels: list[Mark] = []
        self.observation: Observation | None = None
        self.collectives: list[Collective] = []
        self.progress: Progress | None = None
        self._undos: list[Undo] = []
        self._token: Any = NO_TOKEN
        self._key = next(_keys)
        self._identity = ref(here)
        self._owner = stream._owner  # the stream may be closed meanwhile

    @property
    def subject(self) -> str:
        """Which capture: the beginning of a message."""
        return f"the capture of the {describe(self.stream)}"

    def who(self) -> str:
        """Return who is capturing the stream, and the way out: a clause."""
        since = "" if self.begun_at is None else " since {}:{}".format(*self.begun_at)
        if self.is_here():
            return (
                f"a graph of this thread is capturing the stream{since}; end that capture, or abandon it "
                "with accelerator_graph.current_graph().reset()"
            )
        return (
            f"thread {self.thread.name!r} is capturing the stream{since}; wait for the end of that capture, "
            "or use another stream"
        )

    def relaxed(self) -> AbstractContextManager[object]:
        """Return a context in which this thread does not disturb the capture."""
        return self.backend.relaxed(self.native)

    def recorded(self) -> int | None:
        """Return how many nodes there are so far; None if that is not known, or nothing is recorded now."""
        if self._token is NO_TOKEN:
            return None
        try:
            return self.recorder.recorded(self._token)
        except AcceleratorGraphError:  # a capture that is broken says so at its end
            return None

    def check_thread(self, what: str) -> None:
        """Raise `GraphStateError` if this thread may not end the capture."""
        if not self.is_here() and (what != "reset()" or self.thread_lives()):
            raise GraphStateError(
                f"Graph.{what}: thread {self.thread.name!r} began this capture and has to end it, not "
                f"thread {threading.current_thread().name!r}."
            )

    def is_here(self) -> bool:
        """Return True if the calling thread began the capture."""
        return self._identity() is process.thread.identity

    def thread_lives(self) -> bool:
        """Return True if the thread that began the capture has not ended."""
        return self._identity() is not None


class Captured(Owned):
    """A graph that was captured."""

    __slots__ = ("labels", "mode")

    is_lent: ClassVar[bool] = False
    """The graph is another one's, which lives as long as this."""
    labels: tuple[LabelledRange, ...]
    mode: CaptureMode

    def act(self) -> None:
        """Destroy the graph."""
        self.recorder.destroy_graph(self.value)
