"""Everything under `Graph`: captures, replays, streams, pools, and who destroys what."""

from __future__ import annotations

from .._interpreter import imported_on_use

TYPE_CHECKING: bool = False  # as in the package itself
if TYPE_CHECKING:
    from .node_changes import NodeChange as NodeChange
    from .update import GraphUpdate as GraphUpdate
    from .update import Recapture as Recapture
else:  # methods of `Graph` and `Stream` take and return these; no capture needs them
    __getattr__ = imported_on_use(
        __name__,
        {
            f"{__name__}.node_changes": "NodeChange",
            f"{__name__}.update": "GraphUpdate Recapture",
        },
    )
