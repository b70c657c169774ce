"""What a backend answers about itself and about captures."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from ..._interpreter.record import Record


class Capability(StrEnum):
    """What a backend may be able to do. If not, its methods raise `unsupported`, as the defaults do."""

    EVENTS = "events"
    """`record_event`, `wait_event` and `query`: streams can be forked and joined."""
    ENQUEUE = "enqueue"
    """`fill`, `copy` and `launch`: work can be enqueued through the library."""
    HANDLES = "handles"
    """`handle_int`, and `as_stream` of an int: streams, graphs and executables have handles that other
    libraries understand."""
    NODES = "nodes"
    """`nodes` and `node_count`: the nodes of a graph and their dependencies can be listed."""
    CHILD_GRAPHS = "child_graphs"
    """`replay` onto a capturing stream is recorded into that capture."""
    UPLOAD = "upload"
    """`upload` moves an executable to the device ahead of its first replay."""
    TIMING = "timing"
    """`record_timed_event`, `query_event`, ...: the host can wait for events, and time what is between."""
    GRAPH_EVENTS = "graph_events"
    """`instantiate_timed`: an executable can record timed events, so that parts of a graph can be timed."""
    CAPTURED_EVENTS = "captured_events"
    """`record_timed_event` on a capturing stream: for parts of graphs that can't be copied."""


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
    """

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id: int = id
