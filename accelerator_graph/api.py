"""`Graph` and `graph`: the state machine and the capture transaction. Every check of order lives here.

A backend sees, for each graph::

    create_stream ... capture_status, capture_begin, (whatever is enqueued), capture_end, node_count,
    instantiate, bind, replay ..., destroy_executable, destroy_graph

or, if anything goes wrong between the two, `capture_abandon` in the place of `capture_end`.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

from ._core import liveness, ownership, pools, streams
from ._core.capture import MODES, Capture, Site
from ._core.extension import calling
from ._core.files import replacing
from ._core.replay import Runner
from ._core.side_streams import side_of
from ._core.states import BEGUN_BEFORE, CAPTURED_BEFORE, REFUSED, State
from ._interpreter.sure_exit import if_skipped, sure_exit
from .backends import registry
from .backends.base import Capability
from .errors import EmptyGraphWarning, GraphStateError, UnsupportedError, capture_error
from .interop import registry as interop

if TYPE_CHECKING:
    from typing import Self

    from ._core.ownership import Owned
    from ._core.streams import Stream
    from .backends.base import Backend

T = TypeVar("T")


class Graph:
    """Work captured from an accelerator's stream, to be replayed as a whole.

    Parameters
    ----------
    keep_graph : bool
        Keep the graph beside its executable: `instantiate` is then yours to call (or left to the
        first replay), and `debug_dump` and `raw_graph` work.
    pool : PoolId or torch.cuda.MemPool, optional
        The memory pool to share, from `graph_pool_handle`, another graph's `pool`, or torch. A ``MemPool``
        is kept alive as long as its memory is in use.
    capture_error_mode : {"default", "global", "thread_local", "relaxed"}
        What the driver refuses during the capture. Only ``"default"`` is portable: each backend says
        what it stands for, on CUDA and HIP ``"thread_local"``.
    stream : stream, optional
        What to capture; by default the current stream. Anything that stands for a stream.
    backend : str, optional
        The backend by name; by default that of the stream.
    check_input_liveness : bool, optional
        Refuse replays once an array is gone that captured work uses: find such arrays in captures, as far
        as their frameworks can see that, and `watch` them. By default as the environment variable
        ``ACCELERATOR_GRAPH_CHECK_INPUT_LIVENESS`` says, else no.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or value.
    BackendError
        The named backend is not known or can't run here.

    Notes
    -----
    ``with graph:`` captures the current stream and returns the graph. A capture either becomes a
    graph or leaves no trace: if the body raises, the capture is abandoned, the graph is empty and
    can be captured again, and the exception passes with a note; if the driver had given the capture
    up by then, `CaptureError` is raised from it.

    A graph may be replayed from several threads; every other method is for one thread at a time.
    What the captured work reads and writes has to live as long as the graph: `retain` helps.

    The interface is that of `torch.accelerator.Graph`.
    """

    __slots__ = (
        "__weakref__",
        "_backend_name",
        "_capture",
        "_captured",
        "_debug",
        "_finds_inputs",
        "_generators",
        "_graph_pool",
        "_guard",
        "_held",
        "_home",
        "_keep_graph",
        "_launch",
        "_lease",
        "_lost",
        "_mode",
        "_num_nodes",
        "_retained",
        "_runner",
        "_state",
        "_stream",
        "_watched",
    )

    def __init__(
        self,
        keep_graph: bool = False,
        *,
        pool: pools.AnyPool | None = None,
        capture_error_mode: str = "default",
        stream: object = None,
        backend: str | None = None,
        check_input_liveness: bool | None = None,
    ) -> None:
        if not isinstance(keep_graph, bool):
            raise TypeError(f"keep_graph: True or False is wanted, not {keep_graph!r}.")
        pools.check_pool(pool)
        self._keep_graph = keep_graph
        self._debug = False
        self._graph_pool = pool
        self._mode = _check_mode(capture_error_mode)
        self._backend_name = None if backend is None else registry.get(backend).name
        self._home = None if stream is None else streams.as_stream(stream, backend)
        self._finds_inputs = liveness.asked_for(check_input_liveness)
        self._watched: liveness.Watchlist | None = None
        self._retained: list[object] | None = None
        self._generators: tuple[object, ...] = ()
        self._empty()
        ownership.tracked.add(self)

    def _empty(self) -> None:
        """Be as before the first capture."""
        self._state: State = "empty"
        self._stream = self._home
        self._held: Stream | None = None
        self._capture: Capture | None = None
        self._guard: object = None
        self._captured: Owned | None = None
        self._lease: pools.Lease | None = None
        self._num_nodes: int | None = None
        self._runner: Runner | None = None
        self._launch: Callable[[], None] | None = None
        self._lost = ""  # why it is empty, if more is to be said than that nothing was captured

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Graph can't be pickled or copied: it belongs to its process; capture another one.")

    def __repr__(self) -> str:
        where = "" if self._stream is None else f", {streams.describe(self._stream)}"
        return f"<accelerator_graph.Graph, {self._state}{where}>"

    def _check(self, what: str) -> None:
        fact = REFUSED[what].get(self._state)
        if fact:
            raise GraphStateError(f"Graph.{what}: {self._lost or fact}.")

    # ---- capture -------------------------------------------------------------------------------

    def capture_begin(self, pool: pools.AnyPool | None = None, capture_error_mode: str | None = None) -> None:
        """Begin to capture the graph's stream, by default the current one.

        The stream is the current one of this thread until the capture ends. `capture_end` or `reset`
        has to be called, by this thread, even if something raises in between: the thread holds the graph
        until then (`current_graph`), and what the driver refuses during a capture stays refused.
        ``with graph:`` does so.

        Parameters
        ----------
        pool, capture_error_mode
            As in the constructor, for this capture.

        Raises
        ------
        TypeError, ValueError
            An argument is of the wrong type or value, or the pool can't be used any more.
        GraphStateError
            The graph is not empty, the stream was closed, or its pool is being captured into.
        CaptureError
            The stream can't be captured now. Nothing of a capture that goes on there is touched.
        UnsupportedError
            The backend does not have the mode.
        DriverError
            The driver could not be asked how the stream is. Nothing has begun.
        BackendUnavailableError
            No stream was named, none is current, and there is no accelerator; with every reason.
        """
        self._begin(None, pool, capture_error_mode)
        assert self._capture is not None
        self._capture.begun_at = _caller()

    def _begin(
        self,
        stream: Stream | None,
        pool: pools.AnyPool | None,
        mode: str | None,
        *,
        prepare: bool = False,
        home: Stream | None = None,
    ) -> None:
        """Begin to capture `stream`; replays will go to `home`, if that is another one.

        What `prepare` waits for is `home`, if that is not being captured.
        """
        self._check("capture_begin()")
        chosen = pools.check_pool(self._graph_pool if pool is None else pool)
        mode = self._mode if mode is None else _check_mode(mode)
        ownership.drain()
        target = stream or self._home or streams.current(self._backend_name)
        if target is None:
            registry.resolve(self._backend_name)
            raise capture_error(
                "a capture did not begin, since no stream is current on this thread", reason="default_stream"
            )
        target._check()
        try:
            capture = self._capture = Capture(target, len(self._retained or ()))
            if self._finds_inputs and self._watched is None:
                self._watched = liveness.Watchlist()
            used = None if self._watched is None else self._watched.begin()
            observed = used if self._finds_inputs else None
            first = (target if home is None or home._is_capturing() else home) if prepare else None
            capture.begin(self, mode, chosen, first, self._generators, observed)
            self._stream = home or target
            self._held = self._stream.held()
            self._state, self._lost = "capturing", ""
        except BaseException:
            self._forget_capture()
            raise

    def capture_end(self) -> None:
        """End the capture, and instantiate the graph unless it is kept.

        Raises
        ------
        GraphStateError
            No capture has begun, or another thread began it. Nothing was touched.
        CaptureError
            The capture did not become a graph. The graph is empty.
        DriverError
            It could not be instantiated. The graph is captured if it is kept, else empty.

        Warns
        -----
        EmptyGraphWarning
            Nothing was captured.
        """
        self._check("capture_end()")
        capture = self._capture_here("capture_end()")
        keep = False
        try:
            captured = self._captured = capture.end(self)
            self._lease = capture.lease
            backend, value, kept = captured.backend, captured.value, self._keep_graph or self._debug
            self._num_nodes = None if kept else backend.node_count(value)
            if backend.is_empty(value) if self._num_nodes is None else not self._num_nodes:
                self._found_empty(capture.subject)
            keep = kept
            if not self._keep_graph:
                self._instantiate()
            if not keep:
                self._captured = None
        except BaseException:
            if keep:
                self._capture, self._guard, self._state = None, None, "captured"
            else:
                self._forget_capture()
            raise
        state: State = "captured" if self._keep_graph else "ready"
        self._capture, self._guard, self._state = None, None, state
        ownership.drain()

    def _found_empty(self, subject: str) -> None:
        """Warn that a capture recorded nothing."""
        warn_of_nothing(
            f"{subject} recorded nothing: the work may have gone to another stream or device; make that "
            "stream the current one, or capture it."
        )

    def _capture_here(self, what: str) -> Capture:
        """Return the capture that is under way, if this thread may touch it."""
        capture = self._capture
        assert capture is not None
        if not capture.is_here() and (what != "reset()" or capture.thread_lives()):
            raise GraphStateError(
                f"Graph.{what}: thread {capture.thread.name!r} began this capture and has to end it, not "
                f"thread {threading.current_thread().name!r}."
            )
        return capture

    def _forget_capture(self) -> None:
        """Leave no trace of a capture that failed; also if interrupted in the middle of that, once."""
        try:
            self._undo_capture()
        except BaseException:
            self._undo_capture()
            raise

    def _undo_capture(self) -> None:
        capture = self._capture
        if capture is not None:
            capture.abandon(self)
            if self._retained:
                del self._retained[capture.retained :]
            if self._watched is not None:
                self._watched.abandon()
        self._let_go("the capture failed; capture again, and bind() again")
        self._empty()

    def __enter__(self) -> Self:
        self._check("capture_begin()")
        self._guard = if_skipped(self, self._recover)
        return self._enter(None, None, None)

    def _enter(
        self,
        stream: Stream | None,
        pool: pools.AnyPool | None,
        mode: str | None,
        *,
        prepare: bool = True,
        home: Stream | None = None,
    ) -> Self:
        try:
            self._begin(stream, pool, mode, prepare=prepare, home=home)
            return self
        except GraphStateError:
            raise
        except BaseException:
            self._recover()
            raise

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._state == "capturing":
                self.capture_end() if exc is None else self._abandon(exc)
            elif exc is None:
                fact = "the capture was ended inside its `with` block; leave that to the block"
                raise GraphStateError(f"{self._lost or fact}.")
        except GraphStateError:
            raise
        except BaseException:
            self._recover()
            raise

    def _recover(self) -> None:
        """Leave no trace of an unfinished capture of this thread."""
        if self._capture is not None and self._capture.is_here():
            self._forget_capture()

    def _abandon(self, exc: BaseException) -> None:
        """Leave no trace because the body raised; raise `CaptureError` if the driver had given up."""
        capture = self._capture_here("__exit__()")
        failure = capture.failure(exc)
        self._forget_capture()
        if failure is not None and isinstance(exc, Exception):
            raise failure from exc
        exc.add_note(f"{capture.subject} was abandoned; the graph is empty and can be captured again.")

    # ---- executable ----------------------------------------------------------------------------

    def instantiate(self) -> None:
        """Make the executable, or make it again if the graph is kept and the backend can.

        Callables from `bind` launch the new one from then on. `replay` and `bind` call this if it
        has not been called.

        Raises
        ------
        GraphStateError
            Nothing was captured, or the graph has its executable and was not kept.
        UnsupportedError
            The backend can't instantiate a graph twice.
        DriverError
            It failed. What was there before still is, unless the graph allows only one executable
            at a time: then it is captured without one.
        """
        self._check("instantiate()")
        if self._captured is None or (self._state == "ready" and not self._keep_graph):
            raise GraphStateError(
                "Graph.instantiate(): the graph has its executable already; with keep_graph=True it could "
                "have another one."
            )
        backend = self._captured.backend
        if self._state == "ready" and Capability.REINSTANTIATE not in backend.capabilities(self._device()):
            raise backend.unsupported(Capability.REINSTANTIATE)
        self._instantiate()

    def _instantiate(self) -> None:
        """Make an executable of what was captured."""
        captured, home = self._captured, self._held
        assert captured is not None
        assert home is not None
        try:
            if self._runner is None:
                self._runner = Runner(captured, home, self._watched.check if self._watched else None)
            else:
                self._runner.instantiate(captured)
            self._launch = self._runner.launch
            self._state = "ready"
        except BaseException:
            if self._runner is not None and self._runner.executable is None and self._capture is None:
                self._launch, self._state = None, "captured"
            raise

    def replay(self, stream: object = None) -> None:
        """Enqueue one run of the graph, behind what is on the stream.

        Parameters
        ----------
        stream : stream, optional
            Where. By default the stream that the graph was made with, or the `Stream` that was current
            when the capture began. If that was the current stream of a framework, whichever stream is
            that framework's current one by now, on this thread and the graph's device.

        Raises
        ------
        GraphStateError
            Nothing was captured.
        CaptureError
            The stream is capturing and the backend can't record a replay. Nothing was touched.
        DriverError
            The launch failed.

        Notes
        -----
        Runs of one graph take effect one after another, whatever streams they are on.
        """
        launch = self._launch
        if stream is None and launch is not None:
            launch()
        else:
            self._replay(stream)

    def _replay(self, stream: object) -> None:
        self._check("replay()")
        target = None if stream is None else self._on_device(stream)
        runner = self._ready()
        if target is None:
            assert runner.launch is not None
            runner.launch()
        else:
            runner.replay(target)

    def bind(self, stream: object = None) -> Callable[[], None]:
        """Return a callable that replays on a stream, with everything decided now: for hot loops.

        Parameters
        ----------
        stream : stream, optional
            Where. By default the stream that `replay` would go to at this moment: what a framework makes
            its current stream later does not change that.

        Returns
        -------
        callable
            Without arguments. It keeps the graph and the stream alive. After `reset` it raises
            `GraphStateError`.

        Raises
        ------
        GraphStateError
            Nothing was captured, or the stream was closed.
        """
        self._check("bind()")
        target = None if stream is None else self._on_device(stream).held()
        runner = self._ready()
        return runner.bind(target or runner.destination(), self)

    def _ready(self) -> Runner:
        """Return what replays the graph; instantiates it first if that has not been done."""
        if self._state == "captured":
            with self._kept_lock():  # several threads may be the first to replay
                if self._state == "captured":
                    self._instantiate()
        assert self._runner is not None
        return self._runner

    def _kept_lock(self) -> AbstractContextManager[object]:
        """Return what is held while an executable is made late, which only a graph that is kept can have."""
        return nullcontext() if self._captured is None else self._captured.lock

    def _on_device(self, obj: object) -> Stream:
        why = "on which the graph was captured; replay it on a stream of that backend"
        stream = streams.as_stream(obj, self.backend, why)
        if self._stream is not None and stream._backend is not self._stream._backend:
            raise ValueError(
                f"{streams.describe(stream)}: that backend was registered anew after this graph was "
                "captured; capture it again."
            )
        if stream.device != self._device():
            raise ValueError(
                f"the graph was captured on device {self.device} and can't be replayed on device "
                f"{stream.device}; capture it there, or take a stream of device {self.device}."
            )
        return stream

    def _device(self) -> int:
        assert self._stream is not None
        return self._stream.device

    def retain(self, obj: T) -> T:
        """Keep an object alive until the graph is reset, and return it."""
        if self._retained is None:
            self._retained = []
        self._retained.append(obj)
        return obj

    def watch(self, obj: T) -> T:
        """Refuse replays once the memory of an array is gone, until the graph is reset; return the array.

        For arrays that only raw kernels use. In any state. Views keep the memory of torch's, CuPy's and
        NumPy's arrays; of other types, the object itself is watched.

        Raises
        ------
        TypeError
            It can't be watched: there are no weak references to it.
        """
        with self._kept_lock():
            if self._watched is None:
                self._watched = liveness.Watchlist()
            self._watched.add(obj)
            if self._runner is not None:
                self._runner.check_with(self._watched.check)
        return obj

    def reset(self) -> None:
        """Make the graph empty: give back the executable, the graph, the pool and what it retains.

        Callables from `bind` raise `GraphStateError` from then on. Runs that are under way complete.
        A capture that is under way is abandoned.

        Raises
        ------
        GraphStateError
            Another thread, which is still alive, is capturing this graph.
        """
        if self._state == "capturing":
            self._capture_here("reset()")
            self._forget_capture()
        self._let_go("the graph was reset; capture again, and bind() again")
        if self._lease is not None:
            self._lease.release()
        self._retained = None
        self._watched = None
        self._empty()
        ownership.drain()

    def _let_go(self, why: str) -> None:
        if self._runner is not None:
            self._runner.refuse(why)

    def _after_fork(self) -> None:
        lost = {"empty": self._lost, "capturing": BEGUN_BEFORE}.get(self._state, CAPTURED_BEFORE)
        self._let_go(CAPTURED_BEFORE)
        self._empty()
        self._lost = lost

    # ---- what there is to know of it ------------------------------------------------------------

    def pool(self) -> pools.PoolId:
        """Return the id of the graph's memory pool, for other graphs to share."""
        self._check("pool()")
        assert self._lease is not None
        return self._lease.shown

    def debug_dump(self, path: str | os.PathLike[str], verbose: bool = True) -> None:
        """Write the graph in the DOT language.

        Parameters
        ----------
        path : path-like
            Where to. An existing file is replaced, once the new one is whole.
        verbose : bool
            With the parameters of the nodes, where the backend knows them.

        Raises
        ------
        GraphStateError
            Nothing was captured, or the graph was not kept.
        OSError
            The file can't be written.
        """
        captured = self._kept("debug_dump()")
        path = os.path.realpath(os.fsdecode(path))
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device is written, not replaced
            captured.backend.dump(captured.value, path, verbose)
            return
        with replacing(path) as unfinished:
            captured.backend.dump(captured.value, unfinished, verbose)

    def raw_graph(self) -> int:
        """Return the vendor's handle of the graph. It stays owned by this object, until `reset`."""
        captured = self._kept("raw_graph()")
        return captured.backend.handle_int(captured.value)

    def raw_executable(self) -> int:
        """Return the vendor's handle of the executable. Valid until `reset` or `instantiate`."""
        self._check("raw_executable()")
        runner = self._runner
        assert runner is not None
        assert runner.executable is not None
        return runner.executable.backend.handle_int(runner.executable.value)

    def raw_cuda_graph(self) -> int:
        """As `raw_graph`, on backends whose graphs are a ``cudaGraph_t`` or ``hipGraph_t``."""
        _check_cuda_like(self._kept("raw_cuda_graph()").backend)
        return self.raw_graph()

    def raw_cuda_graph_exec(self) -> int:
        """As `raw_executable`, on backends where that is a ``cudaGraphExec_t`` or ``hipGraphExec_t``."""
        self._check("raw_cuda_graph_exec()")
        assert self._stream is not None
        _check_cuda_like(self._stream._backend)
        return self.raw_executable()

    def _kept(self, what: str) -> Owned:
        self._check(what)
        if self._captured is None:
            raise GraphStateError(
                f"Graph.{what}: the graph was not kept; make it with keep_graph=True, or call "
                "enable_debug_mode() before the capture."
            )
        return self._captured

    @property
    def state(self) -> State:
        """``"empty"``, ``"capturing"``, ``"captured"`` (no executable yet) or ``"ready"``."""
        return self._state

    @property
    def backend(self) -> str | None:
        """Name of the backend; None until it is known."""
        return self._backend_name if self._stream is None else self._stream.backend

    @property
    def device(self) -> int | None:
        """Ordinal of the device; None until it is known."""
        return None if self._stream is None else self._stream.device

    @property
    def stream(self) -> Stream | None:
        """The stream that is being captured; else the one that replays go to. None until it is known.

        If that was closed after the capture, another hold on it, to wait for replays with.
        """
        if self._capture is not None:
            return self._capture.stream
        if self._held is not None and self._stream is not None and self._stream._closed:
            return self._held.held()
        return self._stream

    @property
    def num_nodes(self) -> int:
        """How many nodes were captured."""
        self._check("num_nodes")
        if self._num_nodes is None and self._captured is not None:
            self._num_nodes = self._captured.backend.node_count(self._captured.value)
        if self._num_nodes is None:
            assert self._stream is not None
            raise self._stream._backend.unsupported(Capability.NODES)
        return self._num_nodes

    # ---- for the next capture ------------------------------------------------------------------

    def enable_debug_mode(self) -> None:
        """Keep the graphs of all captures from the next one on, so that `debug_dump` works."""
        self._check("enable_debug_mode()")
        self._debug = True

    def register_generator_state(self, generator: object) -> None:
        """Have a random generator of torch take part in all captures from the next one on.

        Its numbers go on at every replay, as torch's default generator's do automatically. It has no part in
        captures on backends where its framework has none.

        Raises
        ------
        TypeError
            No framework that has been imported records captures with it: it is not a generator of a device.
        """
        self._check("register_generator_state()")
        if not any(framework.takes_generator(generator) for framework in interop.loaded()):
            raise TypeError(
                "register_generator_state: must be a random generator of a device, such as "
                f"torch.Generator('cuda'), not {generator!r}."
            )
        self._generators += (generator,)

    @property
    def graph_pool(self) -> pools.AnyPool | None:
        """The pool for the next capture."""
        return self._graph_pool

    @graph_pool.setter
    def graph_pool(self, pool: pools.AnyPool | None) -> None:
        self._check("graph_pool")
        pools.check_pool(pool)
        self._graph_pool = pool

    @property
    def capture_error_mode(self) -> str:
        """The capture mode for the next capture."""
        return self._mode

    @capture_error_mode.setter
    def capture_error_mode(self, mode: str) -> None:
        self._check("capture_error_mode")
        self._mode = _check_mode(mode)


# Not a decorator: the slot exists once the class does. A method in C that finds the slot filled calls it at
# once, 30 ns sooner than a Python function could (40 against 10 ns on top of the launch itself).
Graph.replay = calling(vars(Graph)["_launch"])(Graph.replay)  # type: ignore[method-assign]


class graph:
    """Capture into a graph on a side stream, as `torch.cuda.graph` does.

    Parameters
    ----------
    g : Graph
        What to capture into.
    pool, capture_error_mode
        As in `Graph.capture_begin`; None keeps the graph's own.
    stream : stream, optional
        What to capture; by default the graph's own if it was made with one, else a stream of the
        thread's beside the current one, which it waits for.
    prepare : bool
        Synchronise the current stream before the capture, or the one that is captured if it was named.

    Notes
    -----
    ``with graph(g):`` gives the graph. It fails and cleans up like ``with g:``. Where a side stream
    was made, replays go to the stream that was current, if there was one.
    """

    def __init__(
        self,
        g: Graph,
        pool: pools.AnyPool | None = None,
        stream: object = None,
        capture_error_mode: str | None = None,
        *,
        prepare: bool = True,
    ) -> None:
        if not isinstance(g, Graph):
            raise TypeError(f"graph: an accelerator_graph.Graph is wanted, not {g!r}.")
        pools.check_pool(pool)
        if capture_error_mode is not None:
            _check_mode(capture_error_mode)
        self._graph = g
        self._pool = pool
        self._mode = capture_error_mode
        self._prepare = prepare
        self._stream = None if stream is None else streams.as_stream(stream, g._backend_name)

    def __enter__(self) -> Graph:
        g = self._graph
        g._check("capture_begin()")
        g._guard = if_skipped(self, g._recover)
        stream, home = self._stream or g._home, None
        if stream is None:
            home = streams.current(g._backend_name, or_default=True)
            if home is None:
                stream = streams.Stream(backend=registry.resolve(g._backend_name).name)
            else:
                stream = side_of(home)
                if not self._prepare and not home._is_capturing():
                    stream._follow(home)
        return g._enter(stream, self._pool, self._mode, prepare=self._prepare, home=home)

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._graph.__exit__(kind, exc, trace)
        except GraphStateError:
            raise
        except BaseException:
            self._graph._recover()
            raise


def current_graph() -> Graph | None:
    """Return the graph that this thread is capturing, the one begun last; None if there is none.

    The thread holds it until its capture ends. So a capture that was begun by hand, and whose graph is out of
    reach, can still be ended: ``current_graph().reset()`` abandons it.
    """
    capturing = ownership.thread.capturing
    return cast("Graph", capturing[-1]) if capturing else None


def is_graph_available(backend: str | None = None) -> bool:
    """Return True if there is an accelerator that can capture graphs. Initialises nothing.

    Parameters
    ----------
    backend : str, optional
        Ask this backend alone; ``"cpu"``, or a plug-in that has to be named, counts only so.

    Raises
    ------
    UnknownBackendError
        No backend of that name is known.
    """
    return registry.usable(backend)


def _check_cuda_like(backend: Backend) -> None:
    if not backend.cuda_like:
        raise UnsupportedError(
            f"backend {backend.name!r} has no handles like CUDA's; raw_graph() and raw_executable() return "
            "its own, if it has any."
        )


def _check_mode(mode: object) -> str:
    if not isinstance(mode, str):
        raise TypeError(f"capture_error_mode: one of {', '.join(MODES)} is wanted, not {mode!r}.")
    if mode not in MODES:
        raise ValueError(f"capture_error_mode: {mode!r} is none of {', '.join(MODES)}.")
    return mode


def warn_of_nothing(message: str) -> None:
    """Issue an `EmptyGraphWarning` for the caller's line."""
    warnings.warn(message, EmptyGraphWarning, stacklevel=_outside()[0])


def _caller() -> Site:
    """Return the file and the line outside of this package that called it."""
    frame = _outside()[1]
    return frame.f_code.co_filename, frame.f_lineno


def _outside() -> tuple[int, FrameType]:
    """Return the first frame outside of this package, and the `stacklevel` of the caller's warning for it."""
    level, frame = 1, sys._getframe(1)
    package = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    return level, frame
