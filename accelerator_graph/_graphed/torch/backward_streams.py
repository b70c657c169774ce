"""On which streams the graphs of torch callables run: on torch's current one, in the order of the calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from ..._core import streams
from ..._core.binding import refuse_capturing
from ..._core.replay import make_room
from ...interop import registry as interop
from ..call_order import Traffic, key_of, lasts

if TYPE_CHECKING:
    from ..._core.streams import Stream
    from ...api import Graph
    from .replay_autograd import Lane


class Lanes:
    """The streams and the order of the callables of one pool.

    Parameters
    ----------
    home : Stream
        The stream that was current when they were captured.
    """

    def __init__(self, home: Stream) -> None:
        self._traffic = Traffic()
        self._home = self._traffic.last = self._traffic.stream(home)
        if not lasts(home):
            self._traffic.mark()
        self._handle = _reader(home)

    def of(self, captured: Graph) -> Lane:
        """Return what gets ready to run a graph on the current stream, and returns what launches it."""
        handle, traffic = self._handle, self._traffic
        known: dict[Hashable, tuple[Stream, Callable[[], None]]] = {}

        def lane() -> Callable[[], None]:
            key = handle()
            found = known.get(key)
            if found is None:
                make_room(known)
                stream = traffic.stream(self._stream(key))
                launch = captured.bind(stream)
                found = known[key] = (stream, launch if lasts(stream) else self._marked(stream, launch))
            stream, launch = found
            if traffic.last is not stream:
                self._move(stream)
            return launch

        return lane

    def _marked(self, stream: Stream, launch: Callable[[], None]) -> Callable[[], None]:
        """Remember the end of every run: the stream may be destroyed before the next one."""

        def launch_and_mark() -> None:
            launch()
            if self._traffic.last is stream and not stream._is_capturing():
                self._traffic.mark()

        return launch_and_mark

    def _move(self, stream: Stream) -> None:
        """Go to another stream, behind the calls so far; a capture can't wait for those."""
        refuse_capturing(stream)
        if not stream._is_capturing():
            self._traffic.move(stream)

    def _stream(self, handle: int | None) -> Stream:
        """Return a stream by its handle: if it is ours, a hold that keeps it alive."""
        home, entered = self._home, streams.innermost()
        if handle is None:
            return home
        if entered is not None and entered._backend is home._backend and key_of(entered) == handle:
            return entered
        return streams.Stream._make(home._backend, home._backend.as_stream(handle), home.device, None)


def _reader(home: Stream) -> Callable[[], int | None]:
    """Return what reads the handle of torch's current stream; it reads None if there is no such thing."""
    from .captured_passes import current_handle

    device = home.device
    if home._backend.cuda_like:
        return current_handle(device)
    for framework in interop.active(home.backend):
        if framework.current_stream(device) is not None:
            ask = framework.current_stream
            return lambda: (ask(device) or (None,))[0]
    return lambda: None
