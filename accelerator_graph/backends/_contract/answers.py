"""What a backend answers about itself and about captures."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


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


class Availability(NamedTuple):
    """What `Backend.probe` found out without initialising anything."""

    usable: bool
    reason: str = ""
    """Why it is not usable and how to fix that: a clause that follows "backend 'x' is not available: "."""
    versions: Mapping[str, str] = MappingProxyType({})
    """Versions by component, for example ``{"driver": "13.0"}``."""
    devices: int | None = None
    """The number of devices; None if that can't be known without initialising."""
    warning: str = ""
    """A known defect of the installed versions and how to fix it, in sentences. The backend is usable."""


class CaptureInfo(NamedTuple):
    """What a backend knows about a capture in progress."""

    id: int
    """A number shared by all streams of one capture, and by no other capture in progress."""
