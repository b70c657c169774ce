"""Replaying: the executable of a graph, and the callables in which everything is decided."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ref

from .._interpreter.process import after_fork
from ..backends.base import Capability
from ..errors import CaptureError, GraphStateError
from ..interop.base import FrameworkRecorder
from . import capture_table
from .extension import fast, launch_in_c, new_lock
from .liveness import checked
from .ownership import Owned, drain
from .streams import FrameworkCurrent, Stream, captured_by, describe

if TYPE_CHECKING:
    from ..backends.base import Backend, Recorder
    from ..interop.base import Framework
    from ._fast import Launcher
    from .capture import Captured

MOST_STREAMS = 16
"""The most streams to remember; more would only cost memory."""

_adding = threading.RLock()
"""Held while another binding is added."""


class Executable(Owned):
    """An executable of a captured graph.

    Attributes
    ----------
    lock : Lock or None
        Held during each launch. None if the recorder serialises replays itself.
    last : object
        The owner of the stream of the latest run, which the next run may have to wait for.
    """

    __slots__ = ("last", "lock")

    def __init__(self, recorder: Recorder, backend: Backend, value: Any, *keeps: object) -> None:
        super().__init__(recorder, backend, value, *keeps)
        self.lock = None if recorder.serialises_replays else new_lock()
        self.last: object = None

    def act(self) -> None:
        """Destroy the executable."""
        self.recorder.destroy_executable(self.value)


class Binding:
    """An executable bound to a stream; a launch runs whatever `target` is at that moment.

    `target` is replaced as a whole, never changed: a launch takes it once and so holds the executable until
    it is through, whatever becomes of the graph meanwhile.

    Parameters
    ----------
    stream : Stream
        Where launches go. A hold of its own, which nobody else can close.
    executable : Executable
        What they run.
    keeps : object
        What has to live as long as the callable does.
    check : callable, optional
        Called ahead of every launch; what it raises is raised, and nothing is launched.
    """

    __slots__ = ("__weakref__", "_asks", "_in_c", "_keeps", "_stream", "target")

    target: tuple[Callable[[], Any] | None, Executable | None, bool]
    """What launches, or None where C does and the recorder's `replay` is enough for the rest; the executable,
    or None once launches are refused; and whether C may launch it."""

    def __init__(
        self, stream: Stream, executable: Executable, keeps: object, check: Callable[[], None] | None = None
    ) -> None:
        self._stream = stream
        self._keeps = keeps
        self._asks = stream._backend.replay_ignores_captures
        self._in_c: Callable[[], Launcher | None] = lambda: None
        self.connect(executable, check)

    def connect(self, executable: Executable, check: Callable[[], None] | None) -> None:
        """Launch this executable from now on, after a check if there is one."""
        recorder, value, native = executable.recorder, executable.value, self._stream.native
        if check is not None:
            self.target = (checked(check, recorder.bind(value, native)), executable, False)
        elif executable.lock is None and launch_in_c(executable, self._stream) is not None:
            self.target = (None, executable, True)
        else:
            self.target = (recorder.bind(value, native), executable, True)
        self._connect_c()

    def _connect_c(self) -> None:
        """Have the callable in C launch without Python, if there is one and the recorder lets it."""
        launcher = self._in_c()
        if launcher is None:
            return
        target = None
        while target is not self.target:  # another thread may replace it meanwhile
            target = self.target
            _, executable, in_c = target
            launcher.target = launch_in_c(executable, self._stream) if in_c and executable else None

    def refuse(self, why: str) -> None:
        """Raise `GraphStateError` at every launch from now on, and let go of the executable."""

        def refuse() -> NoReturn:
            raise GraphStateError(why)

        self.target = (refuse, None, False)
        self._connect_c()

    def launcher(self) -> Callable[[], None]:
        """Return the callable. It holds the binding, and the binding does not hold it."""
        executable = self.target[1]
        in_python = self._launch if executable is None or executable.lock is None else self._launch_locked
        if fast is None:
            return in_python
        launcher: Launcher = fast.Launcher(capture_table.live, in_python)
        self._in_c = ref(launcher)
        self._connect_c()
        return launcher

    def _launch(self) -> None:
        call, executable, _ = self.target
        if capture_table.live or self._asks:
            refuse_capturing(self._stream)
        if call is not None:
            call()
        elif executable is not None:
            executable.recorder.replay(executable.value, self._stream.native)

    def _launch_locked(self) -> None:
        call, executable, _ = self.target
        if capture_table.live or self._asks:
            refuse_capturing(self._stream)
        assert call is not None
        if executable is None or executable.lock is None:
            call()  # which refuses
            return
        with executable.lock:
            call()
            executable.last = self._stream._owner  # the next run may have to wait for this one
        if isinstance(executable.recorder, FrameworkRecorder):  # only later it may let C launch
            self._connect_c()


class Runner:
    """The executable of one captured graph, and everything that is bound to it.

    Parameters
    ----------
    captured : Captured
        The graph. It is not kept.
    home : Stream
        Where replays go that name no stream. A hold of its own, which nobody else can close.
    check : callable, optional
        Called ahead of every launch.
    """

    __slots__ = ("__weakref__", "_bound", "_check", "_home", "executable")

    def __init__(self, captured: Captured, home: Stream, check: Callable[[], None] | None = None) -> None:
        self._home = home
        self._check = check
        self._bound: tuple[ref[Binding], ...] = ()
        self.executable: Executable | None = None
        self.instantiate(captured)

    def instantiate(self, captured: Captured) -> None:
        """Make an executable and let everything that is bound launch it: new first, then swap.

        Where the graph allows only one executable at a time, the old one is destroyed first.
        """
        recorder = captured.recorder
        if self.executable is not None and recorder.single_executable(captured.value):
            self.refuse("the graph could not be instantiated again; call instantiate() or replay()")
            drain()
        value = recorder.instantiate(captured.value)
        self.executable = Executable(recorder, captured.backend, value, self._home._owner)
        for binding in self._bindings():
            binding.connect(self.executable, self._check)
        drain()

    def home_launcher(self) -> Callable[[], None]:
        """Return a callable that replays where replays go that name no stream."""
        owner = self._home._owner
        if isinstance(owner, FrameworkCurrent):
            return self._following(owner.framework)
        return self._bind(self._home, None).launcher()

    def _bindings(self) -> list[Binding]:
        return [binding for each in self._bound if (binding := each()) is not None]

    def destination(self) -> Stream:
        """Return the stream that a launch which names none goes to at this moment."""
        owner, device = self._home._owner, self._home.device
        if not isinstance(owner, FrameworkCurrent):
            return self._home
        answer = owner.framework.current_stream(device)
        return self._of_framework(0 if answer is None else answer[0])

    def _of_framework(self, handle: int) -> Stream:
        home = self._home
        return Stream._make(home._backend, home._backend.as_stream(handle), home.device, home._owner)

    def _following(self, framework: Framework) -> Callable[[], None]:
        """Return a callable that launches on whatever stream is the framework's current one by then."""
        device = self._home.device
        launchers: dict[int, Callable[[], None]] = {}
        runner = ref(self)  # which may hold this callable

        def missing(handle: int) -> Callable[[], None]:
            here = runner()
            if here is None:
                raise GraphStateError("the graph was reset by another thread; capture again.")
            make_room(launchers)
            call = launchers[handle] = here.bind(here._of_framework(handle), None)
            return call

        def launch() -> None:
            answer = framework.current_stream(device)
            handle = 0 if answer is None else answer[0]
            (launchers.get(handle) or missing(handle))()

        ask = framework.current_handle(device)
        return launch if fast is None or ask is None else fast.Follower(launchers, missing, *ask)

    def bind(self, stream: Stream, keeps: object) -> Callable[[], None]:
        """Return a callable that launches on this stream and keeps what it is given."""
        binding = self._bind(stream, keeps)
        executable = self._current()
        if Capability.UPLOAD in stream._backend.capabilities(stream.device) and not stream._is_capturing():
            executable.recorder.upload(executable.value, stream.native)
        return binding.launcher()

    def _bind(self, stream: Stream, keeps: object) -> Binding:
        executable, check = self._current(), self._check
        binding = Binding(stream, executable, keeps, check)
        with _adding:
            self._bound = (*(each for each in self._bound if each() is not None), ref(binding))
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
        with nullcontext() if executable.lock is None else executable.lock:
            executable.recorder.replay(executable.value, stream.native)
            executable.last = stream._owner

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
            raise GraphStateError("the graph was reset by another thread; capture again.")
        return executable

    def refuse(self, why: str) -> None:
        """Let go of the executable; everything that is bound raises `GraphStateError`."""
        for binding in self._bindings():
            binding.refuse(why)
        self.executable = None


def refuse_capturing(stream: Stream) -> None:
    """Raise if a replay onto this stream would break the capture that it takes part in, or be missing in it.

    Raises
    ------
    CaptureError
        The stream is capturing and its backend can't record a replay. Nothing was touched.
    """
    backend = stream._backend
    if Capability.CHILD_GRAPHS in backend.capabilities(stream.device):
        return
    if stream._is_capturing():
        raise CaptureError(
            f"replay onto the {describe(stream)}: backend {backend.name!r} can't record a replay in another "
            f"graph, and {captured_by(stream)}.",
            reason="illegal_call",
        )


def make_room(table: dict[Any, Any]) -> None:
    """Drop the oldest if there are too many."""
    if len(table) >= MOST_STREAMS:
        with suppress(KeyError, RuntimeError, StopIteration):  # another thread drops one
            del table[next(iter(table))]


def _after_fork() -> None:
    global _adding
    _adding = threading.RLock()


after_fork(_after_fork)
