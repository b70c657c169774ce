"""One `Graph` class that captures the work of an accelerator's stream and replays it, on every vendor.

::

    import accelerator_graph as ag

    with ag.Stream() as s, ag.Graph() as g:
        library.enqueue_work(s)
    g.replay()
    s.synchronize()

Importing the package loads no backend, no vendor's library and no framework.
"""

TYPE_CHECKING: bool = False  # importing typing would take longer than importing all of this package
if TYPE_CHECKING:
    from . import api as api
    from . import backends as backends
    from . import compat as compat
    from . import errors as errors
    from . import interop as interop
    from . import testing as testing
    from ._breaks.marks import eager as eager
    from ._breaks.marks import graph_break as graph_break
    from ._breaks.marks import live as live
    from ._checking.observer import ownership as ownership
    from ._control.flow import Loop as Loop
    from ._control.flow import cond as cond
    from ._control.flow import while_ as while_
    from ._core.current_stream import current_stream as current_stream
    from ._core.current_stream import is_current_stream_capturing as is_current_stream_capturing
    from ._core.current_stream import is_graph_available as is_graph_available
    from ._core.graph import GraphState as GraphState
    from ._core.labels import ModuleLabels as ModuleLabels
    from ._core.labels import label as label
    from ._core.labels import label_modules as label_modules
    from ._core.memory import measure_memory as measure_memory
    from ._core.node_changes import NodeChange as NodeChange
    from ._core.observers import Observer as Observer
    from ._core.observers import note_collective as note_collective
    from ._core.pools import AnyPool as AnyPool
    from ._core.pools import PoolId as PoolId
    from ._core.pools import graph_pool_handle as graph_pool_handle
    from ._core.streams import Event as Event
    from ._core.streams import Stream as Stream
    from ._core.update import GraphUpdate as GraphUpdate
    from ._core.update import Recapture as Recapture
    from ._graphed.decorator import CacheInfo as CacheInfo
    from ._graphed.decorator import Graphed as Graphed
    from ._graphed.decorator import GraphInputs as GraphInputs
    from ._graphed.decorator import graphed as graphed
    from ._graphed.torch.callables import make_graphed_callables as make_graphed_callables
    from .api import Graph as Graph
    from .api import current_graph as current_graph
    from .api import graph as graph
    from .backends.base import CaptureMode as CaptureMode
    from .backends.registry import use_backend as use_backend
    from .diagnosis._tracing import diagnose as diagnose
    from .diagnosis._tracing.stacks import stacks as stacks
    from .diagnosis.ranks import RanksReport as RanksReport
    from .diagnosis.ranks import check_ranks as check_ranks
    from .diagnosis.verification import Verification as Verification
    from .diagnosis.verification import verify as verify
    from .diagnosis.watchdog import watchdog as watchdog
    from .errors import AcceleratorGraphError as AcceleratorGraphError
    from .errors import BackendContractError as BackendContractError
    from .errors import BackendError as BackendError
    from .errors import BackendLoadError as BackendLoadError
    from .errors import BackendUnavailableError as BackendUnavailableError
    from .errors import BreakingCall as BreakingCall
    from .errors import CaptureError as CaptureError
    from .errors import DriverError as DriverError
    from .errors import EmptyGraphWarning as EmptyGraphWarning
    from .errors import EmptyLabelWarning as EmptyLabelWarning
    from .errors import EscapedWorkWarning as EscapedWorkWarning
    from .errors import GraphStateError as GraphStateError
    from .errors import OutOfMemoryError as OutOfMemoryError
    from .errors import RanksDisagreeError as RanksDisagreeError
    from .errors import Reason as Reason
    from .errors import UnknownBackendError as UnknownBackendError
    from .errors import UnsupportedError as UnsupportedError
    from .errors import VerificationError as VerificationError
    from .inspection.contents import Label as Label
    from .inspection.description import GraphDescription as GraphDescription
    from .inspection.difference import diff as diff
    from .inspection.fingerprint import Fingerprint as Fingerprint
    from .inspection.graph import memory_report as memory_report
    from .inspection.memory import GraphMemory as GraphMemory
    from .inspection.memory import MemoryAmount as MemoryAmount
    from .inspection.memory import MemoryReport as MemoryReport
    from .inspection.memory import PoolMemory as PoolMemory
    from .inspection.memory_check import MemoryCheck as MemoryCheck
    from .inspection.memory_check import MemoryFinding as MemoryFinding
    from .inspection.profile import GraphProfile as GraphProfile
    from .inspection.progress import progress as progress
    from .inspection.timings import KernelTime as KernelTime
    from .inspection.timings import LabelTime as LabelTime
    from .inspection.timings import PartTime as PartTime
    from .interop.base import Collective as Collective

__version__ = "0.1.0"

_NAMES = {
    "": "api backends compat errors interop testing",
    "._breaks.marks": "eager graph_break live",
    "._control.flow": "Loop cond while_",
    "._core.labels": "ModuleLabels label label_modules",
    "._core.memory": "measure_memory",
    "._core.observers": "Observer note_collective",
    "._core.pools": "AnyPool PoolId graph_pool_handle",
    "._core.current_stream": "current_stream is_current_stream_capturing is_graph_available",
    "._core.graph": "GraphState",
    "._core.node_changes": "NodeChange",
    "._core.streams": "Event Stream",
    "._core.update": "GraphUpdate Recapture",
    "._graphed.decorator": "CacheInfo GraphInputs Graphed graphed",
    "._graphed.torch.callables": "make_graphed_callables",
    ".api": "Graph current_graph graph",
    ".backends.base": "CaptureMode",
    "._checking.observer": "ownership",
    ".backends.registry": "use_backend",
    ".diagnosis._tracing": "diagnose",
    ".diagnosis._tracing.stacks": "stacks",
    ".diagnosis.ranks": "RanksReport check_ranks",
    ".diagnosis.verification": "Verification verify",
    ".diagnosis.watchdog": "watchdog",
    ".errors": (
        "AcceleratorGraphError BackendContractError BackendError BackendLoadError BackendUnavailableError "
        "BreakingCall CaptureError DriverError EmptyGraphWarning EmptyLabelWarning EscapedWorkWarning "
        "GraphStateError OutOfMemoryError RanksDisagreeError Reason UnknownBackendError UnsupportedError "
        "VerificationError"
    ),
    ".inspection.contents": "Label",
    ".inspection.description": "GraphDescription",
    ".inspection.difference": "diff",
    ".inspection.memory": "GraphMemory MemoryAmount MemoryReport PoolMemory",
    ".inspection.memory_check": "MemoryCheck MemoryFinding",
    ".inspection.graph": "memory_report",
    ".inspection.progress": "progress",
    ".inspection.fingerprint": "Fingerprint",
    ".inspection.profile": "GraphProfile",
    ".inspection.timings": "KernelTime LabelTime PartTime",
    ".interop.base": "Collective",
}
"""The public names by the module that defines them, which is imported on first use."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # type checkers read the imports above, and so find names that do not exist
    __all__ = sorted(_HOMES.keys() - {"api", "testing"})  # `import *` would import the whole kit

    def __getattr__(name: str) -> object:
        from importlib import import_module

        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if not home:
            return import_module(f"{__name__}.{name}")
        value = globals()[name] = getattr(import_module(f"{__name__}{home}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})

    del TYPE_CHECKING  # else completion offers it
