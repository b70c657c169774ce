"""The types that backends and the library exchange. Those that no capture needs are imported on first use."""

from __future__ import annotations

from ..._interpreter import imported_on_use

TYPE_CHECKING: bool = False  # as in the package itself
if TYPE_CHECKING:
    from .answers import LaunchFunction as LaunchFunction
    from .answers import NativeCalls as NativeCalls
    from .answers import SameContext as SameContext
    from .answers import SameStream as SameStream
    from .answers import SetFunction as SetFunction
    from .answers import StatusFunction as StatusFunction
    from .contents import BackendReport as BackendReport
    from .contents import DeviceMemory as DeviceMemory
    from .contents import Frame as Frame
    from .contents import GraphContents as GraphContents
    from .contents import GraphEdge as GraphEdge
    from .contents import GraphNode as GraphNode
    from .contents import Misfit as Misfit
    from .parameters import Argument as Argument
    from .parameters import Change as Change
    from .parameters import NodeParameters as NodeParameters
    from .parameters import NodeSetter as NodeSetter
    from .parameters import addresses_in as addresses_in
    from .parameters import word as word

HOMES = {
    f"{__name__}.answers": "LaunchFunction NativeCalls SameContext SameStream SetFunction StatusFunction",
    f"{__name__}.contents": "BackendReport DeviceMemory Frame GraphContents GraphEdge GraphNode Misfit",
    f"{__name__}.parameters": "Argument Change NodeParameters NodeSetter addresses_in word",
    "accelerator_graph.backends.mixins": "ChangesGraphs Enqueues Events ExternalEvents HasHandles Lends "
    "MarksProgress ProfilesGraphs ReadsGraphs RecordsReplays TimesEvents TimesGraphs UpdatesGraphs",
}

if not TYPE_CHECKING:
    __getattr__ = imported_on_use(__name__, HOMES)
