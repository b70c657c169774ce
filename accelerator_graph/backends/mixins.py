"""What a backend can do beyond the small contract: a class for each capability, with its methods.

A backend inherits those of what its runtime can ever do::

    class MyBackend(Events, Enqueues):
        api_version = 1

All of them are subclasses of `Backend`, so their order does not matter. The table in `base` has the
capabilities; what `base` says of all methods holds here as well.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from . import _contract as contract
from .base import Backend, Capability


class Events(Backend, capability=Capability.EVENTS):
    """Streams can wait for each other, so captures can fork and join. Needs `capture_info`, too."""

    __slots__ = ()

    @abstractmethod
    def record_event(self, stream: Any, *, timed: bool = False) -> Any:
        """Mark the present end of the stream's work, replays included.

        The caller owns the event (`destroy_event`). It may outlive the stream. An event never moves:
        recording again makes a new event, even if this one was destroyed while a stream waits for it.

        A timed event notes the time of its mark. The library asks for one only if the backend `TimesEvents`,
        and not on a capturing stream.
        """

    @abstractmethod
    def wait_event(self, stream: Any, event: Any) -> None:
        """Let later work on `stream` wait for the event, replays included. Any number of streams may wait.

        Waiting for an event of a capture in progress adds a stream that is not capturing to that capture,
        ordered after the event. Streams of a capture can wait only for events of the same capture, because a
        replay could not preserve any other order; so a stream's own events from before the capture are
        refused, too. Otherwise, a stream that waits for an event of its own is not affected. Stream and event
        may be on different devices, in a capture or not: keep the order, or raise `DriverError` or
        `UnsupportedError`.

        Raises `DriverError` if the stream is capturing and the event was recorded outside its capture, or the
        event belongs to another capture or to one that has ended. The reason is ``"foreign_capture"``, or
        ``"other"`` where the driver can't tell an event of an ended capture from one that is not valid.
        """

    def destroy_event(self, event: Any) -> None:
        """Release an event. Streams that wait for it still wait for the work that it marks.

        The default does nothing, for events that go with the last reference to them.
        """

    @abstractmethod
    def query(self, stream: Any) -> bool:
        """Return True if all work on the stream is done, without waiting. Raises like `synchronize`."""


class ExternalEvents(Events, capability=Capability.EXTERNAL_EVENTS):
    """Events cross the border of a capture, so that a graph waits for another one, or for work outside.

    Such an event can be recorded again, and moves. Recorded or waited for in a capture, it is a part of the
    graph: each replay records it anew, or waits for what it marks when the replay is requested; if it marks
    nothing yet, for nothing. `wait_event` takes such an event as well; a wait never makes a capturing stream
    join another capture. If the event was last recorded in the same capture, the wait orders the nodes of
    each run. The library keeps the event alive as long as such a graph.
    """

    __slots__ = ()

    @abstractmethod
    def record_external(self, stream: Any, event: Any = None, *, timed: bool = False) -> Any:
        """Mark the present end of the stream's work; on a capturing stream, in each replay. Return the event.

        None makes a new one, timed or not, of the stream's device. The caller owns it (`destroy_event`).
        """


class TimesEvents(Events, capability=Capability.TIMING):
    """The host can ask events, wait for them, and get the time between two.

    `query` and `synchronize` know events by their type, timed or not, and do for the work before an event
    what they do for all work on a stream. They may leave failures of that work to the stream; one that they
    raise is not raised again. The library does not ask about events that were recorded in a capture.
    """

    __slots__ = ()

    @abstractmethod
    def elapsed_time(self, start: Any, end: Any) -> float | None:
        """Return the milliseconds between two timed events of a device; None if one of them is not done."""


class Enqueues(Backend, capability=Capability.ENQUEUE):
    """Work can be enqueued through `accelerator_graph.Stream`."""

    __slots__ = ()

    @abstractmethod
    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        """Set `nbytes` bytes at `dst` to `value` (0 to 255); all of `dst` if `nbytes` is None.

        Like `copy` and `launch`: on a capturing stream the work is recorded, elsewhere it runs, whichever
        thread calls. The caller keeps the memory alive. Which objects are memory is up to the backend; the
        host's need not be. `value` and the sign and type of `nbytes`, which may be 0, have been checked.

        Raises TypeError if an object is of the wrong kind, and ValueError if the memory has too few bytes,
        can't be written, or belongs to another device: in this call, so that a capture stays valid.
        """

    @abstractmethod
    def copy(self, stream: Any, dst: Any, src: Any, nbytes: int | None) -> None:
        """Copy `nbytes` bytes from `src` to `dst`; by default all of `src`, which must fit. See `fill`."""

    @abstractmethod
    def launch(self, stream: Any, work: Any, /, *args: Any, **how: Any) -> None:
        """Enqueue `work`, whatever the backend accepts: a callable, a kernel, ...

        Raises like `fill`, also for unknown keywords and objects that can't be arguments of a kernel.
        """

    def read(self, stream: Any, src: Any, nbytes: int) -> bytes:
        """Return the first bytes of memory once all work on the stream is done. It is not capturing.

        Called at every test of a loop or a branch by the host, so it matters how long it takes. The default
        copies into memory of the host and synchronizes, for backends whose `copy` takes such memory.
        """
        found = bytearray(nbytes)
        self.copy(stream, found, src, nbytes)
        self.synchronize(stream)
        return bytes(found)


class MarksProgress(Enqueues, capability=Capability.PROGRESS):
    """Graphs can write memory of the host, so that it sees how far a replay has come."""

    __slots__ = ()

    @abstractmethod
    def host_memory(self, stream: Any, nbytes: int) -> int:
        """Return the address of memory of the host that `fill` can write in graphs of the stream's device.

        The host sees what a fill has written as soon as the fill is done, even while later work is in
        progress. The memory is zero and lives as long as the process. Asked for when the stream is not
        capturing. Disturbs no capture.
        """


class HasHandles(Backend, capability=Capability.HANDLES):
    """Streams, graphs and executables have handles that other libraries understand.

    `as_stream` recognises the handle of a stream, as `int`.
    """

    __slots__ = ()

    @abstractmethod
    def handle_int(self, obj: Any) -> int:
        """Return the handle of a stream, a graph or an executable: its own, from 1 to ``2**64 - 1``."""


class ReadsGraphs(Backend, capability=Capability.NODES):
    """What is in a graph can be listed. `capture_info` counts the nodes while they are recorded."""

    __slots__ = ()

    @abstractmethod
    def nodes(self, graph: Any, executable: Any = None) -> contract.GraphContents:
        """List the nodes and the dependencies of a graph, the nodes in the order of recording.

        With an executable of the graph, nodes have the numbers that the vendor's profiler has for its nodes.
        """

    def parameters(self, graph: Any) -> Sequence[contract.NodeParameters]:
        """Return the parameters of a graph's nodes, in the order of `nodes`. The default knows none."""
        from ._contract.contents import NodeParameters

        return [NodeParameters(node.kind, None) for node in self.nodes(graph)[0]]

    def memory_at(self, graph: Any, addresses: Sequence[int]) -> Sequence[contract.MemoryState | None]:
        """Return what is known of the memory at each of these addresses, which the graph may use.

        ``"held"`` if the graph keeps it alive, ``"there"`` if the driver has memory there, ``"gone"`` if the
        driver guarantees that there is none, which `Graph.check` reports as an error, and None if nothing is
        known. The default returns None for each. Disturbs no capture in progress.
        """
        return [None] * len(addresses)

    def dump(self, graph: Any, path: str, verbose: bool) -> bool:
        """Write the vendor's drawing in DOT, for any suffix. Return False if the library has to draw one."""
        return False

    def device_memory(self, obj: Any) -> contract.DeviceMemory | None:
        """Return the memory of the device of a graph or an executable; None if the driver reports nothing.

        Disturbs no capture in progress.
        """
        return None

    def host_bytes(self, obj: Any) -> int | None:
        """Return how much of the host's memory a graph or an executable takes; None if that is not known."""
        return None


class RecordsReplays(Backend, capability=Capability.CHILD_GRAPHS):
    """`replay` onto a capturing stream is recorded into that capture: graphs inside graphs.

    The recorded run outlives the executable and the graph, is not changed by an `update`, and is not ordered
    against other runs. `replay` itself records it, or, with `records_graphs`, another method.
    """

    __slots__ = ()

    def record_graph(self, stream: Any, graph: Any) -> None:
        """Record a run of a graph, as it is now, behind everything on a capturing stream.

        Called instead of `replay` if `records_graphs` is True, for graphs that are kept and for which
        `single_executable` is False, and for streams of the library's own captures. Raises `DriverError` or
        `UnsupportedError` for a graph that can't be inside another, and leaves the capture as it was.
        """
        raise NotImplementedError


class ChangesGraphs(Backend, capability=Capability.SET_NODE):
    """Single nodes of an executable can be changed."""

    __slots__ = ()

    @abstractmethod
    def node_setter(self, graph: Any, executable: Any, node: int, *inside: int) -> contract.NodeSetter | None:
        """Return what changes a node, by its number in `nodes`, in later runs; None for a node of a kind or
        form that stays as it is, as `GraphNode.settable` says.

        With more numbers, the node is inside of that child graph: by its number there, or as deep as there
        are numbers. None if there is no such node. The graph that was recorded, and other runs of it, stay.

        The library keeps graph and executable alive, asks for one setter of a node, and launches nothing in
        the middle of a change. Runs that were enqueued before are not affected.
        """


class UpdatesGraphs(Backend, capability=Capability.UPDATE):
    """An executable can get the work of another graph in place."""

    __slots__ = ()

    @abstractmethod
    def update(self, executable: Any, former: Any, graph: Any) -> contract.Misfit | None:
        """Give an executable, which does the work of `former`, that of another graph in place.

        Returns None if that is done. Otherwise returns what did not fit, and nothing has changed; the library
        then makes a new executable. A runtime that can give an executable any work takes graphs of any shape.
        All of the work is the new graph's: its memory, its values and its dependencies. After a `DriverError`
        the executable may have changed in part.

        Runs enqueued before are not affected, and later runs come after them. Callables that
        `NativeCalls.bind` has returned launch the new work. The library launches nothing meanwhile, and keeps
        `graph` as long as the executable.
        """


class TimesGraphs(TimesEvents, ReadsGraphs, capability=Capability.GRAPH_EVENTS):
    """Executables can record timed events inside, so that parts of a graph can be timed."""

    __slots__ = ()

    @abstractmethod
    def instantiate_timed(
        self, graph: Any, before: Sequence[int], after: Sequence[int]
    ) -> tuple[Any, Sequence[Any]]:
        """Make an executable of a copy of the graph, each run of which records timed events.

        There is an event before each node of `before`, which are numbers as in `nodes`, and one after each of
        `after`. The node waits for the former, whatever waits for the node waits for the latter, and that is
        all the order that is added. Returns the executable and the events in that order, all owned by the
        caller; executables go first. Not called for graphs that allocate or free memory, or have conditional
        nodes.
        """


class ProfilesGraphs(ReadsGraphs, capability=Capability.NODE_TIMES):
    """The vendor's profiler sees when single nodes run."""

    __slots__ = ()

    @abstractmethod
    def time_nodes(self, graph: Any, stream: Any, runs: int) -> Sequence[Mapping[int, tuple[float, float]]]:
        """Run a copy of the graph some times, wait, and return when its nodes began and ended in each run.

        In microseconds since any moment of the run. Nodes that the profiler does not see are left out. Raises
        `UnsupportedError` if it is not installed or is in use. Called as `TimesGraphs.instantiate_timed` is.
        """


class Conditions(Enqueues, ReadsGraphs, capability=Capability.CONDITIONS):
    """Graphs have loops and branches whose flags the device tests, in no time of the host's.

    The library captures a body on a stream of its own, by `body_begin` and `body_end`, inside the capture of
    the stream that the condition is on; bodies may have conditions in turn. Each body is captured once, in
    order, before anything else is recorded behind the condition.
    """

    __slots__ = ()

    flag_test: ClassVar[str] = ""
    """The name of the kernels that test flags, if they are nodes. They write none."""

    @abstractmethod
    def condition(
        self,
        stream: Any,
        kind: Literal["while", "if"],
        bodies: int,
        flag: int,
        nbytes: int,
        limit: int | None,
    ) -> Any:
        """Record a loop or a branch on a capturing stream, behind all of its work, and return it.

        A loop has one body, which runs as long as the `nbytes` bytes at the address `flag` are not all zero,
        and not more than `limit` times; they are read whenever a run gets there, and behind each run of the
        body. A branch runs the first of its one or two bodies if they are not, and otherwise the second.

        The library keeps the object as long as the graph and its executables.
        """

    @abstractmethod
    def body_begin(self, condition: Any, number: int, stream: Any) -> Any:
        """Begin to capture an idle stream into a body, and return a token. Raises as `capture_begin` does.

        What the thread may call meanwhile is up to the mode of the capture around it.
        """

    @abstractmethod
    def body_end(self, body: Any) -> Any:
        """End the capture, and return the body as a graph for `nodes`. It is never destroyed.

        If this raises, as `capture_end` does, the capture is over all the same.
        """

    @abstractmethod
    def body_abandon(self, body: Any) -> None:
        """End a capture that may be over already; the whole graph is abandoned after it.

        If it can't be ended without harm, the stream goes on capturing, and the library never destroys it.
        """

    @abstractmethod
    def runs(self, condition: Any, stream: Any) -> int:
        """Return how many times the body of a loop has run in the last run that got there and is done."""

    @abstractmethod
    def misplaced(self, body: Any) -> tuple[int, str] | None:
        """Return the number of the first node of a body that the device does not run there, and what it is.

        Such as ``(3, "a node of the kind 'host'")``; None if it runs all of them. Asked of what `body_end`
        has returned.
        """


class Lends(HasHandles):
    """Captures on this backend's streams can be recorded by a framework, as torch does on CUDA."""

    __slots__ = ()

    @abstractmethod
    def borrow(self, handle: int, made_of: Any) -> Any:
        """Wrap what has this handle: a graph that was captured on the stream `made_of`, or an executable.

        An executable was made of the borrowed graph `made_of`. Neither is ever destroyed.
        """

    @abstractmethod
    def borrow_capture(self, stream: Any) -> Any:
        """Return a token of the capture that a framework has begun on a stream, for `capture_abandon`."""


MIXINS: tuple[type[Backend], ...] = (
    *(Events, ExternalEvents, TimesEvents, Enqueues, MarksProgress, HasHandles, ReadsGraphs, RecordsReplays),
    *(ChangesGraphs, UpdatesGraphs, TimesGraphs, ProfilesGraphs, Conditions, Lends),
)

CAPABILITY_OF: dict[str, Capability] = {
    name: capability
    for mixin in MIXINS
    for capability in mixin.inherited.difference(
        *(getattr(base, "inherited", ()) for base in mixin.__bases__)
    )
    for name in vars(mixin)
    if not name.startswith("_") and name != "inherited"
}
"""The capability that a method belongs to."""

if TYPE_CHECKING:

    class AnyBackend(
        TimesGraphs,
        ProfilesGraphs,
        Conditions,
        ExternalEvents,
        MarksProgress,
        RecordsReplays,
        ChangesGraphs,
        UpdatesGraphs,
        Lends,
    ):
        """For type checkers: a backend that may have any capability. Programs ask `capabilities` first."""
