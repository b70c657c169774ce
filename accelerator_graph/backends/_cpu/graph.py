"""The cpu backend's streams, captures and graphs, by the rules of a CUDA driver, and how an executable runs.

A branch of a graph is what one stream has recorded. A run gives each branch a thread, as the streams had,
so callables of different branches may wait for each other.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from .. import recording
from ..base import CaptureMode, CaptureStatus, Misfit, NodeParameters, NodeSetter, word
from ..memory import Memory, memory_of
from ..recording import Capture, Recorded, Runs
from .work import Call, Failure, caller, failure_of, run_calls
from .worker import Latch, Worker, here, start

# ---- streams, events and captures ----------------------------------------------------------------


class Stream(recording.Stream):
    """A stream. Its thread ends after `Worker.stop`."""

    __slots__ = ("worker",)

    def __init__(self) -> None:
        super().__init__()
        self.worker: Worker = Worker()

    def mark(self) -> Latch:
        """Return a latch at the present end of the work."""
        return self.worker.mark()

    def follow(self, mark: Latch) -> None:
        """Let later work wait for a latch."""
        self.worker.follow(mark)

    def synchronize(self) -> None:
        """Wait for the work. Raises what `CpuBackend` says."""
        self.worker.synchronize()

    def query(self) -> bool:
        """Return True if all work is done."""
        return self.worker.query()


MODES: tuple[CaptureMode, ...] = ("thread_local", "global", "relaxed")


class _Thread(threading.local):
    def __init__(self) -> None:
        self.relaxed: Any = threading.RLock()


class CpuCaptures(recording.Captures):
    """All captures in progress, and what is permitted meanwhile. What is refused breaks them."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        super().__init__("cpu")
        self._thread = _Thread()

    def refused(self, *captures: Capture | None) -> None:
        """Break the captures."""
        for capture in captures:
            if capture is not None:
                capture.status = CaptureStatus.INVALIDATED

    def check_end(self, capture: Capture) -> None:
        """Raise an error for a thread that has not begun the capture, unless its mode is relaxed."""
        if capture.mode != "relaxed" and capture.thread is not threading.current_thread():
            raise self.error("capture_end", "CAPTURE_WRONG_THREAD", "wrong_thread")

    def relaxed(self) -> AbstractContextManager[Any]:
        """Return a context in which captures of other streams don't forbid this thread to wait.

        It is a lock that only this thread ever takes: no signal is handled inside of its methods.
        """
        lock: AbstractContextManager[Any] = self._thread.relaxed
        return lock

    def check_waiting(self, waited: Stream | recording.Event, call: str) -> None:
        """Raise an error if a capture forbids waiting for a stream or event. The capture is broken then."""
        if not self._open:
            return
        with self._lock:
            own, thread = self.of(waited), threading.current_thread()
            others = () if self._thread.relaxed._is_owned() else self._open
            broken = [own] if own else [each for each in others if _forbids_waiting(each, thread)]
            self.refused(*broken)
        if broken:
            raise self.error(call, "CAPTURE_UNSUPPORTED", "illegal_call")


def _forbids_waiting(capture: Capture, thread: threading.Thread) -> bool:
    """Return True if a thread must not wait even for streams that don't take part in a capture."""
    if capture.status is CaptureStatus.NONE:
        return False
    return capture.mode == "global" or (capture.mode == "thread_local" and capture.thread is thread)


# ---- graphs and executables ----------------------------------------------------------------------


class Node(NamedTuple):
    """What one call has recorded."""

    kind: str
    name: str
    call: Call
    after: tuple[int, ...]
    """The nodes that it depends on. All of them were recorded earlier."""
    branch: int
    """The number of the stream that recorded it."""


class Graph:
    """What a capture has recorded, in the order of recording."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes: Sequence[Node] = nodes


def graph_of(recorded: Iterable[Recorded]) -> Graph:
    """Return the graph of recorded work: kinds, names and calls."""
    nodes = []
    for (kind, name, call), after, branch in recorded:
        nodes.append(Node(kind, name, call, after, branch))
    return Graph(nodes)


class Executable:
    """A graph that can run. It does not need the `Graph` any more."""

    __slots__ = ("_plan", "_runs")

    def __init__(self, graph: Graph) -> None:
        self._plan = _Plan(graph.nodes)
        self._runs = Runs()

    @property
    def nodes(self) -> Sequence[Node]:
        """What it runs."""
        return self._plan.nodes

    def enqueue(self, worker: Worker) -> None:
        """Run once more on `worker`, after the previous run."""
        self._runs.enqueue(QueuedRun(self._plan, worker))

    def node(self, path: Sequence[int]) -> Node | None:
        """Return a node by the numbers of those around it and its own; None if there is none."""
        return self._plan.node(*path)

    def change(self, path: Sequence[int], changed: Callable[[Call], Call]) -> None:
        """Make later runs call what a function returns for the call of a node."""
        self._plan = self._plan.with_change(changed, *path)

    def update(self, nodes: Sequence[Node]) -> Misfit | None:
        """Make later runs do the work of other nodes of the same kinds and order; else say what differs."""
        former = self._plan.nodes
        if len(former) != len(nodes):
            return Misfit(f"the graphs have {len(former)} and {len(nodes)} nodes")
        for number, (old, new) in enumerate(zip(former, nodes, strict=True)):
            if old.kind != new.kind:
                return Misfit(f"{old.kind!r} has become {new.kind!r}", number)
            if (old.after, old.branch) != (new.after, new.branch):
                return Misfit("it depends on other nodes, or is on another stream", number)
        self._plan = _Plan(nodes)
        return None

    def as_call(self) -> Call:
        """Return the call that another graph records to run this one. It outlives the executable."""
        return self._plan.run, (), {}, caller()

    def destroy(self) -> None:
        """Forget what to run. Runs that were enqueued still have it."""
        self._plan = _NOTHING


def body_of(call: Call) -> Sequence[Node]:
    """Return the nodes that a call from `Executable.as_call` runs."""
    return _plan_of(call).nodes


def _plan_of(call: Call) -> _Plan:
    plan: _Plan = call[0].__self__  # type: ignore[attr-defined]
    return plan


class QueuedRun(recording.Run):
    """One run, as a piece of the work of a stream."""

    __slots__ = ("_plan", "_previous", "done")

    def __init__(self, plan: _Plan, worker: Worker) -> None:
        super().__init__(worker.submission(self))
        self._plan = plan
        self._previous: Latch | None = None
        self.done: Latch = Latch(worker)

    def follow(self, previous: QueuedRun | None) -> None:
        """Wait for the run before."""
        self._previous = None if previous is None else previous.done

    def __call__(self) -> None:
        """Make all calls, once the run before is over."""
        if self._previous is not None:
            self._previous.wait()
        try:
            self._plan.run()
        finally:
            self._plan, self._previous = _NOTHING, None
            self.done.set()


class _Plan:
    """What an executable runs."""

    __slots__ = ("_branches", "calls", "nodes")

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.calls = [node.call for node in nodes]
        branches: dict[int, list[int]] = {}
        for index, node in enumerate(nodes):
            branches.setdefault(node.branch, []).append(index)
        self._branches = list(branches.values())

    def node(self, number: int, *inside: int) -> Node | None:
        """Return a node, perhaps one inside another."""
        found = self.nodes[number] if number < len(self.nodes) else None
        if found is None or not inside:
            return found
        return _plan_of(found.call).node(*inside) if found.kind == "graph" else None

    def with_change(self, changed: Callable[[Call], Call], number: int, *inside: int) -> _Plan:
        """Return a plan in which a node, perhaps one inside another, calls something else."""
        nodes = list(self.nodes)
        call = nodes[number].call
        new = (_plan_of(call).with_change(changed, *inside).run, *call[1:]) if inside else changed(call)
        nodes[number] = nodes[number]._replace(call=new)
        return _Plan(nodes)

    def run(self) -> None:
        """Make all calls; raise the first failure, and skip the calls that have not begun by then."""
        if len(self._branches) < 2:
            run_calls(self.calls)
        else:
            _Run(self.nodes).run(self._branches)


_NOTHING = _Plan(())


class _Run:
    """One run of a graph with several branches."""

    __slots__ = ("_done", "_failure", "_lock", "_nodes", "_worker")

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._worker = here.worker
        self._lock = threading.Lock()  # guards the failure
        self._failure: Failure | None = None
        self._done = [threading.Lock() for _ in nodes]
        for lock in self._done:
            lock.acquire()  # released when the node is done

    def run(self, branches: Sequence[Sequence[int]]) -> None:
        """Run the first branch on this thread, and each other branch on a thread of its own.

        Branches that get no thread run on this one, in the order of recording.
        """
        own = [*branches[0]]
        threads = []
        for branch in branches[1:]:
            thread = threading.Thread(
                target=self._run_nodes, args=(branch,), name="accelerator_graph cpu branch", daemon=True
            )
            if _started(thread):
                threads.append(thread)
            else:
                own += branch
        self._run_nodes(sorted(own))
        for thread in threads:
            thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # its traceback leads to this frame, which would be a cycle

    def _run_nodes(self, indices: Iterable[int]) -> None:
        here.worker = self._worker
        for index in indices:
            node = self._nodes[index]
            try:
                for earlier in node.after:
                    with self._done[earlier]:
                        pass
                if self._failure is None:
                    function, args, how, _ = node.call
                    function(*args, **how)
            except BaseException as error:
                self._failed(failure_of(error, node.call))
            finally:
                self._done[index].release()

    def _failed(self, failure: Failure) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = failure
            else:
                self._failure.add(failure)


def _started(thread: threading.Thread) -> bool:
    try:
        return start(thread)
    except RuntimeError:  # the system has no more threads
        return False


# ---- fills and copies, whose parameters can be read, and changed in an executable ---------------


def fill(memory: Memory, value: int) -> None:
    """Set bytes of memory."""
    ctypes.memset(memory.address, value, memory.nbytes)


def copy(target: Memory, source: Memory) -> None:
    """Copy memory to memory of the same size."""
    ctypes.memmove(target.address, source.address, source.nbytes)


def parameters(node: Node) -> NodeParameters:
    """Return the parameters of a fill, a copy or a graph; those of other callables are not known."""
    match node.kind, node.call[1]:
        case "memset", (memory, value):
            return NodeParameters(node.kind, (word(memory.address), bytes((value,))), memory.nbytes)
        case "memcpy", (target, source):
            return NodeParameters(node.kind, (word(target.address), word(source.address)), source.nbytes)
        case "graph", _:
            return NodeParameters(node.kind, inside=tuple(map(parameters, body_of(node.call))))
    return NodeParameters(node.kind, None)


def node_setter(executable: Executable, path: Sequence[int]) -> NodeSetter | None:
    """Return what changes a fill or a copy of an executable; None for other nodes."""
    node = executable.node(path)
    function = None if node is None else _FUNCTIONS.get(node.kind)
    if node is None or function is None:
        return None
    contents = parameters(node).blocks or ()
    buffers = [ctypes.create_string_buffer(each, len(each)) for each in contents]

    def apply() -> None:
        numbers = [int.from_bytes(buffer.raw, "little") for buffer in buffers]
        executable.change(path, lambda call: (call[0], tuple(map(_like, call[1], numbers)), *call[2:]))

    def enable(wanted: bool) -> None:
        executable.change(path, lambda call: (function if wanted else _nothing, *call[1:]))

    blocks = [(ctypes.addressof(each), len(each)) for each in buffers]
    return NodeSetter(node.kind, blocks, apply, enable, nbytes=node.call[1][0].nbytes)


def _like(old: Memory | int, number: int) -> Memory | int:
    """Return a number in the place of another: as memory of the same size, if that is memory."""
    if isinstance(old, Memory):
        return memory_of(number, old.nbytes, writable=False, device=False)
    return number


def _nothing(*args: object) -> None:
    """Stand for a call that is disabled."""


_FUNCTIONS: dict[str, Callable[..., None]] = {"memset": fill, "memcpy": copy}
