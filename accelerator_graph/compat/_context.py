"""The context manager that captures on a side stream."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, ClassVar

from .. import api
from .._core.capture import CaptureMode
from .._core.streams import Stream
from .._interpreter.interruptions import sure_exit
from ..errors import UnsupportedError
from ._graphs import CUDAGraph, TorchGraph, stream_of, torch_module

_side_streams: dict[int, tuple[Any, Stream]] = {}
"""One for each device, kept for good, as torch's object and as ours: torch reuses the memory of a pool on one
stream only."""


class graph(api.graph[TorchGraph]):
    """Stands in for `torch.cuda.graph`; fails and cleans up as `accelerator_graph.graph` does.

    Parameters
    ----------
    cuda_graph : CUDAGraph
        The graph to capture into. A graph of torch's own class, made before the names were replaced, is
        captured by torch's own context manager.
    pool : PoolId or torch.cuda.MemPool, optional
        As in `Graph.capture_begin`.
    stream : stream, optional
        The stream to capture; by default a side stream of the current device, always the same.
    capture_error_mode : {"global", "thread_local", "relaxed", "default"}
        What the driver refuses during the capture.
    enable_annotations : bool
        Not supported.
    annotation_config : dict, optional
        Ignored, since there are no annotations.
    check_input_liveness : bool
        As in `CUDAGraph.capture_begin`.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or value.
    UnsupportedError
        Annotations were asked for.
    """

    torchs_own: ClassVar[Any] = None
    """The class of torch that this one stands in for."""

    default_capture_stream: ClassVar[Any] = None
    """The stream to capture in place of the side stream, if it is set."""

    def __init__(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: CaptureMode = "global",
        enable_annotations: bool = False,
        annotation_config: dict[str, Any] | None = None,
        check_input_liveness: bool = False,
    ) -> None:
        self.cuda_graph = cuda_graph
        self._theirs: Any = None
        if not isinstance(cuda_graph, TorchGraph):
            if not isinstance(cuda_graph, CUDAGraph.torchs_own):
                raise TypeError(
                    f"torch.cuda.graph: cuda_graph must be a torch.cuda.CUDAGraph, not {cuda_graph!r}; "
                    "accelerator_graph.graph captures into an accelerator_graph.Graph."
                )
            newer = {
                "enable_annotations": enable_annotations,
                "annotation_config": annotation_config,
                "check_input_liveness": check_input_liveness,
            }
            given = {name: value for name, value in newer.items() if value}
            self._theirs = self.torchs_own(cuda_graph, pool, stream, capture_error_mode, **given)
            return
        if enable_annotations:
            raise UnsupportedError(
                "enable_annotations: kernels are not annotated while accelerator_graph.compat stands in for "
                "torch.cuda.graph; capture this graph with torch's own classes, `torchs_own` of these."
            )
        known = stream or self.default_capture_stream
        self.capture_stream: Any = known
        if known is None:
            self.capture_stream, side = _side_stream()
            known = side.held()
        elif isinstance(known, torch_module().cuda.Stream):
            known = stream_of(known)
        self._liveness = check_input_liveness
        super().__init__(cuda_graph, pool, known, capture_error_mode)

    def __enter__(self) -> None:  # type: ignore[override]
        if self._theirs is not None:
            self._theirs.__enter__()
            return
        self.cuda_graph.check_input_liveness = self._liveness
        super().__enter__()

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._theirs is not None:
            self._theirs.__exit__(kind, exc, trace)
        else:
            self._graph._exit(kind, exc, trace)


def _side_stream() -> tuple[Any, Stream]:
    torch = sys.modules["torch"]
    ask = getattr(torch._C, "_cuda_getDevice", None)  # in C, where torch has it
    device = torch.cuda.current_device() if ask is None else ask()
    found = _side_streams.get(device)
    if found is None:
        own = torch.cuda.Stream()
        found = _side_streams[device] = own, stream_of(own)
    return found
