"""`Graph` and `graph`. Each public method checks the graph's state; the work is done in `_core`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from types import FunctionType, TracebackType
from typing import Generic, Self, TypeVar, Unpack, cast

from . import _core, inspection
from ._core import capture_table, observers, ownership, pools
from ._core.capture import CaptureMode, Collectives, check_mode, part_of
from ._core.extension import calling
from ._core.graph import HAS_EXECUTABLE, BaseGraph
from ._core.replay import Changing
from ._core.streams import Stream, as_stream
from ._interpreter import boolean, caller, setting, variable
from ._interpreter.interruptions import if_skipped, sure_exit
from .errors import AcceleratorGraphError, GraphStateError
from .interop import base as frameworks
from .interop import registry as interop

T = TypeVar("T")
NodeT = TypeVar("NodeT", bound=int | tuple[int, ...])
_DESCRIBED = (".json", ".html", ".svg", ".png", ".pdf")  # files that the library writes itself


class Graph(BaseGraph):
    """Work captured from an accelerator's stream, to be replayed as a whole.

    Parameters
    ----------
    keep_graph : bool
        Keep the graph beside its executable: you then call `instantiate` (or leave it to the first replay),
        and `describe`, `debug_dump` and `raw_graph` work.
    pool : PoolId or torch.cuda.MemPool, optional
        The memory pool to share, from `graph_pool_handle`, another graph's `pool`, or torch. A ``MemPool``
        is kept alive as long as its memory is in use.
    capture_error_mode : {"default", "global", "thread_local", "relaxed"}
        What the driver refuses during the capture. Only ``"default"`` is portable; on CUDA and HIP it
        means ``"thread_local"``.
    stream : stream, optional
        The stream to capture; by default the current one. Anything that stands for a stream.
    backend : str, optional
        The backend by name; by default that of the stream.
    observe : Observer or iterable of Observer
        What takes part in the captures: `ownership`, `diagnose`, `progress`, `stacks`, or an `Observer`.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or value.
    BackendError
        The named backend is not known or can't run here.

    Notes
    -----
    ``with graph:`` captures the current stream and returns the graph. A capture either becomes a graph or
    leaves no trace. If the body raises, the capture is abandoned, the graph is empty and can be captured
    again, and the exception passes with a note; if the driver has already invalidated the capture,
    `CaptureError` is raised from it.

    A graph may be replayed from several threads; every other method is for one thread at a time.
    The memory that the captured work reads and writes has to live as long as the graph: `retain` helps.

    The interface is that of `torch.accelerator.Graph`.
    """

    __slots__ = ()

    # ---- capture -------------------------------------------------------------------------------

    def capture_begin(
        self, pool: pools.AnyPool | None = None, capture_error_mode: CaptureMode | None = None
    ) -> None:
        """Begin to capture the graph's stream, by default the current one.

        The stream is the current one of this thread until the capture ends. This thread has to call
        `capture_end` or `reset`, even if something raises in between: until then the thread holds the graph
        (`current_graph`), and the driver refuses what a capture forbids. ``with graph:`` does so.

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
        CaptureError, DriverError
            The stream can't be captured now. A capture that is in progress there is not touched.
        UnsupportedError
            The backend does not have the mode.
        BackendUnavailableError
            No stream was named, none is current, and there is no accelerator.
        """
        if self._capture is not None or self._runner is not None:
            self._check("capture_begin()")
        number = self._graph_pool if pool is None else pools.check_pool(pool)
        mode = self._mode if capture_error_mode is None else check_mode(capture_error_mode)
        self._begin(self._where(self._given_stream, self._backend_name), number, mode)
        assert self._capture is not None
        self._capture.begun_at = caller()

    def __enter__(self) -> Self:  # here, since jedi does not know the type of self in a base class
        """Begin to capture the graph's stream, by default the current one, and return the graph."""
        if self._capture is not None or self._runner is not None:
            self._check("capture_begin()")
        guard = if_skipped(self, self._recover)
        place = self._where(self._given_stream, self._backend_name, prepare=True)
        self._begin(place, self._graph_pool, self._mode, guard)
        return self

    def _observers_of_environment(self) -> tuple[observers.Observer, ...]:
        wanted: list[observers.Observer | None] = []
        if setting(observers.DIAGNOSE, "1", "0") == "1":
            from .diagnosis._tracing import diagnose

            wanted.append(diagnose())
        every = observers.check_every(variable(observers.CHECK))
        if every is not None:
            from ._checking.observer import ownership as owned

            wanted.append(owned(every))
        given = {type(each) for each in self._observers}
        return tuple(each for each in wanted if each is not None and type(each) not in given)

    # ---- executable ----------------------------------------------------------------------------

    def instantiate(self) -> None:
        """Make the executable, or make it again if the graph is kept.

        Callables from `bind` launch the new one from then on. `replay` and `bind` call this if it
        has not been called.

        Raises
        ------
        GraphStateError
            Nothing was captured, or the graph has its executable and was not kept.
        DriverError
            The executable could not be made. The former one is still there, unless the graph allows only one
            executable at a time: then the graph is captured and has none.
        """
        runner = self._runner_for("instantiate()")
        if runner.executable is not None and self._keeps != "graph":
            raise self._refusal("instantiate()", HAS_EXECUTABLE)
        with Changing(runner, "instantiate()"):
            try:
                runner.instantiate()
            finally:
                if runner.executable is None:
                    self._launch = None
            self._make_ready(runner)
        ownership.drain()

    @calling(vars(BaseGraph)["_launch"])
    def replay(self, stream: object = None, *, live: Mapping[str, object] | None = None) -> None:
        """Enqueue one run of the graph, behind all work on the stream.

        Parameters
        ----------
        stream : stream, optional
            The stream to replay on. By default the one that the graph was made with, or the `Stream` that was
            current when the capture began. If that was the current stream of a framework, the replay goes to
            the stream that is the framework's current one now, on this thread and the graph's device.

        Raises
        ------
        GraphStateError
            Nothing was captured, the stream was closed, or an observer refuses the replay, as `ownership`
            does once an array is gone. Nothing was launched.
        TypeError, ValueError
            `stream` is not a stream, or is not of the graph's backend and device.
        CaptureError
            The stream is capturing and the run can't be recorded, or a former executable has run on a
            stream that is being captured now, so that no other stream can wait for it. Nothing was touched.
        DriverError
            The launch failed.

        Notes
        -----
        Runs of one graph take effect one after another, whatever streams they are on, after `update`,
        `recapture` and `instantiate` as well.

        A replay onto a stream that is being captured is recorded in that capture: a graph inside a graph, as
        this one is now. It stays as it is, and works, whatever becomes of this graph. On CUDA and HIP this
        graph must be kept, and must not allocate or free memory, have conditional nodes, draw torch's random
        numbers, or share a framework's pool with the capture.
        """
        launch = self._launch
        if stream is None and live is None and launch is not None:
            launch()
        else:
            self._replay(stream, live)

    def _replay(self, stream: object, live: Mapping[str, object] | None) -> None:
        """Replay where a stream was named, and the first time."""
        runner = self._runner
        if stream is not None and runner is not None and runner.replay_again(stream):
            return
        runner = self._runner_for("replay()")
        target = None if stream is None else runner.stream_for(stream)
        if live is not None:
            runner.replay_with(live, target)
            return
        self._make_ready(runner)
        if target is not None:
            runner.replay(stream, target)
        elif self._launch is not None:
            self._launch()

    def add(self, graph: Graph) -> None:
        """Record one run of another graph in the capture of this one, behind all work of the captured stream.

        As ``graph.replay(stream)`` onto the captured stream, and raises what that raises, or
        `GraphStateError` if this graph is not being captured.
        """
        capture = self._capture
        if not isinstance(graph, BaseGraph):
            raise TypeError(f"Graph.add(): the argument must be an accelerator_graph.Graph, not {graph!r}.")
        if capture is None:
            raise GraphStateError(
                "Graph.add(): this graph is not being captured; use `with graph:`, or "
                "current_graph().add() in a recapture."
            )
        graph.replay(capture.stream)

    def bind(self, stream: object = None) -> Callable[[], None]:
        """Return a callable that replays on a stream, with everything decided now: for hot loops.

        The callable takes no arguments, and keeps the graph and the stream alive. After `reset` it raises
        `GraphStateError`.

        Parameters
        ----------
        stream : stream, optional
            The stream to replay on. By default the one that `replay` would go to at this moment; a framework
            that later makes another stream current does not change that.

        Raises
        ------
        GraphStateError, TypeError, ValueError
            As in `replay`.
        DriverError
            The graph had no executable, and none could be made.
        """
        runner = self._runner_for("bind()")
        target = None if stream is None else runner.stream_for(stream).held()
        self._make_ready(runner)
        return runner.bind(target or runner.destination(), self)

    def watch(self, obj: T) -> T:
        """Refuse replays once the memory of an array is gone, as `ownership` does; return the array.

        For arrays that only raw kernels use; allowed in any state. During a capture, the array is watched as
        long as the graph does that work, otherwise until the graph is reset. For torch, CuPy and NumPy arrays
        the memory is watched, which views keep alive; for other types, the object itself. Raises TypeError if
        that can't be referenced weakly.
        """
        from ._checking.observer import Watched, Watchlist

        runner = self._runner
        if self._capture is not None:
            part_of(self._capture.observations, Watchlist).add(obj)
            return obj
        watched = next((each for each in self._observers if isinstance(each, Watched)), None)
        if watched is None:
            watched = Watched()
            self._observers += (watched,)
        with nullcontext() if runner is None else runner.lock:
            if runner is not None and watched not in runner.observations:
                runner.observe(watched, *runner.observations)
            watched.add(obj)
        return obj

    def reset(self) -> None:
        """Make the graph empty: release the executable, the graph, the pool and all retained objects.

        Callables from `bind` raise `GraphStateError` from then on. Runs that are under way complete.
        A capture that is under way is abandoned. Raises `GraphStateError` if another thread began it and is
        still alive.
        """
        if self._capture is not None:
            self._capture_here("reset()")
            self._forget_capture()
        runner = self._runner
        if runner is not None and runner.changing is not None and not runner.ended:
            runner.refuse_in_a_change("reset()")
        del runner  # it would be kept beyond `drain`
        try:
            self._release()
        except BaseException:  # an interrupt
            self._release()
            raise
        ownership.drain()

    # ---- other work ----------------------------------------------------------------------------

    def update(self, other: Graph) -> _core.GraphUpdate:
        """Do the work of another graph, a kept one, from now on; callables from `bind` go on.

        If both graphs are kept and alike, the executable is changed in place; otherwise it is replaced. This
        graph then describes the other's work, and keeps its pool and retained objects alive. Runs that are
        under way complete; objects that only the former work needed are let go, as by `reset`. Waits for
        launches of other threads, which block while the device's queue is full.

        Raises
        ------
        GraphStateError
            Nothing was captured, here or there, or the other graph was not kept.
        TypeError, ValueError
            The argument is not another graph of the same backend and device.
        UnsupportedError
            Only one graph at a time can have an executable of that work; see `recapture`.
        DriverError
            No executable could be made. The graph does what it did before; or it has no executable any more,
            which the error says.
        """
        with _Importing("update()"):
            from ._core.update import update

        return update(self, other)

    def recapture(self, pool: pools.AnyPool | None = None) -> _core.Recapture:
        """Return a context manager that captures again, and then updates this graph with the new work.

        It captures the graph's stream, or a side stream if that was captured before, into the graph's pool or
        the given one. Until the block has ended well, and if the body raises, the graph does its former work;
        `current_graph` is another graph meanwhile. Raises as `update` does.
        """
        with _Importing("recapture()"):
            from ._core.update import Recapture

        return Recapture(self, self._like(pool))

    def clone(self) -> Graph:
        """Return another graph, kept and without an executable, that does the same work.

        Raises `GraphStateError` if nothing was captured or the graph was not kept, and `UnsupportedError` as
        `update` does.
        """
        with _Importing("clone()"):
            from ._core.update import clone

        self._kept("clone()")
        clone(self, copy := self._like(None))
        return copy

    def set_node(self, node: int | tuple[int, ...], **change: Unpack[_core.NodeChange]) -> None:
        """Change a node of the executable, for the runs to come, without capturing again.

        The attributes `settable` and `changed` of ``describe().nodes[node]`` list what can be changed and
        what was. Runs that are already enqueued do their former work. `instantiate` makes an executable
        without these changes. Keep memory that you pass alive until the runs that use it have ended.

        Parameters
        ----------
        node : int or tuple of int
            The node's number in `describe`. Inside a child graph, the numbers of that and of the node in it:
            ``(2, 0)`` is the first node inside node 2. Other runs of the graph that was recorded there stay.
        **change
            See `NodeChange`. Arguments of kernels are ctypes or NumPy scalars, ints, or arrays of the device.

        Raises
        ------
        GraphStateError
            Nothing was captured, the graph was not kept, or there is no executable.
        TypeError, ValueError
            The node has no such parameter, or the value does not fit it. Nothing has changed.
        UnsupportedError
            The backend can't change nodes.
        DriverError
            The driver refused. Nothing has changed, unless the error says that there is no executable now.
        """
        with _Importing("set_node()"):
            from ._core.node_changes import set_nodes

        set_nodes(self, "set_node()", {node: change})

    def set_nodes(self, changes: Mapping[NodeT, _core.NodeChange]) -> None:
        """Change several nodes as `set_node` does: all of them, or none. No run sees only some changes."""
        with _Importing("set_nodes()"):
            from ._core.node_changes import set_nodes

        set_nodes(self, "set_nodes()", changes)

    def _like(self, pool: pools.AnyPool | None) -> Graph:
        """Return an empty graph with the same options, which keeps graphs."""
        fresh = Graph(keep_graph=True, pool=pool, **self._options())
        fresh._generators = self._generators
        fresh._given_stream = fresh._home = self._given_stream
        return fresh

    # ---- facts ---------------------------------------------------------------------------------

    def pool(self) -> pools.PoolId:
        """Return the id of the graph's memory pool, for other graphs to share.

        Raises `GraphStateError` if nothing was captured.
        """
        return self._runner_for("pool()").lease.shown

    def describe(self) -> inspection.GraphDescription:
        """Return what is in the graph: its nodes with their parameters, their dependencies and labels.

        Raises
        ------
        GraphStateError
            Nothing was captured, or the graph was not kept (``Graph(keep_graph=True)``).
        UnsupportedError
            The backend can't list nodes.
        """
        from .inspection.graph import describe

        return describe(self)

    def memory(self) -> inspection.GraphMemory:
        """Return how much memory the graph takes: its executable, its definition, and its pool.

        An amount that can't be known is None, with the reason. An executable is measured when it is made,
        inside `measure_memory`. See `memory_report` for all graphs together.

        Raises
        ------
        GraphStateError
            Nothing was captured.
        """
        self._check("memory()")
        from .inspection.graph import graph_memory

        return graph_memory(self)

    def check(self) -> inspection.MemoryCheck:
        """Return whether the graph still owns what it reads and writes, without running it.

        Looks up the addresses in the executable, as it is now, in what the allocators of the frameworks and
        the driver say, and in what `ownership` and `watch` know. An address that is not surely a pointer is
        never called wrong. Memory that is reached through pointers in memory is not looked at. The guide
        about memory has the table of verdicts.

        Returns
        -------
        MemoryCheck
            ``str()`` is a text for a terminal; `MemoryCheck.wrong` has what is wrong.

        Raises
        ------
        GraphStateError
            Nothing was captured, or the graph was kept neither by ``Graph(keep_graph=True)`` nor by
            ``Graph(observe=ownership())``.
        UnsupportedError
            The backend can't list nodes.
        """
        from ._checking.check import check

        return check(self)

    def fingerprint(self) -> inspection.Fingerprint:
        """Return a short form of `describe` that is the same for equal graphs of all processes and runs.

        It is made of the nodes' kinds, functions and sizes and of their dependencies, without addresses.
        Raises as `describe` does.
        """
        from .inspection.fingerprint import Fingerprint

        return Fingerprint.of(self.describe())

    @property
    def collectives(self) -> tuple[frameworks.Collective, ...]:
        """The collectives of the captured work, in order, as far as they were seen or noted.

        The library sees those that go through torch.distributed; `note_collective` notes all others. Those of
        a graph that is replayed into the capture are not among them.
        """
        runner = self._runner
        observations = () if runner is None else runner.observations
        return tuple(
            collective for each in observations if isinstance(each, Collectives) for collective in each.found
        )

    def _repr_html_(self) -> str | None:
        """Return a small drawing for notebooks; None where `describe` can't list the nodes."""
        try:
            return self.describe()._repr_html_()
        except AcceleratorGraphError:
            return None

    def profile(
        self,
        replays: int = 20,
        state: Iterable[object] | None = None,
        *,
        kernels: bool = False,
        live: Mapping[str, object] | None = None,
    ) -> inspection.GraphProfile:
        """Run the graph's work to find out how long it takes, and how long each label in it.

        Replays the graph three times to warm up, and then as often as `replays` says. If the graph is kept
        and has labels, these replays alternate with those of a copy that has events at the borders of the
        labels. A graph that allocates or frees memory or has conditional nodes can't be copied: it is timed
        as a whole. A graph with breaks is timed by its segments and eager calls instead. The work is really
        done, so outputs and whatever else it writes change. Goes where `replay` would go, and waits until it
        is done.

        Parameters
        ----------
        replays : int
            How many replays are timed.
        state : iterable of arrays, optional
            Arrays, as in `Stream.copy`, that the work changes and that shall have their present contents
            afterwards. They are copied to the host before, and back at the end, even if a replay fails.
        kernels : bool
            Also time single kernels: run a copy of a kept graph under CUDA's profiler, which the package
            ``cupti-python`` contains.
        live : mapping, optional
            The live objects of a graph with breaks, as in `replay`.

        Returns
        -------
        GraphProfile
            The times in microseconds; ``str()`` is a table. If there are no times by label, its notes give
            the reason.

        Raises
        ------
        GraphStateError
            Nothing was captured, or the stream is being captured.
        TypeError, ValueError
            An argument is of the wrong type or value. Nothing has run.
        UnsupportedError
            The backend has no events with timing, or `kernels` is True and the profiler can't be used, or the
            graph has breaks.
        DriverError
            The work failed.
        """
        from .inspection.graph import profile

        return profile(self, replays, state, kernels, live)

    def debug_dump(
        self,
        path: str | os.PathLike[str],
        verbose: bool = True,
        *,
        profile: inspection.GraphProfile | None = None,
    ) -> None:
        """Write the graph to a file, whose suffix says what it is.

        ``.json`` is the graph's description, which `GraphDescription.from_json` reads. ``.html`` is a page on
        which the graph can be looked at in a browser, without a network. ``.svg``, ``.png`` and ``.pdf`` are
        drawn by Graphviz. Every other file is in the DOT language, written by the vendor where the backend
        can have that.

        Parameters
        ----------
        path : path-like
            The file to write. An existing file is replaced once the new one is whole.
        verbose : bool
            Have the vendor write the parameters of the nodes, too.
        profile : GraphProfile, optional
            What `profile` has returned: the page is coloured by time.

        Raises
        ------
        GraphStateError
            Nothing was captured, or the graph was not kept.
        ValueError
            The profile is of other labels, or the file is not a page; or the graph has too many nodes for
            Graphviz.
        OSError
            The file can't be written, or Graphviz is not installed.
        """
        from .inspection.files import write_description, write_file

        captured = self._kept("debug_dump()")
        in_segments = self._runner_for("debug_dump()").in_segments
        suffix = os.path.splitext(os.fsdecode(path))[1].lower()

        def write(name: str) -> None:
            described = suffix in _DESCRIBED or profile is not None or in_segments
            if described or not captured.backend.dump(captured.native, name, verbose):
                write_description(self.describe(), suffix, name, profile)

        write_file(path, write)

    def raw_graph(self) -> int:
        """Return the vendor's handle of the graph, which this object owns until `reset`.

        Raises `GraphStateError` if nothing was captured or the graph was not kept, and `UnsupportedError` if
        the backend has no handles.
        """
        captured = self._kept("raw_graph()")
        return captured.backend.handle_int(captured.native)

    def raw_executable(self) -> int:
        """Return the vendor's handle of the executable. This object owns it, until `reset` or `instantiate`.

        Raises `GraphStateError` if there is no executable, and `UnsupportedError` if the backend has no
        handles.
        """
        executable = self._runner_for("raw_executable()").launchable()
        return executable.backend.handle_int(executable.native)

    def raw_cuda_graph(self) -> int:
        """Return the same as `raw_graph` if it is a ``cudaGraph_t`` or ``hipGraph_t``.

        Raises `UnsupportedError` if it is not.
        """
        self._kept("raw_cuda_graph()")
        self._runner_for("raw_cuda_graph()").check_cuda_like()
        return self.raw_graph()

    def raw_cuda_graph_exec(self) -> int:
        """Return the same as `raw_executable` if it is a ``cudaGraphExec_t`` or ``hipGraphExec_t``.

        Raises `UnsupportedError` if it is not.
        """
        self._runner_for("raw_cuda_graph_exec()").check_cuda_like()
        return self.raw_executable()

    @property
    def backend(self) -> str | None:
        """Name of the backend; None until it is known."""
        return self._backend_name if self._home is None else self._home.backend

    @property
    def device(self) -> int | None:
        """Ordinal of the device; None until it is known."""
        return None if self._home is None else self._home.device

    @property
    def stream(self) -> Stream | None:
        """The stream that is being captured, or else the stream that replays go to. None until it is known.

        If that stream was closed after the capture, another hold on it, to wait for replays with.
        """
        if self._capture is not None:
            return self._capture.stream
        if self._runner is not None and self._home is not None and self._home._closed:
            return self._runner.home.held()
        return self._home

    @property
    def num_nodes(self) -> int:
        """How many nodes were captured. Those inside other nodes are not counted.

        A graph in segments has the nodes of all segments, also of those in its loops and branches. What is
        between segments is no such node, though `describe` lists it as one.

        Raises `GraphStateError` if nothing was captured, and `UnsupportedError` if the backend can't count.
        """
        return self._runner_for("num_nodes").num_nodes()

    # ---- for the next capture ------------------------------------------------------------------

    def enable_debug_mode(self) -> None:
        """Keep the graphs of all captures from the next one on, so that `debug_dump` works."""
        self._check("enable_debug_mode()")
        if self._keeps == "executable":
            self._keeps = "debug"

    def register_generator_state(self, generator: object) -> None:
        """Let a torch random generator take part in all captures from the next one on.

        Every replay then draws new numbers from it, as from torch's default generator. Raises TypeError if
        it is not a random generator of a device, or its framework has not been imported.
        """
        self._check("register_generator_state()")
        if not any(framework.takes_generator(generator) for framework in interop.loaded()):
            raise TypeError(
                "register_generator_state: the argument must be a random generator of a device, such as "
                f"torch.Generator('cuda'), not {generator!r}."
            )
        self._generators += (generator,)

    @property
    def graph_pool(self) -> pools.AnyPool | None:
        """The pool for the next capture."""
        return getattr(self._graph_pool, "owner", self._graph_pool)

    @graph_pool.setter
    def graph_pool(self, pool: pools.AnyPool | None) -> None:
        self._check("graph_pool")
        self._graph_pool = pools.check_pool(pool)

    @property
    def capture_error_mode(self) -> CaptureMode:
        """The capture mode for the next capture."""
        return self._mode

    @capture_error_mode.setter
    def capture_error_mode(self, mode: CaptureMode) -> None:
        self._check("capture_error_mode")
        self._mode = check_mode(mode)


for _function in vars(BaseGraph).values():
    if isinstance(_function, FunctionType):  # Python's messages about wrong arguments name the public class
        _function.__qualname__ = f"Graph.{_function.__name__}"


class _Importing:
    """Encloses the import of what changes graphs: a signal handler may come in the middle of that import."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(exc, ImportError) and "partially initialized" in str(exc):
            raise GraphStateError(
                f"Graph.{self._what}: this thread is in the middle of importing what that needs; call it "
                "afterwards, not in a signal handler or a finaliser."
            ) from exc


G = TypeVar("G", bound=BaseGraph)


class graph(Generic[G]):
    """Capture into a graph on a side stream, as `torch.cuda.graph` does.

    Parameters
    ----------
    g : Graph
        The graph to capture into.
    pool, capture_error_mode
        As in `Graph.capture_begin`; None keeps the graph's own.
    stream : stream, optional
        The stream to capture; by default the one that the graph was made with, or else a side stream of
        the thread, which waits for the current one.
    prepare : bool
        Synchronise the current stream before the capture, or the captured one if it was named.
    breaks : bool or iterable
        Break the capture at every call of a function that is marked with `eager`, and at every
        `graph_break`: a replay calls the function between two segments. Functions, methods as in
        ``Class.method``, and modules of torch that are named here are marked meanwhile, and so are operators
        of torch: all overloads as in ``"aten::nonzero"``, or one as in ``"aten::add.Tensor"``.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or value.
    GraphStateError, CaptureError, DriverError, UnsupportedError, BackendUnavailableError
        At the beginning of the block, as in `Graph.capture_begin`; at its end, as in `Graph.capture_end`.

    Notes
    -----
    ``with graph(g):`` returns the graph. It fails and cleans up like ``with g:``. If a side stream was made,
    replays go to the stream that was current, if there was one.

    With ``breaks=True`` the block is one real run: each segment runs as soon as it is recorded, so that
    what follows sees true values, and the first replay is the second run.
    """

    def __init__(
        self,
        g: G,
        pool: pools.AnyPool | None = None,
        stream: object = None,
        capture_error_mode: CaptureMode | None = None,
        *,
        prepare: bool = True,
        breaks: bool | Iterable[object] = False,
    ) -> None:
        if not isinstance(g, BaseGraph):
            raise TypeError(f"graph: the argument must be an accelerator_graph.Graph, not {g!r}.")
        # (0, 0) is a new pool, None the graph's
        self._pool = () if pool is None else (pools.check_pool(pool),)
        self._mode = None if capture_error_mode is None else check_mode(capture_error_mode)
        self._graph = g
        self._stream = None if stream is None else as_stream(stream, g._backend_name)
        self._prepare = prepare is True or boolean(prepare, "graph: prepare")
        self._breaks: tuple[object, ...] | None = None
        if breaks is not False:
            from ._breaks.marks import checked_breaks

            self._breaks = checked_breaks(breaks)

    def __repr__(self) -> str:
        return f"graph({self._graph!r})"

    def __enter__(self) -> G:
        g = self._graph
        if g._capture is not None or g._runner is not None:
            g._check("capture_begin()")
        guard = if_skipped(self, g._recover)
        place = g._where(self._stream or g._given_stream, g._backend_name, side=True, prepare=self._prepare)
        pool, mode = self._pool[0] if self._pool else g._graph_pool, self._mode or g._mode
        if self._breaks is None:
            g._begin(place, pool, mode, guard)
        else:
            from ._breaks.recording import Recording

            Recording(g, place, pool, mode, self._breaks, guard).begin()
        return g

    @sure_exit
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._graph._exit(kind, exc, trace)


def current_graph() -> Graph | None:
    """Return the graph that this thread is capturing, the one begun last; None if there is none.

    The thread holds the graph until its capture ends. So you can still abandon a capture that was begun by
    hand and whose graph is out of reach: ``current_graph().reset()``.
    """
    capturing = capture_table.thread.graphs
    return cast("Graph", next(reversed([*capturing.values()]), None))
