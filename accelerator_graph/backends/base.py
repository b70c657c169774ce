"""The contract of a backend: all that a plug-in implements, and all that it can rely on.

A backend is one class in a package of its own, named by an entry point. Two more are optional, for
``accelerator-graph conformance myrt`` and ``python -m accelerator_graph demo myrt``::

    [project.entry-points."accelerator_graph.backends"]
    myrt = "myrt_graph:MyBackend"
    [project.entry-points."accelerator_graph.conformance"]
    myrt = "myrt_graph.testing:MyWork"  # a subclass of accelerator_graph.testing.Work
    [project.entry-points."accelerator_graph.demo"]
    myrt = "myrt_graph.demo:MyPlate"  # has the members of accelerator_graph._demo.Plate

The class sets `api_version` and implements the abstract methods. All others have defaults. Those of a
capability that `capabilities` does not have keep them: they raise `UnsupportedError`. The types of arguments
and results are imported from this module too; the folder ``_contract`` defines them.

The library makes one instance in a process (another one in a forked child, or after an `open` that failed),
calls `open` once, and then, for each graph::

    create_stream, device_of, capabilities     at any time after `open`
    relaxed, synchronize                       unless the user turned the preparation off
    capture_status, capture_begin              on the capturing thread; `recorded` as well
      fill, copy, launch, record_event, ...    the captured work, from any thread
    capture_end                                on the capturing thread; capture_abandon instead if the
                                               captured code raised, or after an interrupt
    node_count, is_empty, instantiate
    destroy_graph                              as soon as nobody needs the graph: perhaps right now
    bind, launch_function, upload              for each stream that the graph is bound to
    replay, or the callable from `bind`        any number of times, from any thread
    destroy_executable, destroy_stream

The library checks the order of these calls, so a backend need not. Streams, events, tokens, graphs and
executables are objects of the backend's own choice, compared by ``==``: the library keeps them, hands them
back, and passes each to its ``destroy_`` method, never while the same thread is inside another call of the
backend. The library ignores a `DriverError` from these methods, and calls none of them in a forked child for
objects of the parent, nor at the interpreter's exit. Failures of the driver are raised as the exceptions of
`accelerator_graph.errors` and as no others. Unless a method says otherwise, calls may come from any thread,
even from one that has never touched the device, and several threads may call at once. Only `synchronize` and
`synchronize_event` wait for work, and other threads' calls go on meanwhile. A signal handler may call the
backend in the middle of another call of the same thread, so locks have to be re-entrant. If it raises
KeyboardInterrupt, what the call has just made is lost to the library: release it where you can.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .._interpreter import imported_on_use
from ..errors import AcceleratorGraphError, UnsupportedError
from . import _contract as contract
from ._contract.answers import Availability as Availability
from ._contract.answers import Capability as Capability
from ._contract.answers import CaptureInfo as CaptureInfo
from ._contract.answers import CaptureStatus as CaptureStatus
from ._contract.answers import LaunchFunction as LaunchFunction
from ._contract.answers import SameContext as SameContext
from ._contract.answers import SameStream as SameStream
from ._contract.answers import SetFunction as SetFunction
from ._contract.answers import StatusFunction as StatusFunction

if TYPE_CHECKING:
    from ._contract import Argument as Argument
    from ._contract import Change as Change
    from ._contract import DeviceMemory as DeviceMemory
    from ._contract import GraphContents as GraphContents
    from ._contract import GraphEdge as GraphEdge
    from ._contract import GraphNode as GraphNode
    from ._contract import Misfit as Misfit
    from ._contract import NodeParameters as NodeParameters
    from ._contract import NodeSetter as NodeSetter
    from ._contract import addresses_in as addresses_in
    from ._contract import word as word
else:  # no capture needs these
    __getattr__ = imported_on_use(__name__, contract.HOMES)

BACKEND_API_VERSIONS = (1,)
"""The versions of this contract that the library supports, in ascending order.

A method that becomes abstract or changes its meaning makes a new version; a new optional method does not. The
library keeps supporting the previous version for a while, so a plug-in written for that one keeps working."""

CaptureMode = Literal["default", "global", "thread_local", "relaxed"]
"""What the driver refuses while a capture is in progress: illegal calls of all threads, of the capturing
thread, or none, as CUDA's modes do. ``"default"`` is the backend's first one."""


class Recorder(ABC):
    """Records captures, replays the executables made of them, and destroys both.

    Every backend is one. A framework that has to record captures in its own way implements one as well:
    see `accelerator_graph.interop.base.Framework.recorder`.
    """

    __slots__ = ("__weakref__", "name")

    name: str
    """The name of the backend. The registry sets it before `open`."""

    serialises_replays: ClassVar[bool] = False
    """True: several threads may call `replay`, and what `bind` returned, for one executable at once. False:
    the library lets one through at a time."""

    destroy_disturbs_captures: bool = False
    """True: the ``destroy_`` methods invalidate captures in progress, so the library waits for the end of
    those that it knows of. May be set on an instance; read each time an object is about to be destroyed."""

    # ---- capture -------------------------------------------------------------------------------

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

        Raises `DriverError` if the capture was invalidated: with the reason of the call that did it, or
        ``"invalidated"``. Also if work on a forked stream was not waited for: with reason ``"unjoined"``,
        even if the runtime's graphs would wait for it, so that the same program works on every backend.
        Whether a fork without work has to be waited for is up to the backend.
        """

    def capture_abandon(self, token: Any) -> None:
        """End the capture and discard the recording. Does not raise.

        Afterwards no stream that took part is capturing any more. Does nothing if the capture has already
        ended: the default needs a `capture_end` that raises an `AcceleratorGraphError` then. May be called by
        another thread once the thread that began the capture has ended.
        """
        with suppress(AcceleratorGraphError):
            self.destroy_graph(self.capture_end(token))

    def recorded(self, token: Any) -> int | None:
        """Return how many nodes the capture has recorded so far; None if that can't be known.

        Called for labels, on the thread that began the capture. Disturbs nothing. Counts the nodes of all
        streams that take part. If it is known, `nodes` has to list them in the order of recording.
        """
        return None

    # ---- graphs and executables ----------------------------------------------------------------

    @abstractmethod
    def instantiate(self, graph: Any) -> Any:
        """Make an executable of the graph, owned by the caller (`destroy_executable`).

        Disturbs no capture in progress. May be called again for a graph that the user keeps; the earlier
        executable still exists then, unless `single_executable` is True.
        """

    def single_executable(self, graph: Any) -> bool:
        """Return True if only one executable of this graph can live at a time. Asked before a second one.

        The library then destroys the first one before it calls `instantiate` again.
        """
        return False

    @abstractmethod
    def replay(self, executable: Any, stream: Any) -> None:
        """Enqueue one run of the executable behind everything on the stream, and return without waiting.

        The stream is one of the device that was captured. A run is one piece of its work: what other threads
        enqueue comes before or after all of it. Runs of one executable take effect one after another in call
        order, whichever streams they are on; requesting another run while one is in progress is never an
        error. Several threads ask at once only if `serialises_replays` is True: no run is lost then, on one
        stream or on several. The streams that were captured, and the graph, may have been destroyed before.

        On a capturing stream the run is recorded if the backend has the capability ``"child_graphs"``; the
        recorded run outlives the executable, is not changed by an `update` of it, and is not ordered against
        other runs of it. Otherwise the library refuses a replay into any capture of its own. Into a capture
        that another library began, the backend has to raise `CaptureError` or `DriverError`, or to set
        `Backend.replay_ignores_captures`.

        After a KeyboardInterrupt the run was enqueued or not, and later runs work.

        Unless `serialises_replays` is True, the library keeps the stream of an executable's latest run alive
        until the next run. If it is True, the stream may be destroyed while the run is in progress.
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
        meanwhile. A framework's recorder that answers None is asked again after each replay. A subclass that
        overrides `replay` or `bind` has to override this as well.
        """
        return None

    def upload(self, executable: Any, stream: Any) -> None:
        """Move the executable to the device, in stream order, without running it."""
        raise unsupported(self, Capability.UPLOAD)

    def node_setter(self, graph: Any, executable: Any, node: int) -> contract.NodeSetter | None:
        """Return what changes a node, by its number in `nodes`, in later runs; None if nothing can.

        The library keeps graph and executable alive, asks for one setter of a node, and launches nothing in
        the middle of a change. Runs that were enqueued before are not affected.
        """
        return None

    def update(self, executable: Any, former: Any, graph: Any) -> contract.Misfit | None:
        """Give an executable, which does the work of `former`, that of another graph in place.

        Returns None if that is done, else what did not fit, and nothing has changed then. After a
        `DriverError` the executable may have changed in part. Runs enqueued before are not affected. The
        library launches nothing meanwhile, and keeps `graph` as long as the executable.
        """
        return contract.Misfit(f"backend {self.name!r} does not update executables")

    @abstractmethod
    def destroy_graph(self, graph: Any) -> None:
        """Release a graph. Its executables may still be in use. May be called again: see `destroy_stream`."""

    @abstractmethod
    def destroy_executable(self, executable: Any) -> None:
        """Release an executable. Runs in progress complete. May be called again: see `destroy_stream`.

        What `instantiate` allocated goes with the last run. The memory that the captured work uses is not the
        backend's: the user or a framework owns it.
        """

    # ---- looking into a graph ------------------------------------------------------------------

    def is_empty(self, graph: Any) -> bool:
        """Return True if a graph has no nodes. Takes constant time, where the vendor can tell so quickly.

        False if that can't be known: True makes the library warn that nothing was captured.
        """
        return self.node_count(graph) == 0

    def node_count(self, graph: Any) -> int | None:
        """Return the number of nodes; None if it is not known."""
        return None

    def nodes(self, graph: Any) -> contract.GraphContents:
        """List the nodes and the dependencies of a graph."""
        raise unsupported(self, Capability.NODES)

    def instantiate_timed(
        self, graph: Any, before: Sequence[int], after: Sequence[int]
    ) -> tuple[Any, Sequence[Any]]:
        """Make an executable of a copy of the graph, each run of which records timed events.

        There is an event before each node of `before`, which are numbers as in `nodes`, and one after each of
        `after`. The node waits for the former, whatever waits for the node waits for the latter, and that is
        all the order that is added. Returns the executable, which `Backend.replay` takes even if a framework
        recorded the graph, and the events in that order, all owned by the caller; executables go first.
        Not called for graphs that allocate or free memory, or have conditional nodes.
        """
        raise unsupported(self, Capability.GRAPH_EVENTS)

    def time_nodes(self, graph: Any, stream: Any, runs: int) -> Sequence[Mapping[int, tuple[float, float]]]:
        """Run a copy of the graph some times, wait, and return when its nodes began and ended in each run.

        By the vendor's profiler, in microseconds since any moment of the run. Nodes that it does not see are
        left out. Raises `UnsupportedError` if it can't be used. Called as `instantiate_timed` is.
        """
        raise UnsupportedError(f"backend {self.name!r} has no profiler that sees nodes; time labels instead.")

    def parameters(self, graph: Any) -> Sequence[contract.NodeParameters] | None:
        """Return the parameters of a graph's nodes, in the order of `nodes`; None if none are told."""
        return None

    def device_memory(self, obj: Any) -> contract.DeviceMemory | None:
        """Return what the driver tells of the memory of a graph's or an executable's device; None if nothing.

        Disturbs no capture in progress.
        """
        return None

    def host_bytes(self, obj: Any) -> int | None:
        """Return how much of the host's memory a graph or an executable takes; None if that is not known."""
        return None

    def dump(self, graph: Any, path: str, verbose: bool) -> bool:
        """Write the vendor's drawing in DOT, for any suffix. Return False if it has none; see `nodes`."""
        return False

    def handle_int(self, obj: Any) -> int:
        """Return the handle of a stream, a graph or an executable: its own, from 1 to ``2**64 - 1``."""
        raise unsupported(self, Capability.HANDLES)


class Backend(Recorder):
    """Base class of all backends.

    Every method that reaches the driver raises `DriverError` (or `OutOfMemoryError`) when the driver fails,
    with a `reason` from `accelerator_graph.errors`, and `UnsupportedError` when the installed driver is too
    old. The vendor's own exceptions never come out of a backend, except as the cause of these. A call that
    raises has made, recorded and enqueued nothing. What a backend itself refuses is a `driver_error` with
    ``code=None``, the method as `call`, and a `code_name` of its own. If work fails when it runs, the next
    `synchronize` or `query` of its stream, or of one that has waited for it, raises that, where the runtime
    reports it; once it was raised, no call raises it again. The stream of a run is the one given to `replay`;
    what becomes of the rest of the run is up to the runtime. In all these cases, streams, graphs and
    executables go on working, unless the reason is ``"device_lost"``: then all calls fail from then on.

    A call about other streams, graphs and executables leaves captures in progress as they are. Exceptions are
    waits that a capture mode forbids, and `destroy_disturbs_captures`.
    """

    __slots__ = ()

    api_version: ClassVar[int]
    """The version of this contract that the class was written for: a literal in every backend."""

    priority: ClassVar[int | None] = 0
    """Automatic choice among third parties takes the highest; ties go to the alphabetically first name. None:
    automatic choice never takes this backend; the user has to name it, or pass a stream of the runtime's
    own."""

    recording: ClassVar[Literal["stream", "explicit"]] = "stream"
    """``"stream"``: the driver captures whatever anyone enqueues on the stream. ``"explicit"``: only
    work enqueued through `accelerator_graph.Stream` is recorded; frameworks are not asked to take part."""

    capture_modes: ClassVar[tuple[CaptureMode, ...]] = ("default",)
    """The capture modes; ``"default"`` means the first. ``("default",)`` if there is one way only, else names
    from ``"global"``, ``"thread_local"`` and ``"relaxed"``, which mean what `CaptureMode` says."""

    stream_modules: ClassVar[frozenset[str]] = frozenset()
    """Top-level packages of the runtime's own stream objects, about which the library asks `as_stream`. Empty
    if users have handles only: an int means the backend that is named or chosen."""

    cuda_like: ClassVar[bool] = False
    """Stream handles are exposed as ``__cuda_stream__``, graph handles as ``raw_cuda_graph()``. The handle 0
    is a stream then, the default one, which can't capture."""

    replay_ignores_captures: ClassVar[bool] = False
    """The runtime neither records nor refuses a `replay` onto a capturing stream: it runs at once. The
    library then asks for the stream's status before every replay, since another library may be capturing
    it."""

    survives_fork: ClassVar[bool] = False
    """A forked child can open a backend that its parent has opened. No GPU driver can do that."""

    # ---- being there ---------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def probe(cls) -> Availability:
        """Return whether the backend could run here. Initialises nothing and never raises.

        A process that has only probed can still be forked, and the child can open the backend and use it.
        If that takes initialising the driver, say that it is usable, and let `open` raise.
        """

    def open(self) -> None:
        """Initialise the runtime. Called once, before any other method but `probe`.

        Raises `BackendUnavailableError` if it can't run here after all. The message is the reason alone, as
        in `Availability`. Automatic choice takes the next backend and keeps the reason.
        """

    def capabilities(self, device: int) -> Set[str]:
        """Return the capabilities that the backend has on a device."""
        return frozenset()

    @abstractmethod
    def device_count(self) -> int:
        """Return how many devices there are; their ordinals count from 0."""

    # ---- streams -------------------------------------------------------------------------------

    @abstractmethod
    def create_stream(self, device: int, *, like: Any = None, priority: int = 0) -> Any:
        """Make a stream, owned by the caller (`destroy_stream`).

        It runs independently of all others, the default stream included. It shares the context of `like`, if
        given: a stream of the same device. A lower number means a higher priority; clamp it to the supported
        range.
        """

    @abstractmethod
    def destroy_stream(self, stream: Any) -> None:
        """Release a stream that `create_stream` made. Work enqueued on it still completes.

        Like the other ``destroy_`` methods, it is called again if a call was interrupted, or ran out of
        memory or stack. Do not destroy again what is already gone.
        """

    @abstractmethod
    def device_of(self, stream: Any) -> int:
        """Return the ordinal of a stream's device."""

    def context_id(self, stream: Any) -> int | None:
        """Return a number for the stream's context; None without contexts.

        The library keeps a side stream for each thread and device, and makes a new one if this changes. The
        address of the context will do, unless a context can end while somebody still has streams of it: then
        no other context may ever get the number.
        """
        return None

    @abstractmethod
    def synchronize(self, stream: Any) -> None:
        """Wait until all work on the stream is done, replays included. Releases the GIL while it waits.

        A capturing stream can't be waited for: that is a `DriverError` with reason ``"illegal_call"``, or
        ``"invalidated"`` if the capture was broken before. A backend that records explicitly may raise
        `CaptureError` instead, or return at once, since nothing runs.
        """

    def current_stream(self, device: int | None = None) -> Any | None:
        """Return this thread's current stream in the runtime, on a device or the current one, if any.

        The same stream, by ``==``, as long as nobody changes it. For runtimes in which users choose a stream;
        a default stream that is always there is not one.
        """
        return None

    def as_stream(self, obj: object) -> Any | None:
        """Return the stream that `obj` stands for: the runtime's own object, or a handle as `int`.

        Imports nothing to find out. A handle stands for the same stream each time, and for the one that
        `create_stream` returned: the handle and the capture status are the same. Its owner keeps it alive and
        destroys it; a destroyed one need not be recognised. None if it is not a stream, or an int without the
        capability ``"handles"``; ValueError if it is a stream that can't be used.
        """
        return None

    # ---- capability: events --------------------------------------------------------------------

    def record_event(self, stream: Any) -> Any:
        """Mark the present end of the stream's work, replays included.

        The caller owns the event (`destroy_event`). It may outlive the stream. An event never moves:
        recording again makes a new event, even if this one was destroyed while a stream waits for it.
        """
        raise unsupported(self, Capability.EVENTS)

    def wait_event(self, stream: Any, event: Any) -> None:
        """Let later work on `stream` wait for the event, replays included. Any number of streams may wait.

        Waiting for an event of a capture in progress adds a stream that is not capturing to that capture,
        ordered after the event. Streams of a capture can wait only for events of the same capture, because a
        replay could not preserve any other order; that refuses its own earlier events, too. Otherwise,
        waiting for an event of its own has no effect on a stream. The two may be on different devices, in a
        capture or not: keep the order, or raise `DriverError` or `UnsupportedError`.

        Raises `DriverError` if the stream is capturing and the event was recorded outside its capture, or the
        event belongs to another capture or to one that has ended. The reason is ``"foreign_capture"``, or
        ``"other"`` where the driver can't tell an event of an ended capture from one that is not valid.
        """
        raise unsupported(self, Capability.EVENTS)

    def destroy_event(self, event: Any) -> None:
        """Release an event. Streams that wait for it still wait for the work that it marks."""

    def query(self, stream: Any) -> bool:
        """Return True if all work on the stream is done, without waiting. Raises like `synchronize`."""
        raise unsupported(self, Capability.EVENTS)

    # ---- capability: timing --------------------------------------------------------------------

    def record_timed_event(self, stream: Any) -> Any:
        """Like `record_event`; the event notes the time of its mark. Not called for a capturing stream."""
        raise unsupported(self, Capability.TIMING)

    def query_event(self, event: Any) -> bool:
        """Return True if the work before an event, timed or not, is done, without waiting.

        Not asked about events that were recorded in a capture. Raises like `query`, but may leave failures of
        the work to that.
        """
        raise unsupported(self, Capability.TIMING)

    def synchronize_event(self, event: Any) -> None:
        """Wait until the work before the event is done. Raises like `query_event`. Releases the GIL."""
        raise unsupported(self, Capability.TIMING)

    def elapsed_time(self, start: Any, end: Any) -> float | None:
        """Return the milliseconds between two timed events of a device; None if one of them is not done."""
        raise unsupported(self, Capability.TIMING)

    # ---- capability: enqueue -------------------------------------------------------------------

    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        """Set `nbytes` bytes at `dst` to `value` (0 to 255); all of `dst` if `nbytes` is None.

        Like `copy` and `launch`: on a capturing stream the work is recorded, elsewhere it runs, whichever
        thread calls. The caller keeps the memory alive. Which objects are memory is up to the backend; the
        host's need not be. `value` and the sign and type of `nbytes`, which may be 0, have been checked.

        Raises TypeError if an object is of the wrong kind, and ValueError if the memory has too few bytes,
        can't be written, or belongs to another device: in this call, so that a capture stays valid.
        """
        raise unsupported(self, Capability.ENQUEUE)

    def copy(self, stream: Any, dst: Any, src: Any, nbytes: int | None) -> None:
        """Copy `nbytes` bytes from `src` to `dst`; by default all of `src`, which must fit. See `fill`."""
        raise unsupported(self, Capability.ENQUEUE)

    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        """Enqueue `work`, whatever the backend accepts: a callable, a kernel, ...

        Raises like `fill`, also for unknown keywords and objects that can't be arguments of a kernel.
        """
        raise unsupported(self, Capability.ENQUEUE)

    def host_memory(self, stream: Any, nbytes: int) -> int | None:
        """Return the address of memory of the host that `fill` can write in graphs of the stream's device.

        The host sees what a fill has written as soon as the fill is done, even while later work is in
        progress. The memory is zero and lives as long as the process. None if there is no such memory. Asked
        for progress markers, when the stream is not capturing. Disturbs no capture.
        """
        return None

    # ---- captures, ours and foreign -----------------------------------------------------------------------

    @abstractmethod
    def capture_status(self, stream: Any) -> CaptureStatus:
        """Return whether the stream takes part in a capture, no matter who began it. Disturbs nothing.

        The same answer on every thread. The stream that began the capture is ``"active"`` until the capture
        ends or is broken, and ``"invalidated"`` from then on until it is ended. The other streams that take
        part are never ``"none"`` meanwhile.
        """

    def status_function(self, stream: Any) -> StatusFunction | None:
        """Return a function in C that says whether a stream with a handle captures; None if there is none.

        Called in place of `capture_status` for the events of a diagnosed capture, and ahead of some replays.
        """
        return None

    def capture_info(self, stream: Any) -> CaptureInfo | None:
        """Return facts about the stream's capture; None without one. Required for ``"events"``."""
        return None

    def relaxed(self, stream: Any) -> AbstractContextManager[None]:
        """Return a context manager: inside it, this thread disturbs no capture on the stream's device.

        There the library waits for streams that are not being captured, and frameworks allocate memory. It
        can be nested, and lets exceptions pass. The default does nothing, for runtimes in which neither
        disturbs a capture.
        """
        return nullcontext()


class Lends(Backend):
    """Base class of a backend whose captures a framework can record itself, as torch does on CUDA."""

    __slots__ = ()

    def recorded_on(self, stream: Any) -> int | None:
        """Return what `recorded` does, for a capture that was begun on this stream by a framework."""
        return None

    @abstractmethod
    def borrow_graph(self, handle: int, stream: Any) -> Any:
        """Wrap the graph with this handle, which was captured on `stream`. It is never destroyed."""

    @abstractmethod
    def borrow_executable(self, handle: int, graph: Any) -> Any:
        """Wrap the executable with this handle, which was made of a borrowed graph. It is never destroyed."""

    def relaxed_for(self, graph: Any) -> AbstractContextManager[None]:
        """Like `relaxed`, on the device of a borrowed graph, whose stream may have been destroyed."""
        return nullcontext()


def unsupported(backend: Recorder, capability: str) -> UnsupportedError:
    """Make the error that says a backend does not have a capability."""
    return UnsupportedError(
        f"backend {backend.name!r} does not have the capability {str(capability)!r}; use a backend whose "
        "capabilities() have it.",
        capability=str(capability),
    )
