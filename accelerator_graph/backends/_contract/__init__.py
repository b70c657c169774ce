"""The types that backends and the library exchange. Those that no capture needs are imported on first use.

Here is what a backend answers about itself and about captures, and functions that the library may call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..._interpreter import Record, imported_on_use

if TYPE_CHECKING:
    from .contents import Argument as Argument
    from .contents import BackendReport as BackendReport
    from .contents import Change as Change
    from .contents import DeviceMemory as DeviceMemory
    from .contents import Frame as Frame
    from .contents import GraphContents as GraphContents
    from .contents import GraphEdge as GraphEdge
    from .contents import GraphNode as GraphNode
    from .contents import MemoryState as MemoryState
    from .contents import Misfit as Misfit
    from .contents import NodeParameters as NodeParameters
    from .contents import NodeSetter as NodeSetter
    from .contents import addresses_in as addresses_in
    from .contents import word as word

HOMES = {
    f"{__name__}.contents": "Argument BackendReport Change DeviceMemory Frame GraphContents GraphEdge "
    "GraphNode MemoryState Misfit NodeParameters NodeSetter addresses_in word",
    "accelerator_graph.backends.mixins": "ChangesGraphs Conditions Enqueues Events ExternalEvents HasHandles "
    "Lends MarksProgress ProfilesGraphs ReadsGraphs RecordsReplays TimesEvents TimesGraphs UpdatesGraphs",
}


class Capability(StrEnum):
    """What a runtime may be able to do. The table in `base` has the classes with the methods."""

    EVENTS = "events"
    EXTERNAL_EVENTS = "external_events"
    TIMING = "timing"
    ENQUEUE = "enqueue"
    PROGRESS = "progress"
    HANDLES = "handles"
    NODES = "nodes"
    CHILD_GRAPHS = "child_graphs"
    SET_NODE = "set_node"
    UPDATE = "update"
    GRAPH_EVENTS = "graph_events"
    NODE_TIMES = "node_times"
    CONDITIONS = "conditions"


class CaptureStatus(StrEnum):
    """Whether a stream is capturing."""

    NONE = "none"
    ACTIVE = "active"
    INVALIDATED = "invalidated"  # never, on a backend where no call breaks a capture


class Availability(Record):
    """What `Backend.probe` found out without initialising anything.

    Parameters
    ----------
    usable : bool
        The backend can be used.
    reason : str
        Why it is not usable and how to fix that: a clause that follows "backend 'x' is not available: ".
    versions : mapping of str to str
        Versions by component, for example ``{"driver": "13.0"}``.
    devices : int, optional
        The number of devices; None if that can't be known without initialising.
    warning : str
        A known defect of the installed versions and how to fix it, in sentences. The backend is usable.
    """

    __slots__ = ("usable", "reason", "versions", "devices", "warning")  # noqa: RUF023 (the order is shown)

    def __init__(
        self,
        usable: bool,
        reason: str = "",
        versions: Mapping[str, str] = MappingProxyType({}),
        devices: int | None = None,
        warning: str = "",
    ) -> None:
        self.usable: bool = usable
        self.reason: str = reason
        self.versions: Mapping[str, str] = versions
        self.devices: int | None = devices
        self.warning: str = warning


class CaptureInfo(Record):
    """What a backend knows about a capture in progress.

    Parameters
    ----------
    id : int
        A number shared by all streams of one capture, and by no other capture in progress.
    nodes : int, optional
        How many nodes it has recorded so far, those of all streams that take part; None if that can't be
        known. Asked for at labels, and ahead of the end.
    """

    __slots__ = ("id", "nodes")

    def __init__(self, id: int, nodes: int | None = None) -> None:
        self.id: int = id
        self.nodes: int | None = nodes


class SameStream(Record):
    """A condition of a `LaunchFunction`: the executable's latest run was on this same stream.

    Parameters
    ----------
    address : int
        Address of a ``void *`` in which the backend notes the stream of the latest run. It lives as long as
        the executable.
    """

    __slots__ = ("address",)

    def __init__(self, address: int) -> None:
        self.address: int = address


class SameContext(Record):
    """A condition of a `LaunchFunction`: the calling thread's current context is the right one.

    Parameters
    ----------
    address : int
        Address of an ``int current(void **context)``, which returns 0 on success.
    context : int
        The context that it has to store.
    """

    __slots__ = ("address", "context")

    def __init__(self, address: int, context: int) -> None:
        self.address: int = address
        self.context: int = context


class LaunchFunction(Record):
    """A function ``int launch(void *executable, void *stream)`` of the vendor's library.

    Parameters
    ----------
    address : int
        Called with the handles of executable and stream, as `handle_int` returns them, on any thread and
        without the GIL. Returns 0 on success.
    failed : callable
        Raises the `DriverError` for another return code. Called right afterwards, on the same thread.
    guard : SameStream or SameContext, optional
        While this is not met, the library calls `replay`, or what `bind` returned, instead. `SameStream`
        needs a backend whose `serialises_replays` is False.
    capturing : int
        Address of an ``int capturing(void *stream, int *status)``; 0 if there is none. The library calls it
        before every launch. Unless it returns 0 and the status is 0, the library calls `replay`, or what
        `bind` returned, instead. Required if `Backend.replay_ignores_captures` is True.
    """

    __slots__ = ("address", "failed", "guard", "capturing")  # noqa: RUF023 (the order is shown)

    def __init__(
        self,
        address: int,
        failed: Callable[[int], object],
        guard: SameStream | SameContext | None = None,
        capturing: int = 0,
    ) -> None:
        self.address: int = address
        self.failed: Callable[[int], object] = failed
        self.guard: SameStream | SameContext | None = guard
        self.capturing: int = capturing


class SetFunction(Record):
    """A function ``int set(void *executable, void *node, void *parameters)`` of the vendor's library.

    It may have a fourth argument, ``void *context``.

    Parameters
    ----------
    address : int
        Called on any thread and without the GIL, while the executable is not launched. Returns 0 on success;
        otherwise it has changed nothing.
    arguments : tuple of int
        The three or four numbers that it is called with. Later runs use what the parameters hold at the call.
    guard : SameContext, optional
        While this is not met, the library calls the `NodeSetter` instead.
    """

    __slots__ = ("address", "arguments", "guard")

    def __init__(self, address: int, arguments: tuple[int, ...], guard: SameContext | None = None) -> None:
        self.address: int = address
        self.arguments: tuple[int, ...] = arguments
        self.guard: SameContext | None = guard


class StatusFunction(Record):
    """A function ``int status(void *stream, int *status)`` of the vendor's library.

    Parameters
    ----------
    address : int
        Called with the handle of a stream, as `handle_int` returns it, on any thread and with the GIL.
        Returns 0 on success. It must not wait for work.
    active : int
        The status of a stream whose `capture_status` is ``"active"``; 0 is that of one with ``"none"``. For
        any other, and after a code that is not 0, the library calls `capture_status` instead.
    alive : int
        Address of a function of the same kind, called first; 0 if there is none. It returns 0 unless
        `address` must not be called, since the stream has been destroyed.
    """

    __slots__ = ("address", "active", "alive")  # noqa: RUF023

    def __init__(self, address: int, active: int, alive: int = 0) -> None:
        self.address: int = address
        self.active: int = active
        self.alive: int = alive


class NativeCalls:
    """What a backend can do faster for one stream than its methods do, which mean the same.

    A subclass overrides what it has. The defaults mean that there is nothing faster.
    """

    __slots__ = ()

    def bind(self, executable: Any) -> Callable[[], None] | None:
        """Return a callable without arguments that does what `replay` does, as fast as it can be.

        Decide here what can be decided before the call. The library keeps executable and stream alive as
        long as it uses the callable, which follows each `update` of the executable and each change of a node.
        """
        return None

    def launch_function(self, executable: Any) -> LaunchFunction | None:
        """Return a function in C that does what `replay` does. The library calls it in place of `bind`'s."""
        return None

    def status_function(self) -> StatusFunction | None:
        """Return a function in C that says whether the stream captures.

        Called in place of `capture_status` for the events of a diagnosed capture, and ahead of some replays.
        """
        return None

    def front(self) -> Hashable | None:
        """Return something that is another one after each node recorded on the stream; None if unknown.

        Asked at every line while `stacks` are kept, which count the nodes if this has changed: by what the
        stream's next node will follow, for example. Disturbs nothing.
        """
        return None

    def upload(self, executable: Any) -> None:
        """Move the executable to the device, in stream order, without running it.

        Called for a stream that is not capturing, when a user binds a graph to it.
        """


if not TYPE_CHECKING:
    __getattr__ = imported_on_use(__name__, HOMES)
