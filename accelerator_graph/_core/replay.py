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
from ..interop.base import Framework, Recorder
from .extension import fast, launch_of
from .liveness import checked
from .ownership import Owned, captures, drain
from .streams import Stream, captured_by, describe

if TYPE_CHECKING:
    from ._fast import Launcher


MOST_STREAMS = 16
"""The most streams to remember; more would only cost memory."""

_adding = threading.RLock()
"""Held while another binding is added."""


class _Nobody:
    """Stands for the owner where there is no executable."""

    backend = None
    last: object = None
    lock = nullcontext()


def _no_launcher() -> None:
    """Stand for the reference to a callable in C."""


class Binding:
    """An executable bound to a stream; `launch` runs whatever `target` is at that moment.

    `target` is replaced as a whole, never changed: a launch takes it once and so holds the owner
    of the executable until it is through, whatever becomes of the graph meanwhile.

    Parameters
    ----------
    stream : Stream
        Where to. A hold of its own, that nobody else can close.
    owner : Owned
        The executable.
    keeps : object
        What has to live as long as the callable does.
    check : callable, optional
        Called ahead of every launch; what it raises is raised, and nothing is launched.
    """

    __slots__ = (
        "__weakref__",
        "_asks",
        "_checked",
        "_keeps",
        "_launcher",
        "_serialised",
        "_stream",
        "target",
    )

    target: tuple[Callable[[], Any] | None, Any]
    """What launches, and the owner of the executable. None: the backend's `replay` does, since C launches and
    the way through Python is taken only now and then."""

    def __init__(
        self, stream: Stream, owner: Owned, keeps: object, check: Callable[[], None] | None = None
    ) -> None:
        self._stream = stream
        self._keeps = keeps
        self._asks = stream._backend.replay_ignores_captures
        self._serialised = owner.backend.serialises_replays
        self._launcher: Callable[[], Launcher | None] = _no_launcher
        self.connect(owner, check)

    def connect(self, owner: Owned, check: Callable[[], None] | None) -> None:
        """Launch this executable from now on, after a check if there is one."""
        self._checked = check is not None
        backend, native = owner.backend, self._stream.native
        in_c = fast is not None and self._serialised and check is None
        if in_c and backend.launch_function(owner.value, native) is not None:
            self.target = (None, owner)
        else:
            call = backend.bind(owner.value, native)
            self.target = (checked(check, call) if check else call, owner)
        self._hasten()

    def _hasten(self) -> None:
        """Have the callable in C launch without Python, if there is one and the backend lets it."""
        launcher = self._launcher()
        if launcher is None:
            return
        target = None
        while target is not self.target:  # another thread may replace it meanwhile
            target = self.target
            owner = target[1]
            launcher.target = None if self._checked or owner is _Nobody else launch_of(owner, self._stream)

    def refuse(self, why: str) -> None:
        """Raise `GraphStateError` at every launch from now on, and let go of the executable."""

        def refuse() -> NoReturn:
            raise GraphStateError(why)

        self.target = (refuse, _Nobody)
        self._hasten()

    def launcher(self) -> Callable[[], None]:
        """Return the callable. It holds the binding, and the binding does not hold it."""
        ordinary = self._launch if self._serialised else self._launch_alone
        if fast is None:
            return ordinary
        launcher: Launcher = fast.Launcher(captures, ordinary)
        self._launcher = ref(launcher)
        self._hasten()
        return launcher

    def _launch(self) -> None:
        call, owner = self.target
        if captures or self._asks:
            refuse_capturing(self._stream)
        if call is None:
            owner.backend.replay(owner.value, self._stream.native)
        else:
            call()

    def _launch_alone(self) -> None:
        call, owner = self.target
        if captures or self._asks:
            refuse_capturing(self._stream)
        assert call is not None
        with owner.lock:
            call()
            owner.last = self._stream._owner  # the next run may have to wait for this one
        if isinstance(owner.backend, Recorder):  # only later it may let C launch
            self._hasten()


class Runner:
    """The executable of one captured graph and everything that is bound to it.

    Parameters
    ----------
    captured : Owned
        The graph. Kept only if the backend's executables need it.
    home : Stream
        Where replays go that name no stream. A hold of its own, that nobody else can close.
    check : callable, optional
        Called ahead of every launch.
    """

    __slots__ = ("__weakref__", "_bound", "_check", "_home", "_own", "executable", "launch")

    def __init__(self, captured: Owned, home: Stream, check: Callable[[], None] | None = None) -> None:
        self._home = home
        self._check = check
        self._own: Binding | None = None
        self._bound: tuple[ref[Binding], ...] = ()  # by `bind`
        self.executable: Owned | None = None
        self.launch: Callable[[], None] | None = None
        self.instantiate(captured)

    def instantiate(self, captured: Owned) -> None:
        """Make an executable and let everything that is bound launch it: new first, then swap.

        Where the graph allows only one executable at a time, the old one goes first.
        """
        backend = captured.backend
        if self.executable is not None and backend.single_executable(captured.value):
            self.refuse("the graph could not be instantiated again; call instantiate() or replay()")
            drain()
        stream = self._home._owner
        keeps = (stream, captured) if backend.executable_needs_graph else (stream,)
        value = backend.instantiate(captured.value)
        self.executable = owner = Owned(backend, "destroy_executable", value, *keeps)
        for binding in self._bindings():
            binding.connect(owner, self._check)
        if self.launch is None:
            if isinstance(self._home._owner, Framework):
                self.launch = self._following()
            else:
                self._own = Binding(self._home, owner, None, self._check)
                self.launch = self._own.launcher()
        drain()

    def _bindings(self) -> list[Binding]:
        own = [] if self._own is None else [self._own]
        bound = [binding() for binding in self._bound]
        return own + [binding for binding in bound if binding is not None]

    def destination(self) -> Stream:
        """Return the stream that a launch which names none goes to at this moment."""
        framework, device = self._home._owner, self._home.device
        if not isinstance(framework, Framework):
            return self._home
        answer = framework.current_stream(device)
        return self._of_framework(0 if answer is None else answer[0])

    def _of_framework(self, handle: int) -> Stream:
        home = self._home
        return Stream._make(home._backend, home._backend.as_stream(handle), home.device, home._owner)

    def _following(self) -> Callable[[], None]:
        """Return a callable that launches on whatever stream is the framework's current one by then."""
        framework, device = self._home._owner, self._home.device
        assert isinstance(framework, Framework)
        launchers: dict[int, Callable[[], None]] = {}
        runner = ref(self)  # which holds this callable

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
        owner = self._owner()
        check = self._check
        binding = Binding(stream, owner, keeps, check)
        with _adding:
            self._bound = (*(each for each in self._bound if each() is not None), ref(binding))
        if check is not self._check or owner is not self.executable:  # another thread's, meanwhile
            binding.connect(self._owner(), self._check)
        backend = owner.backend
        if Capability.UPLOAD in backend.capabilities(stream.device) and not stream._is_capturing():
            backend.upload(owner.value, stream.native)
        return binding.launcher()

    def replay(self, stream: Stream) -> None:
        """Launch on a stream that is decided now."""
        owner = self._owner()
        refuse_capturing(stream)
        if self._check is not None:
            self._check()
        stream = stream.held()
        with nullcontext() if owner.backend.serialises_replays else owner.lock:
            owner.backend.replay(owner.value, stream.native)
            owner.last = stream._owner

    def check_with(self, check: Callable[[], None]) -> None:
        """Call this ahead of every launch from now on, also of what was bound before."""
        if self._check is not None:
            return
        self._check = check
        if self.executable is not None:
            for binding in self._bindings():
                binding.connect(self.executable, check)

    def _owner(self) -> Owned:
        """Return the owner of the executable; another thread's reset may have been first."""
        owner = self.executable
        if owner is None:
            raise GraphStateError("the graph was reset by another thread; capture again.")
        return owner

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
