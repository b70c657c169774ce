"""Replaying a captured graph: its executable, and everything that is bound to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

from .._interpreter.process import after_fork
from ..backends.base import Capability, unsupported
from ..errors import GraphStateError, UnsupportedError
from .binding import Binding, Executable, refuse_capturing
from .extension import fast
from .ownership import drain
from .states import RESET_MEANWHILE
from .streams import FrameworkCurrent, Stream, as_stream, describe
from .switches import measuring

if TYPE_CHECKING:
    from ..backends.base import GraphContents
    from .capture import Captured
    from .changing import Changing
    from .memory import Measured
    from .pools import Lease

MOST_STREAMS = 16
"""The most streams to remember; more would only cost memory."""

_adding = threading.RLock()
"""Held while a binding is added, or a check to a graph that was not kept."""


class Runner:
    """A captured graph, its executable once there is one, and everything that is bound to that.

    Parameters
    ----------
    captured : Captured
        The graph.
    keep : bool
        Keep the graph once there is an executable.
    home : Stream
        The stream of replays that name none. A hold of its own, which nobody else can close.
    lease : Lease
        The graph's part in a pool, which the graph releases when it is reset.
    check : callable, optional
        Called ahead of every launch.
    """

    __slots__ = (
        "__weakref__",
        "_bound",
        "_check",
        "beside",
        "captured",
        "changing",
        "counted",
        "dropped",
        "ended",
        "executable",
        "home",
        "keeps_graph",
        "lease",
        "lock",
        "measured",
        "retained",
    )

    def __init__(
        self,
        captured: Captured,
        keep: bool,
        home: Stream,
        lease: Lease,
        check: Callable[[], None] | None,
    ) -> None:
        self.captured: Captured | None = captured
        self.executable: Executable | None = None
        self.measured: Measured | None = None
        self.home = home
        self.lease = lease
        self.lock = threading.RLock() if keep else _adding
        """Held while the graph is instantiated late, or a check is added."""
        self.keeps_graph = keep
        self.beside = False
        """Whether another stream was captured than that of replays."""
        self.retained: tuple[object, ...] = ()
        """What the graph's present work needs."""
        self.dropped = ""
        """Why there is no executable any more, if the user has to ask for another one."""
        self.changing: Changing | None = None
        """The change of the graph that is under way."""
        self.ended = ""
        """Why there will never be one again."""
        self._check = check
        self._bound: tuple[ref[Binding], ...] = ()
        self.counted = None if keep else captured.recorder.node_count(captured.value)

    def is_empty(self, own: int) -> bool:
        """Return True if nothing was captured beside the library's own nodes, as far as that is known.

        Asked before `instantiate`.
        """
        captured = self.captured
        if own or captured is None:
            return self._count() == own
        return captured.recorder.is_empty(captured.value)

    def num_nodes(self) -> int:
        """Return how many nodes were captured."""
        count = self._count()
        if count is None:
            raise unsupported(self.home._backend, Capability.NODES)
        return count

    def _count(self) -> int | None:
        captured = self.captured
        if self.counted is None and captured is not None:
            self.counted = captured.recorder.node_count(captured.value)
        return self.counted

    def contents(self, captured: Captured) -> GraphContents:
        """Return what is in the graph, with what was changed in its executable."""
        contents = captured.recorder.nodes(captured.value)
        changes = None if self.executable is None else self.executable.changes
        return contents if changes is None or changes.graph is not captured.value else changes.seen(contents)

    def instantiate(self) -> None:
        """Make an executable and let everything that is bound launch it: new first, then swap.

        Where the graph allows only one executable at a time, the old one is destroyed first.
        """
        captured = self.captured
        assert captured is not None
        recorder = captured.recorder
        if self.executable is not None and recorder.single_executable(captured.value):
            self.refuse("the graph could not be instantiated again; call instantiate() or replay()")
            drain()
        executable, self.measured = self.make(captured, self.lease)
        self.connect(executable)
        if not self.keeps_graph:
            self.captured = None
        drain()

    def make(self, captured: Captured, lease: Lease) -> tuple[Executable, Measured | None]:
        """Make an executable of a graph, which nothing launches yet."""
        if measuring.depth:
            from .memory import after_instantiation, before_instantiation
        before = before_instantiation(captured) if measuring.depth else None
        value = captured.recorder.instantiate(captured.value)
        keeps: list[object] = [self.home._owner]
        if captured.is_lent:
            keeps.append(captured)
        executable = Executable(captured.recorder, captured.backend, value, *keeps)
        if self.keeps_graph:
            executable.made_of = captured.value
        measured = None if before is None else after_instantiation(before, captured, self.home, lease)
        return executable, measured

    def connect(self, executable: Executable) -> None:
        """Let everything that is bound launch this executable."""
        with self.lock:
            if self.ended:
                raise GraphStateError(f"{self.ended}.")
            self.executable, self.dropped = executable, ""
            for binding in self._bindings() if self._bound else ():
                binding.connect(executable, self._check)

    def home_launcher(self) -> Callable[[], None]:
        """Return a callable that replays where replays go that name no stream."""
        owner = self.home._owner
        if not isinstance(owner, FrameworkCurrent):
            return self._bind(self.home, None).launcher()
        # on whatever stream is the framework's current one by then
        framework, device = owner.framework, self.home._device
        launchers: dict[int, Callable[[], None]] = {}
        runner = ref(self)  # which may hold this callable

        def missing(handle: int) -> Callable[[], None]:
            here = runner()
            if here is None:
                raise GraphStateError(f"{RESET_MEANWHILE}.")
            if launchers:
                make_room(launchers)
            call = launchers[handle] = here._bind(here._of_framework(handle), None).launcher()
            return call

        def launch() -> None:
            answer = framework.current_stream(device)
            handle = 0 if answer is None else answer[0]
            (launchers.get(handle) or missing(handle))()

        ask = framework.current_handle(device)
        if fast is None or ask is None:
            return launch
        exchange = framework.work_stream(device) or ()
        follow: Callable[[], None] = fast.Follower(launchers, missing, *ask, exchange=exchange)
        return follow

    def stream_for(self, obj: object) -> Stream:
        """Return the stream that an object stands for, if the graph can be replayed there.

        Raises
        ------
        TypeError, ValueError
            It is not a stream, or one of another backend or device.
        """
        home = self.home
        why = "on which the graph was captured; replay it on a stream of that backend"
        stream = as_stream(obj, home.backend, why)
        if stream._backend is not home._backend:
            raise ValueError(
                f"{describe(stream)}: that backend was registered anew after this graph was captured; "
                "capture it again."
            )
        if stream.device != home.device:
            raise ValueError(
                f"the graph was captured on device {home.device} and can't be replayed on device "
                f"{stream.device}; capture it there, or take a stream of device {home.device}."
            )
        return stream

    def check_cuda_like(self) -> None:
        """Raise `UnsupportedError` if the backend's handles are not like CUDA's."""
        if not self.home._backend.cuda_like:
            raise UnsupportedError(
                f"backend {self.home.backend!r} has no handles like CUDA's; raw_graph() and raw_executable() "
                "return its own, if it has any."
            )

    def _bindings(self) -> list[Binding]:
        return [binding for each in self._bound if (binding := each()) is not None]

    def destination(self) -> Stream:
        """Return the stream that a launch which names none goes to at this moment."""
        owner, device = self.home._owner, self.home.device
        if not isinstance(owner, FrameworkCurrent):
            return self.home
        answer = owner.framework.current_stream(device)
        return self._of_framework(0 if answer is None else answer[0])

    def _of_framework(self, handle: int) -> Stream:
        home = self.home
        backend = home._backend
        if backend.handle_int(home._native) == handle:
            return home
        return Stream._make(backend, backend.as_stream(handle), home._device, home._owner)

    def bind(self, stream: Stream, keeps: object) -> Callable[[], None]:
        """Return a callable that launches on this stream, and keeps an object alive."""
        binding = self._bind(stream, keeps)
        executable = self._current()
        if Capability.UPLOAD in stream._backend.capabilities(stream.device) and not stream._is_capturing():
            executable.recorder.upload(executable.value, stream.native)
        return binding.launcher()

    def _bind(self, stream: Stream, keeps: object) -> Binding:
        executable, check = self.executable or self._current(), self._check
        binding = Binding(stream, executable, keeps, check)
        with _adding:
            others = [each for each in self._bound if each() is not None] if self._bound else ()
            self._bound = (*others, ref(binding))
        if check is not self._check or executable is not self.executable:  # another thread's, meanwhile
            binding.connect(self._current(), self._check)
        return binding

    def replay(self, stream: Stream) -> None:
        """Launch on a stream that is decided now."""
        executable = self._current()
        refuse_capturing(stream)
        if self._check is not None:
            self._check()
        stream = stream.held()
        try:
            with nullcontext() if executable.lock is None else executable.lock:
                executable.refuse_changing()
                executable.recorder.replay(executable.value, stream.native)
                executable.last = stream._owner
        finally:
            del executable  # a traceback that held it would look like a launch in progress: see launch_lock

    def check_with(self, check: Callable[[], None]) -> None:
        """Call this ahead of every launch from now on, those that were bound before included."""
        if self._check is not None:
            return
        self._check = check
        if self.executable is not None:
            for binding in self._bindings():
                binding.connect(self.executable, check)

    def _current(self) -> Executable:
        """Return the executable, unless another thread has reset the graph."""
        executable = self.executable
        if executable is None:
            raise GraphStateError(f"{RESET_MEANWHILE}.")
        return executable

    def refuse(self, why: str) -> None:
        """Let go of the executable; everything that is bound raises `GraphStateError`."""
        for binding in self._bindings() if self._bound else ():
            binding.refuse(why)
        self.executable = None

    def end(self, why: str) -> None:
        """Like `refuse`, for good, even if another thread is making an executable."""
        with self.lock:
            self.ended = why
            self.refuse(why)

    def drop(self, why: str) -> None:
        """Like `refuse`; the graph has no executable until `instantiate`."""
        self.dropped = why
        self.refuse(why)


def make_room(table: dict[Any, Any]) -> None:
    """Drop the oldest if there are too many."""
    if len(table) >= MOST_STREAMS:
        with suppress(KeyError, RuntimeError, StopIteration):  # another thread drops one
            del table[next(iter(table))]


def _after_fork() -> None:
    global _adding
    _adding = threading.RLock()


after_fork(_after_fork)
