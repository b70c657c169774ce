"""The streams that forward and backward passes are replayed on: torch's current ones, in call order."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ..._core.launching import make_room, refuse_capturing
from ..._core.streams import Stream, innermost
from ...api import Graph
from ...interop import registry as interop
from ..call_order import CallOrder, lives_while_held, stream_key
from .captured_passes import torch_module
from .replay_autograd import Prepare


class PassStreams:
    """The streams and the order of the callables of one pool.

    They were captured while `stream` was current. Replays go there if torch has no current stream.
    """

    def __init__(self, stream: Stream) -> None:
        self._order = CallOrder()
        self._default = self._order.last = self._order.hold(stream)
        if not lives_while_held(stream):
            self._order.mark_end()
        self._current_handle = _reader(stream)

    def preparing(self, captured: Graph) -> Prepare:
        """Return what prepares a launch of a graph on the current stream."""
        current_handle, order = self._current_handle, self._order
        known: dict[Hashable, tuple[Stream, Callable[[], None]]] = {}

        def prepare() -> Callable[[], None]:
            handle = current_handle()
            found = known.get(handle)
            if found is None:
                make_room(known)
                stream = order.hold(self._stream(handle))
                launch = captured.bind(stream)
                if not lives_while_held(stream):
                    launch = self._marking_its_end(stream, launch)
                found = known[handle] = (stream, launch)
            stream, launch = found
            if order.last is not stream:
                refuse_capturing(stream)
                if not stream._is_capturing():  # a capture can't wait for the calls so far
                    order.move_to(stream)
            return launch

        return prepare

    def _marking_its_end(self, stream: Stream, launch: Callable[[], None]) -> Callable[[], None]:
        """Return a launch whose end is marked, for a stream that may be destroyed before the next call."""

        def launch_and_mark() -> None:
            launch()
            if self._order.last is stream and not stream._is_capturing():
                self._order.mark_end()

        return launch_and_mark

    def _stream(self, handle: int | None) -> Stream:
        """Return the stream of a handle: if it is one of ours, a hold that keeps it alive."""
        default, entered = self._default, innermost()
        if handle is None:
            return default
        backend = default._backend
        if entered is not None and entered._backend is backend and stream_key(entered) == handle:
            return entered
        return Stream._make(backend, backend.as_stream(handle), default.device, None)


def current_handle(device: int) -> Callable[[], int]:
    """Return a function that reads torch's current stream handle on a CUDA or ROCm device."""
    torch = torch_module()
    read: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if read is None:
        return lambda: int(torch.cuda.current_stream(device).cuda_stream)
    return lambda: read(device)


def _reader(stream: Stream) -> Callable[[], int | None]:
    """Return a function that reads torch's current stream handle, None where torch has no streams."""
    device = stream.device
    if stream._backend.cuda_like:
        return current_handle(device)
    for framework in interop.active(stream.backend):
        if framework.current_stream(device) is not None:
            ask = framework.current_stream
            return lambda: (ask(device) or (None,))[0]
    return lambda: None
