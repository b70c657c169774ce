"""One `Graph` class that captures the work of an accelerator's stream and replays it, on every vendor.

::

    import accelerator_graph as ag

    with ag.Stream() as s, ag.Graph() as g:
        library.enqueue_work(s)
    g.replay()
    s.synchronize()

Importing the package loads no backend, no vendor's library and no framework.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself is the costliest import there is here
if TYPE_CHECKING:
    from . import backends, compat, errors, interop
    from ._core.current_stream import current_stream, is_current_stream_capturing
    from ._core.pools import PoolId, graph_pool_handle
    from ._core.streams import Event, Stream
    from ._graphed.decorator import CacheInfo, graphed
    from ._graphed.torch.callables import make_graphed_callables
    from .api import Graph, current_graph, graph, is_graph_available
    from .backends.registry import use_backend
    from .errors import (
        AcceleratorGraphError,
        BackendContractError,
        BackendError,
        BackendLoadError,
        BackendUnavailableError,
        CaptureError,
        DriverError,
        EmptyGraphWarning,
        GraphStateError,
        OutOfMemoryError,
        UnknownBackendError,
        UnsupportedError,
    )

__version__ = "0.1.0"

_HOMES = {
    "api": ("Graph", "current_graph", "graph", "is_graph_available"),
    "_graphed.decorator": ("CacheInfo", "graphed"),
    "_graphed.torch.callables": ("make_graphed_callables",),
    "_core.current_stream": ("current_stream", "is_current_stream_capturing"),
    "_core.streams": ("Event", "Stream"),
    "_core.pools": ("PoolId", "graph_pool_handle"),
    "backends.registry": ("use_backend",),
    "errors": (
        "AcceleratorGraphError",
        "BackendContractError",
        "BackendError",
        "BackendLoadError",
        "BackendUnavailableError",
        "CaptureError",
        "DriverError",
        "EmptyGraphWarning",
        "GraphStateError",
        "OutOfMemoryError",
        "UnknownBackendError",
        "UnsupportedError",
    ),
}
_MODULES = ("backends", "compat", "errors", "interop")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AcceleratorGraphError",
    "BackendContractError",
    "BackendError",
    "BackendLoadError",
    "BackendUnavailableError",
    "CacheInfo",
    "CaptureError",
    "DriverError",
    "EmptyGraphWarning",
    "Event",
    "Graph",
    "GraphStateError",
    "OutOfMemoryError",
    "PoolId",
    "Stream",
    "UnknownBackendError",
    "UnsupportedError",
    "backends",
    "compat",
    "current_graph",
    "current_stream",
    "errors",
    "graph",
    "graph_pool_handle",
    "graphed",
    "interop",
    "is_current_stream_capturing",
    "is_graph_available",
    "make_graphed_callables",
    "use_backend",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
