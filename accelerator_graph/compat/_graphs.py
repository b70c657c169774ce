"""Stand-ins for torch's graph classes: torch's arguments, torch's current stream, torch's error messages."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any, ClassVar

from .. import api
from .._core import capture_table, ownership, stream_stack
from .._core.capture import CaptureMode, Where
from .._core.liveness import ownership as ownership_of_arrays
from .._core.pools import AnyPool
from .._core.streams import Borrowed, FrameworkCurrent, Stream
from ..backends import registry
from ..errors import CaptureError, UnsupportedError, capture_error
from ..interop import registry as interop
from ..interop.torch import Torch
from . import _words as words

_PASSED_ON = {
    "get_graph_data",
    "pools",
    "_retain_pool",
    "begin_capture_to_if_node",
    "begin_capture_to_while_node",
    "end_capture_to_conditional_node",
    "set_conditional_handle_for_current_node",
}
"""Attributes that are passed on to torch's own graph, which records and replays."""


def torch_module() -> Any:
    """Return torch, imported if need be; `ImportError` if it is not installed."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            "accelerator_graph.compat stands in for names of torch, which is not installed; install torch, "
            "or use accelerator_graph.Graph.",
            name="torch",
        ) from error


class TorchGraph(api.Graph):
    """Captures torch's current stream, and replays on the stream that is current by then, as torch does."""

    torchs_own: ClassVar[Any] = None
    """The class of torch that this one stands in for; None if torch has none."""

    check_input_liveness = False
    """For the next capture; the environment variable may ask for it as well, or forbid it."""

    @staticmethod
    def _where(
        stream: Stream | None, backend: str | None, *, side: bool = False, prepare: bool = False
    ) -> Where:
        """Capture torch's current stream, and have replays follow it."""
        place, stream, here = Where(), stream or _current(), _surroundings()
        place.stream, device = stream, stream._device
        place.frameworks, place.prepares, place.waits_for = here.taking_part, prepare, None
        if prepare and not capture_table.live:
            _prepare(device)
        elif prepare:
            place.waits_for = stream
        handle, _ = here.torch.current_stream(device)
        home = here.current(handle, device) if handle else here.defaults.get(device)
        if home is None:
            home = here.defaults[device] = here.current(0, device)
        place.hold, place.home = home, home.held()
        return place

    def _begin(self, *how: Any) -> None:
        before = self._observers
        if self.check_input_liveness:
            self._observers = (*before, ownership_of_arrays())
        try:
            super()._begin(*how)
        except BaseException as error:
            self._recover()
            if isinstance(error, CaptureError) and error.reason == "default_stream":
                error.args = (words.ahead(words.DEFAULT_STREAM, str(error)),)
            raise
        finally:
            self._observers = before

    def _abandon(self, exc: BaseException, *then: str) -> None:
        """Leave no trace because the body raised. torch's refusals pass unchanged, as in torch."""
        try:
            super()._abandon(exc, *then)
        except CaptureError as error:
            if error.code_name or error.reason != "illegal_call":
                raise

    def _worded(self, what: str, message: str) -> str:
        return words.worded(what, message, self.state, keeps=self._keeps == "graph", hip=_for_hip())

    def _torch_graph(self) -> Any:
        """Return torch's own graph, which records and replays."""
        return self._recorder.torch_graph


class CUDAGraph(TorchGraph):
    """Stands in for `torch.cuda.CUDAGraph`; see `accelerator_graph.Graph` for what its methods do.

    Parameters
    ----------
    keep_graph : bool
        As in `accelerator_graph.Graph`.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        super().__init__(keep_graph)

    def capture_begin(  # type: ignore[override]
        self,
        pool: AnyPool | None = None,
        capture_error_mode: CaptureMode = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Begin to capture torch's current stream.

        Parameters
        ----------
        pool : PoolId or torch.cuda.MemPool, optional
            As in `Graph.capture_begin`.
        capture_error_mode : {"global", "thread_local", "relaxed", "default"}
            What the driver refuses during the capture.
        check_input_liveness : bool
            Raise at a replay if an array that the captured work uses is gone, as
            `Graph(observe=ownership())` does.

        Raises
        ------
        TypeError, ValueError, GraphStateError, CaptureError, DriverError
            As in `Graph.capture_begin`.
        """
        self.check_input_liveness = check_input_liveness
        super().capture_begin(pool, capture_error_mode)

    def debug_dump(self, debug_path: Any, *, verbose: bool = True) -> None:  # type: ignore[override]
        """Write the graph in the DOT language, as `Graph.debug_dump` does."""
        super().debug_dump(debug_path, verbose)

    @staticmethod
    def get_currently_capturing_graph() -> Any:
        """Return torch's own graph that is recording its current stream."""
        ask = getattr(CUDAGraph.torchs_own, "get_currently_capturing_graph", None)
        if ask is None:
            raise UnsupportedError("this torch can't say which graph is being captured; newer ones can.")
        return ask()

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self.torchs_own, name) or (name[0] == "_" and name not in _PASSED_ON):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name in _PASSED_ON:
            return getattr(self._torch_graph(), name)
        raise UnsupportedError(
            f"torch.cuda.CUDAGraph.{name} is not supported while accelerator_graph.compat stands in for it; "
            "use torch's own class for this graph, accelerator_graph.compat.CUDAGraph.torchs_own."
        )


class Graph(TorchGraph):
    """Stands in for `torch.accelerator.Graph`, which torch itself does not have for CUDA and ROCm.

    On other accelerators this makes torch's own object.

    Parameters
    ----------
    keep_graph, pool, capture_error_mode
        As in `accelerator_graph.Graph`.
    """

    def __new__(
        cls,
        keep_graph: bool = False,
        *,
        pool: AnyPool | None = None,
        capture_error_mode: CaptureMode = "default",
    ) -> Any:
        accelerator = torch_module().accelerator.current_accelerator()
        if accelerator is not None and accelerator.type != "cuda" and cls.torchs_own is not None:
            return cls.torchs_own(keep_graph, pool=pool, capture_error_mode=capture_error_mode)
        return super().__new__(cls)

    def __init__(
        self,
        keep_graph: bool = False,
        *,
        pool: AnyPool | None = None,
        capture_error_mode: CaptureMode = "default",
    ) -> None:
        super().__init__(keep_graph, pool=pool, capture_error_mode=capture_error_mode)


def _for_hip() -> bool:
    return bool(torch_module().version.hip)


def _current() -> Stream:
    """Return torch's current stream, kept alive by torch's object for it."""
    own = torch_module().cuda.current_stream()
    if not own.cuda_stream:
        error = capture_error("a capture of torch's current stream did not begin", reason="default_stream")
        error.args = (words.ahead(words.DEFAULT_STREAM, str(error)),)
        raise error
    return stream_of(own)


class _Surroundings:
    """torch, its backend, and the frameworks that take part in captures there, as they were found last.

    Parameters
    ----------
    frameworks : list
        Those that have initialised a backend, torch among them, and that backend's name.
    """

    __slots__ = ("backend", "defaults", "forks", "frameworks", "taking_part", "torch")

    def __init__(self, frameworks: list[tuple[Any, str]]) -> None:
        self.frameworks = frameworks
        self.forks = ownership.forks
        self.torch, name = next((each, name) for each, name in frameworks if isinstance(each, Torch))
        self.backend = registry.get(name)
        self.taking_part = stream_stack.taking_part(self.backend)
        self.defaults: dict[int, Stream] = {}
        """By device: torch's default stream, which nobody closes."""

    def current(self, handle: int, device: int) -> Stream:
        """Return torch's current stream of a device, for a graph whose replays follow it."""
        native = self.backend.as_stream(handle)
        return Stream._make(self.backend, native, device, FrameworkCurrent(self.torch))


_latest: _Surroundings | None = None


def _surroundings() -> _Surroundings:
    """Return the present ones. torch has been asked for a stream, so it has initialised the device."""
    global _latest
    known, frameworks = _latest, interop.initialised()
    if known is None or known.frameworks != frameworks or known.forks != ownership.forks:
        known = _latest = _Surroundings(frameworks)
    return known


def stream_of(own: Any) -> Stream:
    """Return the stream that a ``torch.cuda.Stream`` stands for, and keep that object alive."""
    here = _surroundings()
    native = here.backend.as_stream(here.torch.as_stream(own))
    return Stream._make(here.backend, native, own.device_index, Borrowed(own))


def _prepare(device: int) -> None:
    """Do what `torch.cuda.graph` does before a capture, except to release cached memory."""
    torch = sys.modules["torch"]
    native = torch._C
    if hasattr(native, "_cuda_synchronize") and native._cuda_getDevice() == device:
        native._cuda_synchronize()
    else:
        torch.cuda.synchronize(device)
    if torch.compiler.config.force_cudagraph_gc:
        gc.collect()
