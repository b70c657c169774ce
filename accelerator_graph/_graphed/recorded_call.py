"""A captured call of a graphed function: how it is captured, and replayed on the contents of other arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from .._arrays.arrays import clear_autocast_caches, on_device, on_host
from .._arrays.placement import only_our_streams, works_on_host, writable
from .._arrays.signatures import Call, Leaves, Reader
from .._core import stream_stack
from .._core.current_stream import side_of
from .._core.pools import PoolId
from .._core.streams import Stream
from ..api import Graph, graph
from .binding import NotFollowing, why_copied
from .call_order import CallOrder, ReplayStream, ReplayStreams
from .options import Mode
from .python_state import PythonState
from .results import RecordedWork, Result, check_unwritten, nothing_recorded
from .static_inputs import StaticInputs, copy_out

if TYPE_CHECKING:
    from .guards import Guarded

Swap = Callable[[Any], Any]
"""Returns what the function gets in the place of a value in its arguments."""


@dataclass(eq=False)
class RecordedCall:
    """A captured graph, with what is needed to replay it for other calls with its signature."""

    graph: Graph
    pool: PoolId
    inputs: StaticInputs
    result: Result
    streams: ReplayStreams
    order: CallOrder
    signature: Hashable
    names: Sequence[str]
    """The arrays in the arguments."""
    mode: Mode
    why: str
    """Why its calls copy more than was asked for."""
    used: int = 0
    """When the graph was replayed last, counted in replays of the function."""
    closed: bool = False
    guarded: Guarded | None = None
    """Sees that calls are alike."""
    guard_tried: bool = False
    """Whether that was made, if it can be."""

    def is_on_device_of(self, stream: Stream) -> bool:
        """Return True if the graph was captured on a stream's device."""
        captured = self._captured_stream()
        return captured._backend is stream._backend and captured.device == stream.device

    def _captured_stream(self) -> Stream:
        assert self.graph.stream is not None
        return self.graph.stream

    def run(self, leaves: Leaves, where: ReplayStream) -> Any:
        """Copy the arrays of a call in, replay, and return the result of the call."""
        stream, inputs, result = where.stream, self.inputs, self.result
        if where.entered:
            return stream_stack.within(stream, self.run, leaves, where._replace(entered=False))
        inputs.copy_in(leaves, stream)
        where.launch()
        back, new = inputs.copies_back(leaves), result.new_arrays()
        if back or result.fills:
            inputs.enqueue(stream, copy_out, back, leaves, result.fills, new)
        if where.marked:
            self.order.mark_end()
        return result.for_call(leaves, new)

    def close(self) -> None:
        """Give back the graph, once the calls so far are done."""
        self.closed = True
        side = side_of(self._captured_stream())  # no other thread captures on this stream
        self.order.wait(side)
        side.synchronize()
        self.graph.reset()


class _NeverEmpty(Graph):
    """A graph whose capture fails if nothing was recorded."""

    __slots__ = ()

    def _found_empty(self, subject: str) -> NoReturn:
        raise nothing_recorded()


def record(
    run: Callable[[Swap], Any],
    call: Call,
    names: list[str],
    stream: Stream,
    pool: PoolId,
    *,
    reader: Reader,
    order: CallOrder,
    copies: bool,
    mode: Mode,
    why: str = "",
    python: PythonState | None = None,
) -> RecordedCall:
    """Capture a call beside the current stream, whose device can read the arrays in its arguments.

    `run` runs the function on other arrays; `names` are those of the arrays, for messages; `copies` says
    whether every call returns new arrays. The `mode` is the best for the arguments; if it is not possible,
    the next one is taken, and `why` says so. For ``"bind"``, `python` has the references that the function
    can reach.
    Raises CaptureError if the function does what can't be captured or repeated, TypeError or ValueError if no
    call can return a copy of the result, or the function writes an argument that can't be written.
    """
    leaves = call.leaves
    host = works_on_host(stream)
    all_seen = only_our_streams(stream)  # no work but what our streams are given can be recorded
    enqueue = on_host if host else on_device
    array_types = [reader.array_types[type(leaf)] for leaf in leaves]
    inputs = StaticInputs(leaves, array_types, stream, order, enqueue, nodes=mode == "node" and not all_seen)
    arguments = inputs.arguments(leaves)
    passed: set[int] = set()

    def capture(captured: Graph, pool: PoolId | None, arguments: Sequence[Any]) -> Any:
        statics = dict(zip(map(id, leaves), arguments, strict=True))

        def swap(value: Any) -> Any:
            passed.add(id(value))
            return statics.get(id(value), value)

        side = side_of(stream)
        side._follow(stream)
        clear_autocast_caches()
        try:
            with graph(captured, pool, side):
                inputs.record_copies(side, leaves)
                return run(swap)
        finally:
            clear_autocast_caches()

    def capture_again(arrays: Sequence[Any]) -> Graph:
        made = Graph(keep_graph=True)
        given = [each.as_argument(*pair) for each, *pair in zip(array_types, arrays, leaves, strict=True)]
        capture(made, None, given)
        return made

    captured = _NeverEmpty() if all_seen else Graph(keep_graph=mode == "bind" or inputs.in_graph)
    contents = inputs.contents() if all_seen and host else []
    versions = inputs.versions()
    value = capture(captured, pool, arguments)
    again = partial(record, run, call, names, stream, pool, reader=reader, order=order, copies=copies)
    try:
        if contents:
            check_unwritten(contents, inputs.contents(), names)
        written = inputs.written(versions, leaves, names)
        work = _recorded_work(captured, inputs, passed) if all_seen else None
        indices = inputs.indices(arguments)
        result = Result(value, indices, reader, on_host=host, copies=copies, work=work)
        back = [i for i in written | (result.returned - inputs.merged.keys()) if writable(leaves[i])]
        if mode == "bind":
            assert python is not None
            after = python.now()
            try:
                roots = [python.function, *result.objects]
                rest = inputs.bind(captured, leaves, result, roots, stream, capture_again)
                why = why_copied([names[i] for i in rest])
                if not after.complete:
                    raise NotFollowing("it can reach more references than are looked at")
            except NotFollowing as error:
                captured.reset()
                python.restore()
                return again(mode="node", why=str(error))
            after.restore()
        elif not inputs.connect(captured):
            captured.reset()
            return again(mode="copy", why=why or "the sources of its copies can't be changed")
        if mode == "node" and not inputs.in_graph:
            mode, why = "copy", why or "no argument is an array that a node could copy"
        copied = inputs.plan_copies(back) + [array_type for _, array_type in result.outputs if copies]
        streams = ReplayStreams(captured, order, stream, copied, host)
        return RecordedCall(captured, pool, inputs, result, streams, order, call.signature, names, mode, why)
    except BaseException:
        captured.reset()
        raise


def _recorded_work(captured: Graph, inputs: StaticInputs, passed: set[int]) -> RecordedWork | None:
    """Return the work of every replay; None if the graph has nodes that our streams were not given."""
    runner = captured._runner
    assert runner is not None
    seen, nodes = runner.retained, runner.counted
    if nodes is not None and nodes > len(seen):
        return None
    return RecordedWork([*seen, inputs.arrays], passed)
