"""The capture of a call of a graphed function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from .._core.side_streams import side_of
from ..api import Graph, graph
from .array_placement import only_our_streams, works_on_host, writable
from .arrays import clear_autocast_caches, copy_on_device, copy_on_host
from .call_order import CallOrder
from .recorded_call import RecordedCall
from .recorded_work import RecordedWork, check_unwritten, nothing_recorded
from .replay_streams import ReplayStreams
from .results import Result
from .signature import Call, Reader
from .static_inputs import StaticInputs

if TYPE_CHECKING:
    from .._core.pools import PoolId
    from .._core.streams import Stream

Swap = Callable[[Any], Any]
"""Returns what the function gets in the place of a value in its arguments."""


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
) -> RecordedCall:
    """Capture a call beside the current stream, whose device can read the arrays in its arguments.

    `run` runs the function on other arrays; `names` are those of the arrays, for messages; `copies` says
    whether every call returns new arrays.
    Raises CaptureError if the function does what can't be captured or repeated, TypeError or ValueError if no
    call can return a copy of the result, or the function writes an argument that can't be written.
    """
    leaves = call.leaves
    on_host = works_on_host(stream)
    all_seen = only_our_streams(stream)  # no work but what our streams are given can be recorded
    copy = copy_on_host if on_host else copy_on_device
    array_types = [reader.array_types[type(leaf)] for leaf in leaves]
    inputs = StaticInputs(leaves, array_types, stream, order, copy)
    arguments = inputs.arguments(leaves)
    statics = dict(zip(map(id, leaves), arguments, strict=True))
    passed: set[int] = set()

    def swap(value: Any) -> Any:
        passed.add(id(value))
        return statics.get(id(value), value)

    captured = _NeverEmpty() if all_seen else Graph()
    contents = inputs.contents() if all_seen and on_host else []
    versions = inputs.versions()
    side = side_of(stream)
    side._follow(stream)
    clear_autocast_caches()
    try:
        with graph(captured, pool, side):
            value = run(swap)
    finally:
        clear_autocast_caches()
    try:
        if contents:
            check_unwritten(contents, inputs.contents(), names)
        written = inputs.written(versions, leaves, names)
        work = _recorded_work(captured, inputs, passed) if all_seen else None
        indices = inputs.indices(arguments)
        result = Result(value, indices, reader, copy, on_host=on_host, copies=copies, work=work)
        back = [i for i in written | result.returned if writable(leaves[i])]
        copied = inputs.plan_copies(back) + [array_type for _, array_type in result.outputs if copies]
        streams = ReplayStreams(captured, order, stream, copied, on_host)
        return RecordedCall(captured, pool, inputs, result, streams, order, call.signature)
    except BaseException:
        captured.reset()
        raise


def _recorded_work(captured: Graph, inputs: StaticInputs, passed: set[int]) -> RecordedWork | None:
    """Return the work of every replay; None if the graph has nodes that our streams were not given."""
    seen, runner = captured._retained or [], captured._runner
    nodes = None if runner is None else runner.counted
    if nodes is not None and nodes > len(seen):
        return None
    return RecordedWork([*seen, inputs.arrays], passed)
