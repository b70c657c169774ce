"""An executable bound to a stream: the callables in which everything is decided."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import ref

from ..backends.base import Capability, LaunchFunction, SameContext, SameStream
from ..errors import CaptureError, GraphStateError
from ..interop.base import FrameworkRecorder
from . import capture_table
from .extension import fast, new_lock
from .ownership import Owned
from .streams import Stream, captured_by, describe

if TYPE_CHECKING:
    from ..backends.base import Backend, Recorder
    from ._fast import Launch, Launcher
    from .node_changes import NodeChanges


class Executable(Owned):
    """An executable of a captured graph.

    Attributes
    ----------
    lock : Lock or None
        Held during each launch. None if the recorder serialises replays itself, until the first update.
    last : object
        The owner of the stream of the latest run, which the next run may have to wait for.
    made_of : object
        The recorder's graph, if that was kept.
    changes : NodeChanges or None
        What single nodes were changed to, once some were.
    former : Event or None
        The `over` of another object that stood for the executable before.
    over : Event or None
        Set by `drain` once nobody holds this object any more, if another one stands for the executable now.
    """

    __slots__ = ("changes", "former", "last", "lock", "made_of", "over")

    def __init__(self, recorder: Recorder, backend: Backend, value: Any, *keeps: object) -> None:
        self.over: threading.Event | None = None  # first: an interrupt may come at any moment
        super().__init__(recorder, backend, value, *keeps)
        self.lock = None if recorder.serialises_replays else new_lock()
        self.last: object = None
        self.made_of: object = None
        self.changes: NodeChanges | None = None
        self.former: threading.Event | None = None

    def locked(self) -> Executable:
        """Return another object for the same executable, whose launches hold a lock.

        Launches that began before, without the lock, may still be under way until its `former` is set.
        """
        self.over = threading.Event()
        other = Executable(self.recorder, self.backend, self.value)
        other.keeps = self.keeps
        other.lock = new_lock()
        other.made_of, other.changes = self.made_of, self.changes
        other.former = self.over
        return other

    def refuse_changing(self) -> None:
        """Raise `GraphStateError` if this thread is in the middle of changing nodes, in a signal handler."""
        if self.changes is not None and self.changes.under_way:
            raise GraphStateError("the graph's nodes are being changed by this thread; replay it afterwards.")

    def act(self) -> None:
        """Destroy the executable."""
        if self.over is None:
            self.recorder.destroy_executable(self.value)
        else:
            self.over.set()


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
        Called before every launch. If it raises, nothing is launched and the exception passes.
    """

    __slots__ = ("__weakref__", "_asks", "_in_c", "_keeps", "_stream", "target")

    target: tuple[Callable[[], Any] | None, Executable | None, LaunchFunction | bool]
    """What launches, or None where C does and the recorder's `replay` is enough for the rest; the executable,
    or None once launches are refused; and how C launches it, or whether it may."""

    def __init__(
        self, stream: Stream, executable: Executable, keeps: object, check: Callable[[], None] | None = None
    ) -> None:
        self._stream = stream
        self._keeps = keeps
        self._asks = stream._backend.replay_ignores_captures
        self._in_c: Callable[[], Launcher | None] | None = None
        self.connect(executable, check)

    def connect(self, executable: Executable, check: Callable[[], None] | None) -> None:
        """Launch this executable from now on, after a check if there is one."""
        recorder, value, native = executable.recorder, executable.value, self._stream._native
        if check is not None:
            self.target = (_checked(check, recorder.bind(value, native)), executable, False)
        elif fast and executable.lock is None and (found := recorder.launch_function(value, native)):
            self.target = (None, executable, found)
        else:
            self.target = (recorder.bind(value, native), executable, True)
        if self._in_c is not None:
            self._connect_c()

    def _connect_c(self) -> None:
        """Have the callable in C launch without Python, if there is one and the recorder lets it."""
        launcher = None if self._in_c is None else self._in_c()
        if launcher is None:
            return
        target = None
        while target is not self.target:  # another thread may replace it meanwhile
            target = self.target
            _, executable, in_c = target
            launcher.target = _launch_in_c(executable, self._stream, in_c) if in_c and executable else None

    def refuse(self, why: str) -> None:
        """Raise `GraphStateError` at every launch from now on, and let go of the executable."""

        def refuse() -> NoReturn:
            raise GraphStateError(why)

        self.target = (refuse, None, False)
        if self._in_c is not None:
            self._connect_c()

    def launcher(self) -> Callable[[], None]:
        """Return the callable. It holds the binding, and the binding does not hold it."""
        if fast is None:
            return self._launch
        launcher: Launcher = fast.Launcher(capture_table.live, self._launch)
        self._in_c = ref(launcher)
        self._connect_c()
        return launcher

    def _launch(self) -> None:
        call, executable, _ = self.target
        if capture_table.live or self._asks:
            refuse_capturing(self._stream)
        lock = None if executable is None else executable.lock
        if executable is None or lock is None:
            try:
                if call is not None:
                    call()  # which refuses if there is no executable
                elif executable is not None:
                    executable.recorder.replay(executable.value, self._stream._native)
            finally:
                # held by a traceback, it would look like a launch in progress: see launch_lock
                del executable
            return
        assert call is not None
        with lock:
            if executable.changes is not None:
                executable.refuse_changing()
            call()
            executable.last = self._stream._owner  # the next run may have to wait for this one
        if FrameworkRecorder in type(executable.recorder).__mro__:  # only later it may let C launch
            self._connect_c()


def _checked(check: Callable[[], None], call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a callable that makes a check, then the launch."""

    def launch() -> None:
        check()
        call()

    return launch


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


def _launch_in_c(executable: Executable, stream: Stream, known: LaunchFunction | bool) -> Launch | None:
    """Return what launches an executable on a stream without Python; None if only its recorder can."""
    if fast is None:
        return None
    recorder, backend = executable.recorder, stream._backend
    found = recorder.launch_function(executable.value, stream._native) if isinstance(known, bool) else known
    if found is None:
        return None
    guard = found.guard
    latest = guard.address if isinstance(guard, SameStream) else 0
    current, context = (guard.address, guard.context) if isinstance(guard, SameContext) else (0, 0)
    handles = recorder.handle_int(executable.value), backend.handle_int(stream._native)
    conditions = latest, current, context, found.capturing
    launch: Launch = fast.Launch(
        found.address, *handles, executable, found.failed, executable.lock, *conditions
    )
    return launch
