"""The types that backends and the library exchange. Those that no capture needs are imported on first use."""

from __future__ import annotations

from ..._interpreter import imported_on_use

TYPE_CHECKING: bool = False  # as in the package itself
if TYPE_CHECKING:
    from .contents import BackendReport as BackendReport
    from .contents import DeviceMemory as DeviceMemory
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
    f"{__name__}.contents": "BackendReport DeviceMemory GraphContents GraphEdge GraphNode Misfit",
    f"{__name__}.parameters": "Argument Change NodeParameters NodeSetter addresses_in word",
}

if not TYPE_CHECKING:
    __getattr__ = imported_on_use(__name__, HOMES)
