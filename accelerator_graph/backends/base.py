"""The contract of a backend: all that a plug-in implements, and all that it can rely on.

A backend is one class in a package of its own, named by an entry point. Two more are optional, for
``accelerator-graph conformance myrt`` and ``python -m accelerator_graph demo myrt``::

    [project.entry-points."accelerator_graph.backends"]
    myrt = "myrt_graph:MyBackend"
    [project.entry-points."accelerator_graph.conformance"]
    myrt = "myrt_graph.testing:MyWork"  # a subclass of accelerator_graph.testing.Work
    [project.entry-points."accelerator_graph.demo"]
    myrt = "myrt_graph.demo:MyPlate"  # the guide Write a backend lists its members

The class sets `api_version` and implements the 12 abstract methods below. That is a whole backend. What a
runtime can do beyond it is a capability. A backend has one if it inherits the class in this table, which has
the methods; `Backend.capabilities` can only take some away, for a device.

=====================  ================  ===================================================================
capability             class             what the runtime can do
=====================  ================  ===================================================================
``"events"``           `Events`          streams wait for each other: forks and joins
``"external_events"``  `ExternalEvents`  events cross the border of a capture
``"timing"``           `TimesEvents`     the host waits for events, and times what is between them
``"enqueue"``          `Enqueues`        fills, copies and launches through the library
``"progress"``         `MarksProgress`   graphs write memory that the host reads meanwhile
``"handles"``          `HasHandles`      streams and graphs have handles that other libraries understand
``"nodes"``            `ReadsGraphs`     the nodes of a graph are counted and listed
``"child_graphs"``     `RecordsReplays`  a replay onto a capturing stream becomes a part of that capture
``"set_node"``         `ChangesGraphs`   single nodes of an executable are changed
``"update"``           `UpdatesGraphs`   an executable gets the work of another graph
``"graph_events"``     `TimesGraphs`     parts of a graph are timed, by events inside a copy of it
``"node_times"``       `ProfilesGraphs`  the vendor's profiler times single nodes
``"conditions"``       `Conditions`      the device tests the flags of loops and branches
=====================  ================  ===================================================================

These classes are in `mixins`, with `NativeCalls`, for calls that C makes faster, and `Lends`, for runtimes
whose captures a framework can record itself. They and the types of results can be imported from here.

The library makes one instance in a process (another one in a forked child, or after an `open` that failed),
calls `open` once, and then, for each graph::

    create_stream, device_of, capabilities     at any time after `open`
    relaxed, synchronize                       unless the user turned the preparation off
    capture_status, capture_begin              on the capturing thread; `capture_info` as well
      fill, copy, launch, record_event, ...    the captured work, from any thread
    capture_end                                on the capturing thread; `capture_abandon` instead if the
                                               captured code raised, or after an interrupt
    instantiate
    destroy_graph                              as soon as nobody needs the graph: perhaps right now
    native_calls                               for each stream that the graph is bound to
    replay, or what `native_calls` offers      any number of times, from any thread
    destroy_executable, destroy_stream

**Objects.** The library checks the order of these calls, so a backend need not. Streams, events, tokens,
graphs and executables are objects of the backend's own choice, compared by ``==``: the library keeps them,
hands them back, and passes each to its ``destroy_`` method, never while the same thread is inside another
call of the backend. It passes one again if that call was interrupted, or ran out of memory or stack: do not
destroy again what is already gone. The library ignores a `DriverError` from these methods, and calls none of
them in a forked child for objects of the parent, nor at the interpreter's exit.

**Threads.** Unless a method says otherwise, calls may come from any thread, even from one that has never
touched the device, and several threads may call at once. Only `synchronize` and
`ProfilesGraphs.time_nodes` wait for work, and other threads' calls go on meanwhile.

**Signals.** A signal handler may call any method in the middle of any other, on the same thread and about the
same objects: a `replay` in the middle of a `replay` of the same executable. So locks have to be re-entrant,
and a method publishes what it does in one step, with all that belongs to it: an inner call finds nothing of
the outer one, or all of it. The runs of two such replays are whole, one before the other. If a handler
raises KeyboardInterrupt, the library never learns what the call has just made: release it where you can.

**Failures.** A method that reaches the driver raises `DriverError` (or `OutOfMemoryError`) when the driver
fails, with a `reason` from `accelerator_graph.errors`, and `UnsupportedError` when the installed driver is
too old. Too little memory, wherever it is, has the reason ``"out_of_memory"``; handles, queues or threads
that have run out have ``"other"``, since freeing memory does not help. The vendor's own exceptions never
come out of a backend, except as the cause of these. What a backend itself refuses is a `driver_error` with
``code=None``, the method as `call`, and a `code_name` of its own. A call that raises has made, recorded and
enqueued nothing. Afterwards streams, graphs and executables go on working, unless the reason is
``"device_lost"``: then all calls fail from then on.

**Failures of work.** If work fails when it runs, the next `synchronize` or `query` of its stream, or of one
that has waited for it, raises that, where the runtime reports it. Once it was raised, no call raises it
again. The stream of a run is the one given to `replay`, even if the runtime has run parts on queues of its
own. What becomes of the rest of that run is up to the runtime; work that was enqueued later runs.

**Memory.** The user or a framework owns what the work reads and writes, and keeps it. What the backend itself
makes for a run (a command list, arguments, an event) has to live until the run is over, even if executable
and stream are destroyed before. A runtime without callbacks can release it in a later call of the backend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .._interpreter import imported_on_use
from ..errors import AcceleratorGraphError, UnsupportedError
from . import _contract as contract
from ._contract import Availability as Availability
from ._contract import Capability as Capability
from ._contract import CaptureInfo as CaptureInfo
from ._contract import CaptureStatus as CaptureStatus
from ._contract import LaunchFunction as LaunchFunction
from ._contract import NativeCalls as NativeCalls
from ._contract import SameContext as SameContext
from ._contract import SameStream as SameStream
from ._contract import SetFunction as SetFunction
from ._contract import StatusFunction as StatusFunction

CaptureMode = Literal["default", "global", "thread_local", "relaxed"]
"""What the driver refuses while a capture is in progress: illegal calls of all threads, of the capturing
thread, or none, as CUDA's modes do. ``"default"`` is the backend's first one."""


class Recorder(ABC):
    """Records captures, replays the executables made of them, and destroys both.

    Every backend is one. A framework that has to record captures in its own way implements one as well:
    see `accelerator_graph.interop.base.FrameworkRecorder`.
    """

    __slots__ = ("__weakref__", "name")

    name: str
    """The name of the backend. The registry sets it before `open`."""

    @abstractmethod
    def capture_begin(self, stream: Any, mode: CaptureMode) -> Any:
        """Begin a capture on a stream that is not capturing; return a token for `capture_end`.

        Work enqueued before still runs, and is not recorded. `mode` is one of `Backend.capture_modes`.

        Raises `CaptureError` with reason ``"default_stream"`` if the stream is one that can never capture.
        Whatever is raised, even KeyboardInterrupt, this call leaves no capture behind.
        """

    @abstractmethod
    def capture_end(self, token: Any) -> Any:
        """End the capture and return the graph, which the caller owns (`destroy_graph`).

        Called by the thread that began the capture, except by the default `capture_abandon`. Afterwards no
        stream that took part is capturing any more. If it raises, there is no graph and no capture left, and
        nothing to destroy; after a KeyboardInterrupt, the library calls `capture_abandon` as well.

        Raises `DriverError` if a call broke the capture, with the reason of that call or ``"invalidated"``;
        and, with reason ``"unjoined"``, if the captured stream has not waited for all work of a forked one.
        A runtime whose graphs would wait for that work raises, too, so that the same program works on every
        backend. Whether a fork without work has to be waited for is up to the backend.
        """

    @abstractmethod
    def instantiate(self, graph: Any) -> Any:
        """Make an executable of the graph, owned by the caller (`destroy_executable`).

        Disturbs no capture in progress. May be called again for a graph that the user keeps; the earlier
        executable still exists then, unless `Backend.single_executable` is True.
        """

    @abstractmethod
    def replay(self, executable: Any, stream: Any) -> None:
        """Enqueue one run of the executable behind everything on the stream, and return without waiting.

        The stream is one of the device that was captured. A run is one piece of its work: what other threads
        enqueue comes before or after all of it. Runs of one executable take effect one after another in call
        order, whichever streams they are on; requesting another run while one is in progress is never an
        error. The streams that were captured, and the graph, may have been destroyed before. Several threads
        call at once only if `serialises_replays` is True, which says more. After a KeyboardInterrupt the run
        was enqueued or not, and later runs work.

        The library requests no run on a stream that it is capturing itself, unless the backend
        `RecordsReplays` without `Backend.records_graphs`. If another library began the capture, this call has
        to raise `CaptureError` or `DriverError`, or the class has to set `Backend.replay_ignores_captures`.
        """

    @abstractmethod
    def destroy_graph(self, graph: Any) -> None:
        """Release a graph. Its executables may still be in use."""

    @abstractmethod
    def destroy_executable(self, executable: Any) -> None:
        """Release an executable. Never waits: runs in progress complete."""

    # ---- optional ------------------------------------------------------------------------------

    def capture_abandon(self, token: Any) -> None:
        """End the capture and discard the recording. Does not raise.

        Afterwards no stream that took part is capturing any more. Does nothing if the capture has already
        ended: the default needs a `capture_end` that raises an `AcceleratorGraphError` then. May be called by
        another thread once the thread that began the capture has ended.
        """
        with suppress(AcceleratorGraphError):
            self.destroy_graph(self.capture_end(token))

    serialises_replays: ClassVar[bool] = False
    """True: several threads may ask for runs of one executable at once, on one stream or on several. No run
    is lost, and a stream may be destroyed while a run is in progress on it. False: the library lets one call
    through at a time, and keeps the stream of an executable's latest run alive until the next run."""

    destroy_disturbs_captures: bool = False
    """True: the ``destroy_`` methods invalidate captures in progress, so the library waits for the end of
    those that it knows of. May be set on an instance; read each time an object is about to be destroyed."""


class Backend(Recorder):
    """Base class of all backends.

    A call about other streams, graphs and executables leaves captures in progress as they are. Exceptions are
    waits that a capture mode forbids, and `destroy_disturbs_captures`.
    """

    __slots__ = ()

    api_version: ClassVar[int]
    """The version of this contract that the class was written for: a literal in every backend."""

    priority: ClassVar[int | None] = 0
    """Automatic choice among third parties takes the highest; ties go to the alphabetically first name. With
    None it never takes this backend: the user has to name it, or to pass a stream of the runtime's own."""

    recording: ClassVar[Literal["stream", "explicit"]]
    """``"stream"``: the driver captures whatever anyone enqueues on the stream. ``"explicit"``: only work
    enqueued through `accelerator_graph.Stream` is recorded; frameworks are not asked to take part. The module
    `recording` has what such a backend needs, and says so. Every other class says which of the two it is."""

    device_count: int = 1
    """How many devices there are; their ordinals count from 0. `open` sets it if there are more."""

    @classmethod
    @abstractmethod
    def probe(cls) -> Availability:
        """Return whether the backend could run here. Initialises nothing and never raises.

        A process that has only probed can still be forked, and the child can open the backend and use it.
        If that takes initialising the driver, say that it is usable, and let `open` raise.
        """

    @abstractmethod
    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        """Make a stream, owned by the caller (`destroy_stream`).

        It runs independently of all others, the default stream included. It shares the context of `like`, if
        given: a stream of the same device. A lower number means a higher priority; clamp it to the supported
        range.
        """

    @abstractmethod
    def destroy_stream(self, stream: Any) -> None:
        """Release a stream that `create_stream` made. Work enqueued on it still completes."""

    @abstractmethod
    def device_of(self, stream: Any) -> int:
        """Return the ordinal of a stream's device."""

    @abstractmethod
    def synchronize(self, stream: Any) -> None:
        """Wait until all work on the stream is done, replays included. Releases the GIL while it waits.

        A capturing stream can't be waited for: that is a `DriverError` with reason ``"illegal_call"``, or
        ``"invalidated"`` if the capture was broken before. A backend that records explicitly may raise
        `CaptureError` instead, or return at once, since nothing runs.
        """

    @abstractmethod
    def capture_status(self, stream: Any) -> CaptureStatus:
        """Return whether the stream takes part in a capture, no matter who began it. Disturbs nothing.

        The same answer on every thread. The stream that began the capture is ``"active"`` until the capture
        ends or is broken, and ``"invalidated"`` from then on until it is ended. The other streams that take
        part are never ``"none"`` meanwhile.
        """

    # ---- optional: a backend without all of this is complete ---------------------------------------------

    def open(self) -> None:
        """Initialise the runtime. Called once, before any other method but `probe`.

        Raises `BackendUnavailableError` if it can't run here after all. The message is the reason alone, as
        in `Availability`. Automatic choice takes the next backend and keeps the reason.
        """

    def capabilities(self, device: int) -> Set[str]:
        """Return the capabilities on a device: those that the class inherits, or some of them.

        Where one is taken away, its methods raise `unsupported`.
        """
        return self.inherited

    stream_modules: ClassVar[frozenset[str]] = frozenset()
    """Top-level packages of the runtime's own stream objects, about which the library asks `as_stream`. Empty
    if users have handles only: an int means the backend that is named or chosen."""

    def as_stream(self, obj: object) -> Any | None:
        """Return the stream that `obj` stands for: the runtime's own object, or a handle as `int`.

        Imports nothing to find out. A handle stands for the same stream each time, and for the one that
        `create_stream` returned: the handle and the capture status are the same. Its owner keeps it alive and
        destroys it; a destroyed one need not be recognised. None if it is not a stream, or an int without the
        capability ``"handles"``; ValueError if it is a stream that can't be used.
        """
        return None

    def context_id(self, stream: Any) -> int | None:
        """Return a number for the stream's context; None without contexts.

        The library keeps a side stream for each thread and device, and makes a new one if this changes. The
        address of the context will do, unless a context can end while somebody still has streams of it: then
        no other context may ever get the number.
        """
        return None

    def capture_info(self, stream: Any) -> CaptureInfo | None:
        """Return facts about the capture that the stream takes part in; None without one. Disturbs nothing.

        The capabilities ``"events"`` and ``"nodes"`` need it. None also if the capture is broken. Asked ahead
        of the end of each capture, where an error means that there will be no graph.
        """
        return None

    def single_executable(self, graph: Any) -> bool:
        """Return True if only one executable of this graph can live at a time. Asked before a second one.

        The library then destroys the first one before it calls `instantiate` again, and does not record the
        graph in another one.
        """
        return False

    def native_calls(self, stream: Any) -> contract.NativeCalls | None:
        """Return calls about a stream that are faster than the methods of this class; None if there are none.

        The library keeps the stream alive as long as it uses them.
        """
        return None

    def relaxed(self, stream: Any) -> AbstractContextManager[None]:
        """Return a context manager: inside it, this thread disturbs no capture on the stream's device.

        There the library waits for streams that are not being captured, and frameworks allocate memory. It
        can be nested, and lets exceptions pass. A graph may stand for a stream of its device, if the backend
        `Lends`. The default does nothing, for runtimes in which neither disturbs a capture.
        """
        return nullcontext()

    capture_modes: ClassVar[tuple[CaptureMode, ...]] = ("default",)
    """The capture modes; ``"default"`` means the first. ``("default",)`` if there is one way only; otherwise
    names from ``"global"``, ``"thread_local"`` and ``"relaxed"``, which mean what `CaptureMode` says."""

    cuda_like: ClassVar[bool] = False
    """Stream handles are exposed as ``__cuda_stream__``, graph handles as ``raw_cuda_graph()``. The handle 0
    is a stream then, the default one, which can't capture."""

    replay_ignores_captures: ClassVar[bool] = False
    """The runtime neither records nor refuses a `replay` onto a capturing stream: it runs at once. The
    library then asks for the stream's status before every replay: another library may be capturing it."""

    records_graphs: ClassVar[bool] = False
    """`replay` can't be recorded, but `RecordsReplays.record_graph` records a run of a kept graph."""

    survives_fork: ClassVar[bool] = False
    """A forked child can open a backend that its parent has opened. No GPU driver can do that."""

    inherited: ClassVar[frozenset[Capability]] = frozenset()
    """The capabilities of the classes that this one inherits. Python fills it in."""

    def __init_subclass__(cls, *, capability: Capability | None = None, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        own = () if capability is None else (capability,)
        cls.inherited = frozenset(own).union(*(getattr(base, "inherited", ()) for base in cls.__bases__))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say which capability is missing, for a method of a class that this one does not inherit."""
            from .mixins import CAPABILITY_OF

            if name in CAPABILITY_OF:
                raise unsupported(self, CAPABILITY_OF[name])
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            )


def unsupported(backend: Recorder, capability: str) -> UnsupportedError:
    """Make the error that says a backend does not have a capability."""
    return UnsupportedError(
        f"backend {backend.name!r} does not have the capability {str(capability)!r}; use a backend whose "
        "capabilities() have it.",
        capability=str(capability),
    )


BACKEND_API_VERSIONS = (1,)
"""The versions of this contract that the library supports, in ascending order.

A method that becomes abstract or changes its meaning makes a new version; a new optional method does not. The
library keeps supporting the previous version for a while, so a plug-in written for that one keeps working."""

if TYPE_CHECKING:
    from ._contract import Argument as Argument
    from ._contract import Change as Change
    from ._contract import DeviceMemory as DeviceMemory
    from ._contract import Frame as Frame
    from ._contract import GraphContents as GraphContents
    from ._contract import GraphEdge as GraphEdge
    from ._contract import GraphNode as GraphNode
    from ._contract import MemoryState as MemoryState
    from ._contract import Misfit as Misfit
    from ._contract import NodeParameters as NodeParameters
    from ._contract import NodeSetter as NodeSetter
    from ._contract import addresses_in as addresses_in
    from ._contract import word as word
    from .mixins import AnyBackend as AnyBackend
    from .mixins import ChangesGraphs as ChangesGraphs
    from .mixins import Conditions as Conditions
    from .mixins import Enqueues as Enqueues
    from .mixins import Events as Events
    from .mixins import ExternalEvents as ExternalEvents
    from .mixins import HasHandles as HasHandles
    from .mixins import Lends as Lends
    from .mixins import MarksProgress as MarksProgress
    from .mixins import ProfilesGraphs as ProfilesGraphs
    from .mixins import ReadsGraphs as ReadsGraphs
    from .mixins import RecordsReplays as RecordsReplays
    from .mixins import TimesEvents as TimesEvents
    from .mixins import TimesGraphs as TimesGraphs
    from .mixins import UpdatesGraphs as UpdatesGraphs
else:  # no capture needs these
    AnyBackend = Backend  # as `typing.get_type_hints` reads it
    __getattr__ = imported_on_use(__name__, contract.HOMES)
