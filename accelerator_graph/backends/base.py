"""The contract of a backend: all that a plug-in implements, and all that it can rely on.

A backend is one class in a package of its own, named by an entry point::

    [project.entry-points."accelerator_graph.backends"]
    myrt = "myrt_graph:MyBackend"

The library makes one instance in a process, calls `open` once, and then, for each graph::

    create_stream                              capabilities, device_of: at any time after `open`
    relaxed, synchronize                       unless the user turned the preparation off
    capture_status, capture_begin              on the capturing thread
      fill, copy, launch, record_event, ...    whatever is enqueued, from any thread
    capture_end                                on the capturing thread; after an error, capture_abandon
    is_empty or node_count, instantiate
    destroy_graph                              as soon as nobody needs the graph: perhaps right now
    bind, launch_function, upload              once for each stream that the graph is bound to
    replay, or what `bind` returned            any number of times, from any thread
    destroy_executable, destroy_stream

The library checks the order of these calls, so a backend does not. Streams, events, tokens, graphs and
executables are objects of the backend's own choice: the library keeps them, hands them back, and passes each
to its ``destroy_`` method, never in the middle of another call of the same thread. A backend translates its
vendor's codes into `accelerator_graph.errors` and nothing else. Unless a method says otherwise, calls may
come from any thread, even from one that has never touched the device, and several threads may call at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Set
from contextlib import AbstractContextManager, nullcontext, suppress
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from ..errors import AcceleratorGraphError, UnsupportedError

BACKEND_API_VERSIONS = (1,)
"""The versions of this contract that the library supports, in ascending order.

A method that becomes abstract or changes its meaning makes a new version; a new optional method does not.
While the library still supports the version before, one release of a plug-in works with both."""


class Capability(StrEnum):
    """What a backend may be able to do beyond the abstract methods. Asked for, never guessed."""

    EVENTS = "events"
    """`record_event`, `wait_event` and `query`: streams can be forked and joined."""
    ENQUEUE = "enqueue"
    """`fill`, `copy` and `launch`: work can be enqueued through the library."""
    HANDLES = "handles"
    """`handle_int`: streams, graphs and executables have handles that other libraries understand."""
    NODES = "nodes"
    """`nodes` lists the nodes of a graph and their dependencies."""
    CHILD_GRAPHS = "child_graphs"
    """`replay` onto a capturing stream becomes part of that capture."""
    UPLOAD = "upload"
    """`upload` moves an executable to the device ahead of its first replay."""


class CaptureStatus(StrEnum):
    """Whether a stream is capturing."""

    NONE = "none"
    ACTIVE = "active"
    INVALIDATED = "invalidated"


class Availability(NamedTuple):
    """What `Backend.probe` found out without initialising anything."""

    usable: bool
    reason: str = ""
    """Why it is not usable, with the way out: a clause that follows "backend 'x' is not available: "."""
    versions: Mapping[str, str] = MappingProxyType({})
    """Versions by component, for example ``{"driver": "13.0"}``."""
    devices: int | None = None
    """How many devices there are; None if only initialising could tell."""
    warning: str = ""
    """A known defect of the installed versions, with the way out, in sentences. The backend is usable."""


class GraphNode(NamedTuple):
    """One node of a graph."""

    id: int
    """Its place in the list of nodes, from 0."""
    kind: str
    """What it does, in lower case: ``"kernel"``, ``"memset"``, ``"memcpy"``, ``"host"``, ``"empty"``, ..."""
    name: str = ""
    """The kernel's or function's name, where it is known."""


class GraphEdge(NamedTuple):
    """One dependency: the node `target` runs after the node `source`."""

    source: int
    target: int


class CaptureInfo(NamedTuple):
    """What a backend knows about a capture in progress."""

    id: int
    """A number that the streams of one capture have in common, and no other capture in progress has."""


class SameStream(NamedTuple):
    """A condition of a `LaunchFunction`: the executable ran last on the stream that it is to run on now."""

    address: int
    """Address of a ``void *`` in which the backend notes the stream of the latest run. It lives as long as
    the executable."""


class SameContext(NamedTuple):
    """A condition of a `LaunchFunction`: the calling thread's current context is the right one."""

    address: int
    """Address of an ``int current(void **context)``."""
    context: int
    """The context that it has to answer."""


class LaunchFunction(NamedTuple):
    """A function ``int launch(void *executable, void *stream)`` of the vendor's library."""

    address: int
    """Called with the handles of both, as `handle_int` returns them, by any thread and without the GIL."""
    failed: Callable[[int], object]
    """Raises the error for a code that is not 0. Called by the same thread right afterwards."""
    guard: SameStream | SameContext | None = None
    """While this is not met, the library calls `replay`, or what `bind` returned, instead. `SameStream` needs
    a backend whose `serialises_replays` is False."""
    capturing: int = 0
    """Address of an ``int capturing(void *stream, int *status)``; 0 if there is none. The library calls it
    before every launch. Unless it returns 0 and the status is 0, the library calls `replay`, or what `bind`
    returned, instead. Needed with `Backend.replay_ignores_captures`."""


class Recorder(ABC):
    """Records captures, replays the executables made of them, and destroys both.

    Every backend is one. A framework that has to record captures in its own way implements one as well:
    see `accelerator_graph.interop.base.Framework.recorder`.
    """

    __slots__ = ("__weakref__", "name")

    name: str
    """The name of the backend. The registry sets it before `open`."""

    serialises_replays: ClassVar[bool] = False
    """Several threads may call `replay`, and what `bind` returned, for one executable at once. If False,
    the library lets one through at a time."""

    destroy_disturbs_captures: bool = False
    """The ``destroy_`` methods invalidate captures in progress. The library then waits for the end of those
    that it knows of. Read when an object is due to be destroyed; an instance may have its own."""

    # ---- capture -------------------------------------------------------------------------------

    @abstractmethod
    def capture_begin(self, stream: Any, mode: str) -> Any:
        """Begin a capture on an idle stream. Work that is on the stream already runs; it is not recorded.

        Parameters
        ----------
        stream : stream
            Not capturing, as `capture_status` said just before.
        mode : str
            One of `Backend.capture_modes`.

        Returns
        -------
        object
            A token: what `capture_end` and `capture_abandon` need.

        Raises
        ------
        CaptureError
            With reason ``"default_stream"``, if the stream is one that can never capture.
        BaseException
            Whatever is raised (even KeyboardInterrupt), no capture of this call's making is left.
        """

    @abstractmethod
    def capture_end(self, token: Any) -> Any:
        """End the capture and return the graph, which the caller owns (`destroy_graph`).

        Called by the thread that began it. All streams that took part are ordinary ones again. If it
        raises, there is no graph and no capture left, and nothing that would have to be destroyed; after a
        KeyboardInterrupt, `capture_abandon` is called as well.

        Raises
        ------
        DriverError
            An invalidated capture never becomes a graph; the reason is that of the call that broke it, or
            ``"invalidated"``. With reason ``"unjoined"``: work on a forked stream was not waited for.
        """

    def capture_abandon(self, token: Any) -> None:
        """End the capture and discard the recording. Does not raise.

        All streams that took part are ordinary ones again. Does nothing for a capture that has ended
        already, as a graph or not: the default relies on `capture_end`, which has to raise then. May be
        called by another thread once the thread that began it has ended.
        """
        with suppress(AcceleratorGraphError):
            self.destroy_graph(self.capture_end(token))

    # ---- graphs and executables ----------------------------------------------------------------

    @abstractmethod
    def instantiate(self, graph: Any) -> Any:
        """Make an executable of the graph, owned by the caller (`destroy_executable`).

        Disturbs no capture in progress. Called again for a graph that the user keeps: before its first
        executable is destroyed, or after, if `single_executable` says so.
        """

    def single_executable(self, graph: Any) -> bool:
        """Return True if only one executable of this graph can live at a time. Asked before a second one.

        The library then destroys the first one before it calls `instantiate` again.
        """
        return False

    @abstractmethod
    def replay(self, executable: Any, stream: Any) -> None:
        """Enqueue one run of the executable on the stream, behind all that is on it, and return.

        Runs of one executable take effect one after another in call order, whichever streams they are on;
        asking for the next run while one is going on is never an error. Several threads ask at once only if
        `serialises_replays` is True: no run is lost then, on one stream or on several. The streams that
        were captured, and the graph, may have been destroyed before.

        On a capturing stream the run is recorded if the backend has the capability ``"child_graphs"``; what
        is recorded outlives the executable. Otherwise the library refuses to replay there.

        Unless `serialises_replays` is True, the library keeps the stream of an executable's latest run alive
        until the next run.
        """

    def bind(self, executable: Any, stream: Any) -> Callable[[], None]:
        """Return a callable without arguments that does what `replay` does, as fast as it can be.

        Decide here what can be decided before the call. The library keeps executable and stream alive as
        long as it uses the callable.
        """
        return partial(self.replay, executable, stream)

    def launch_function(self, executable: Any, stream: Any) -> LaunchFunction | None:
        """Return a function in C that does what `replay` does; None if there is none for these two.

        The library may call it in place of what `bind` returned, and keeps executable and stream alive
        meanwhile. As long as the answer is None, the library asks again after each replay. A subclass that
        overrides `replay` or `bind` has to override this as well.
        """
        return None

    def upload(self, executable: Any, stream: Any) -> None:
        """Move the executable to the device, in stream order, without running it."""
        raise unsupported(self, Capability.UPLOAD)

    @abstractmethod
    def destroy_graph(self, graph: Any) -> None:
        """Release a graph. Its executables may still be in use: see `destroy_stream` for the rest."""

    @abstractmethod
    def destroy_executable(self, executable: Any) -> None:
        """Release an executable. Runs of it that are still going on complete. See also `destroy_stream`."""

    # ---- looking into a graph ------------------------------------------------------------------

    def is_empty(self, graph: Any) -> bool:
        """Return True if a graph has no nodes, in a time that does not grow with their number.

        False if that can't be known: True makes the library warn that nothing was captured.
        """
        return self.node_count(graph) == 0

    def node_count(self, graph: Any) -> int | None:
        """Return the number of nodes; None if it is not known."""
        return None

    def nodes(self, graph: Any) -> tuple[list[GraphNode], list[GraphEdge]]:
        """List the nodes and the dependencies of a graph."""
        raise unsupported(self, Capability.NODES)

    def dump(self, graph: Any, path: str, verbose: bool) -> None:
        """Write the graph to `path` in the DOT language: its nodes, and an arrow for each dependency.

        By default drawn from `nodes`.
        """
        nodes, edges = self.nodes(graph)
        with open(path, "w", encoding="utf-8") as file:
            file.write(to_dot(nodes, edges))

    def handle_int(self, obj: Any) -> int:
        """Return the vendor's handle of a stream, a graph or an executable."""
        raise unsupported(self, Capability.HANDLES)


class Backend(Recorder):
    """Base class of all backends.

    Every method that reaches the driver raises `DriverError` (or `OutOfMemoryError`) when the driver
    fails, with the neutral reason where it is known, and `UnsupportedError` when the installed driver is
    too old. The vendor's own exceptions never come out of a backend, except as the cause of these.
    """

    __slots__ = ()

    api_version: ClassVar[int]
    """The version of this contract that the class was written for: a literal in every backend."""

    priority: ClassVar[int | None] = 0
    """Automatic choice among third parties takes the highest, then the first name. None: automatic choice
    never takes this backend; the user has to name it, or to pass a stream of the runtime's own."""

    recording: ClassVar[Literal["stream", "explicit"]] = "stream"
    """``"stream"``: the driver captures whatever anyone enqueues on the stream. ``"explicit"``: only
    work enqueued through `accelerator_graph.Stream` is recorded; frameworks are not asked to take part."""

    capture_modes: ClassVar[tuple[str, ...]] = ("default",)
    """The capture modes; the first one is what ``"default"`` stands for."""

    stream_modules: ClassVar[frozenset[str]] = frozenset()
    """Top-level packages that define the runtime's own stream objects: `as_stream` is asked about those.
    Handles need none: an int means the backend that is named or chosen."""

    cuda_like: ClassVar[bool] = False
    """Stream handles are given out as ``__cuda_stream__``, handles of graphs as ``raw_cuda_graph()``."""

    replay_ignores_captures: ClassVar[bool] = False
    """`replay` onto a capturing stream runs at once: it is neither recorded nor refused. The library then
    asks for the stream's status before every replay, since the capture may be somebody else's."""

    survives_fork: ClassVar[bool] = False
    """A forked child can open a backend that its parent has opened. No GPU driver can do that."""

    # ---- being there ---------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def probe(cls) -> Availability:
        """Return whether the backend could run here. Initialises nothing and never raises.

        A process that has only probed can still be forked, and the child can open the backend and use it.
        If only initialising the driver could tell, the answer is that it is usable, and `open` raises.
        """

    def open(self) -> None:
        """Initialise the runtime. Called once, before any other method but `probe`.

        Raises
        ------
        BackendUnavailableError
            It can't run here after all. Automatic choice takes the next backend and keeps the reason.
        """

    def capabilities(self, device: int) -> Set[str]:
        """Return which of `Capability` the backend has on that device."""
        return frozenset()

    @abstractmethod
    def device_count(self) -> int:
        """Return how many devices there are; their ordinals count from 0."""

    # ---- streams -------------------------------------------------------------------------------

    @abstractmethod
    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        """Make a stream that runs beside all others, the default stream included.

        Parameters
        ----------
        device : int
            Ordinal of the device that work on the stream runs on.
        like : stream, optional
            A stream whose context the new one has to share. It is on `device`.
        priority : int
            Lower numbers first; a backend clamps it to what it has.

        Returns
        -------
        object
            The stream, owned by the caller, who passes it to `destroy_stream` once.
        """

    @abstractmethod
    def destroy_stream(self, stream: Any) -> None:
        """Release a stream that `create_stream` made. Work enqueued on it still completes.

        Like the other methods that destroy, it is called again if a call was interrupted, or ran out of
        memory or stack. What is gone by then must not be destroyed a second time.
        """

    @abstractmethod
    def device_of(self, stream: Any) -> int:
        """Return the ordinal of a stream's device."""

    def context_id(self, stream: Any) -> int | None:
        """Return a number for the stream's context that no other context ever gets; None without contexts.

        The library keeps a side stream for each thread and device, and makes a new one if this changes.
        """
        return None

    @abstractmethod
    def synchronize(self, stream: Any) -> None:
        """Wait until all work on the stream is done, replays included. Other Python threads run meanwhile.

        A capturing stream can't be waited for: that is a `DriverError` with reason ``"illegal_call"``, or
        ``"invalidated"`` if the capture was broken before. Whether it breaks the capture is the backend's to
        decide: `capture_status` is ``"invalidated"`` then. A backend that records explicitly may raise
        `CaptureError` instead, or return at once, since nothing runs.
        """

    def current_stream(self, device: int | None = None) -> Any | None:
        """Return the runtime's own idea of this thread's current stream; None if it has none."""
        return None

    def as_stream(self, obj: object) -> Any | None:
        """Return the stream that `obj` stands for: the runtime's own object, or a handle as `int`.

        Imports nothing to find out. The object stays its owner's. None if it is not a stream;
        ValueError if it is one that can't be used, for example because it was destroyed.
        """
        return None

    # ---- capability: events --------------------------------------------------------------------

    def record_event(self, stream: Any) -> Any:
        """Mark the present end of the stream's work, replays included.

        The caller owns the event (`destroy_event`). It may outlive the stream. It is never moved: what is
        recorded later is another event, even if this one has been destroyed while a stream waits for it.
        """
        raise unsupported(self, Capability.EVENTS)

    def wait_event(self, stream: Any, event: Any) -> None:
        """Let later work on `stream` wait for the event, replays included. Any number of streams may wait.

        An event of a capture in progress takes an idle stream into that capture, behind what the event
        marks. The streams of a capture can wait for events of the same capture and for no others, since a
        replay could not keep the order.

        Raises
        ------
        DriverError
            The stream is capturing and the event was recorded outside its capture, or the event belongs to
            another capture or to one that has ended. The reason is ``"foreign_capture"``, or ``"other"``
            where the driver can't tell an event of an ended capture from one that is not valid. Whether a
            capture in progress is broken is the backend's to decide: `capture_status` is ``"invalidated"``
            then.
        """
        raise unsupported(self, Capability.EVENTS)

    def destroy_event(self, event: Any) -> None:
        """Release an event. Streams that wait for it still wait for the work that it marks."""

    def query(self, stream: Any) -> bool:
        """Return True if all work on the stream is done. Raises as `synchronize`."""
        raise unsupported(self, Capability.EVENTS)

    # ---- capability: enqueue -------------------------------------------------------------------

    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        """Set `nbytes` bytes at `dst` to `value` (0 to 255); all of `dst` if `nbytes` is None.

        Like `copy` and `launch`: runs on an idle stream, is recorded on a capturing one, whichever thread
        calls it. The caller keeps the memory alive. `value` and the sign and type of `nbytes` have been
        checked.

        Raises
        ------
        TypeError, ValueError
            The memory can't be used, or has fewer bytes, or can't be written. At this call, so that a
            capture goes on unhurt, not when the work runs.
        """
        raise unsupported(self, Capability.ENQUEUE)

    def copy(self, stream: Any, dst: Any, src: Any, nbytes: int | None) -> None:
        """Copy `nbytes` bytes from `src` to `dst`; by default all of `src`, which `dst` has to hold.

        Raises as `fill`.
        """
        raise unsupported(self, Capability.ENQUEUE)

    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        """Enqueue `work`, which is what the backend says: a callable, a kernel, ... Raises as `fill`."""
        raise unsupported(self, Capability.ENQUEUE)

    # ---- captures, whoever began them ---------------------------------------------------------------------

    @abstractmethod
    def capture_status(self, stream: Any) -> CaptureStatus:
        """Return whether the stream takes part in a capture, no matter who began it. Disturbs nothing.

        The same answer on every thread, and for every stream that takes part: ``"active"`` until the capture
        ends or is broken, and ``"invalidated"`` from the moment it is broken until it is ended.
        """

    def capture_info(self, stream: Any) -> CaptureInfo | None:
        """Return facts about the capture that the stream takes part in. Disturbs nothing.

        None if there is no capture, or the runtime can't tell.
        """
        return None

    def relaxed(self, stream: Any) -> AbstractContextManager[None]:
        """Return a context in which this thread disturbs no capture on the stream's device.

        In it the library waits for streams that are not being captured, and frameworks allocate memory. The
        default does nothing, for runtimes in which neither disturbs a capture.
        """
        return nullcontext()


class Lends(Backend):
    """Base class of a backend whose captures a framework can record itself, as torch does on CUDA."""

    __slots__ = ()

    @abstractmethod
    def borrow_graph(self, handle: int, stream: Any) -> Any:
        """Return the graph that a handle stands for, recorded on this stream. It stays its owner's."""

    @abstractmethod
    def borrow_executable(self, handle: int, stream: Any) -> Any:
        """Return the executable that a handle stands for. It stays its owner's."""


def unsupported(backend: Recorder, capability: str) -> UnsupportedError:
    """Make the error that says a backend does not have a capability."""
    return UnsupportedError(
        f"backend {backend.name!r} does not have the capability {str(capability)!r}; use a backend whose "
        "capabilities() have it.",
        capability=str(capability),
    )


def to_dot(nodes: list[GraphNode], edges: list[GraphEdge]) -> str:
    """Draw a graph in the DOT language."""
    lines = ["digraph accelerator_graph {", '  node [shape="box"];']
    for node in nodes:
        label = "\\n".join(map(_escaped, filter(None, (node.kind, node.name))))
        lines.append(f'  n{node.id} [label="{label}"];')
    lines.extend(f"  n{edge.source} -> n{edge.target};" for edge in edges)
    return "\n".join([*lines, "}", ""])


def _escaped(text: str) -> str:
    """Return a text for a label of DOT, where backslashes and quotes have a meaning."""
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    return shown.replace("\\", "\\\\").replace('"', '\\"')
