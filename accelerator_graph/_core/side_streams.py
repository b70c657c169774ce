"""Streams to capture on beside the current one, and `accelerator_graph.graph`, which does that.

A thread has one for each device, and keeps it. Frameworks reuse memory on one stream only, so graphs of one
pool share memory only if they were captured on the same stream.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from .._interpreter.outside import boolean
from .._interpreter.sure_exit import if_skipped, sure_exit
from ..backends import registry
from ..interop import registry as interop
from . import capture_table, ownership, pools, stream_stack
from .capture import CaptureMode, CapturePlan, check_mode
from .current_stream import current
from .graph import BaseGraph
from .streams import FrameworkCurrent, Stream, as_stream

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend

G = TypeVar("G", bound=BaseGraph)


class Default:
    """A framework's default stream, which was the current one, and everything that it was found by.

    Nobody destroys such a stream, and nobody replaces a built-in backend.

    Attributes
    ----------
    stream : Stream
        A hold that nobody closes.
    taking_part : sequence
        The frameworks that take part in captures of the stream's backend.
    """

    __slots__ = ("answers", "chosen", "forks", "frameworks", "stream", "taking_part")

    def __init__(self, stream: Stream, chosen: str | None) -> None:
        self.stream = stream
        self.chosen = chosen
        self.frameworks = interop.initialised()
        self.answers = [interop.current_stream(framework) for framework, _ in self.frameworks]
        self.forks = ownership.forks
        self.taking_part = stream_stack.taking_part(stream._backend)

    def is_current(self, chosen: str | None) -> bool:
        """Return True if looking for the current stream would find the same one."""
        if stream_stack.thread.entries or chosen != self.chosen or ownership.forks != self.forks:
            return False
        frameworks = interop.initialised()
        if frameworks != self.frameworks:
            return False
        try:
            return [framework.current_stream() for framework, _ in frameworks] == self.answers
        except Exception:  # the next search for the stream leaves the framework out
            return False


class _Thread(threading.local):
    def __init__(self) -> None:
        self.streams: dict[tuple[Backend, int], tuple[int | None, Stream]] = {}
        self.default: Default | None = None
        self.branches: dict[tuple[Hashable, ...], list[Stream]] = {}


_thread = _Thread()


def side_of(stream: Stream) -> Stream:
    """Return a hold on this thread's side stream, or a new stream if that one is capturing."""
    backend, key = stream._backend, (stream._backend, stream._device)
    context = backend.context_id(stream._native)
    known, side = _thread.streams.get(key, (None, None))
    if side is None or side._closed or side._forks != ownership.forks or known != context:
        side = Stream(backend=backend.name, like=stream)
        _thread.streams[key] = (context, side)
    elif capture_table.live and side._is_capturing():  # nobody else knows this stream
        return Stream(backend=backend.name, like=stream)
    return side.held()


def take_branches(stream: Stream, count: int) -> list[Stream]:
    """Return streams for branches of a capture of this one; `give_back` them once that has ended well."""
    free = _branches(stream)
    taken: list[Stream] = []
    while len(taken) < count:
        try:
            taken.append(free.pop())
        except IndexError:
            taken.append(Stream(backend=stream.backend, like=stream))
    return taken


def give_back(streams: list[Stream]) -> None:
    """Let this thread's next captures have these branches."""
    while streams:
        each = streams.pop()
        _branches(each).append(each)


def _branches(stream: Stream) -> list[Stream]:
    backend = stream._backend
    key = backend, stream._device, backend.context_id(stream._native), ownership.forks
    return _thread.branches.setdefault(key, [])


def beside_current(backend: str | None, *, wait: bool) -> tuple[Stream, Stream | None, Default | None]:
    """Return a stream to capture on and the current stream, which it waits for on request.

    Without a current stream: a new stream on the named backend or the automatically chosen one, and None.
    The third is not None if the current stream is known to be a framework's default stream.
    """
    chosen = backend or registry.chosen()
    known = _thread.default
    if known is not None and known.is_current(chosen):
        home = known.stream.held()
    else:
        found = current(backend, or_default=True)
        if found is None:
            return Stream(backend=registry.resolve(backend).name), None, None
        home, known = found, None
        if (
            isinstance(home._owner, FrameworkCurrent)
            and home.backend in registry.BUILTINS
            and not home.handle
        ):
            _thread.default = Default(home.held(), chosen)
    side = side_of(home)
    if wait and not home._is_capturing():
        side._follow(home)
    return side, home, known


class graph(Generic[G]):
    """Capture into a graph on a side stream, as `torch.cuda.graph` does.

    Parameters
    ----------
    g : Graph
        The graph to capture into.
    pool, capture_error_mode
        As in `Graph.capture_begin`; None keeps the graph's own.
    stream : stream, optional
        The stream to capture; by default the graph's own if it was made with one, else a side stream of
        the thread, which waits for the current one.
    prepare : bool
        Synchronise the current stream before the capture, or the captured one if it was named.

    Notes
    -----
    ``with graph(g):`` returns the graph. It fails and cleans up like ``with g:``. If a side stream was made,
    replays go to the stream that was current, if there was one.
    """

    def __init__(
        self,
        g: G,
        pool: pools.AnyPool | None = None,
        stream: object = None,
        capture_error_mode: CaptureMode | None = None,
        *,
        prepare: bool = True,
    ) -> None:
        if not isinstance(g, BaseGraph):
            raise TypeError(f"graph: the argument must be an accelerator_graph.Graph, not {g!r}.")
        if pool is not None:
            pools.check_pool(pool)
        if capture_error_mode is not None:
            check_mode(capture_error_mode)
        self._graph = g
        stream = None if stream is None else as_stream(stream, g._backend_name)
        self._stream = stream
        self._pool = pool
        self._mode = capture_error_mode
        self._prepare = prepare is True or boolean(prepare, "graph: prepare")

    def __enter__(self) -> G:
        g = self._graph
        if g._capture is not None or g._runner is not None:
            g._check("capture_begin()")
        g._guard = if_skipped(self, g._recover)
        plan = CapturePlan()
        plan.stream, plan.pool, plan.mode, plan.prepare = self._stream, self._pool, self._mode, self._prepare
        if plan.stream is None and g._given_stream is None:
            plan.stream, plan.home, known = beside_current(g._backend_name, wait=not self._prepare)
            if known is not None:
                plan.default, plan.frameworks = known.stream, known.taking_part
        g._enter(plan)
        return g

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._graph._exit(kind, exc, trace)
