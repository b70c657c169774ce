"""Measures what graphs take: executables when they are made, pools when somebody asks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence, Set
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from ..backends.base import DeviceMemory, addresses_in
from ..backends.memory import heap_bytes
from ..errors import AcceleratorGraphError
from ..interop import registry as interop
from ..interop.base import PoolContents, PoolSegment
from . import stream_stack
from .capture_table import measuring

if TYPE_CHECKING:
    from .ownership import Owned
    from .pools import Lease
    from .streams import Stream


class Difference(NamedTuple):
    """How much memory something has taken, or why that is not known."""

    nbytes: int | None
    why: str = ""


class Measured(NamedTuple):
    """The measurement of an executable that was just made."""

    device: Difference
    """How much less memory of the device was free afterwards."""
    host: Difference
    """How much more memory of the process's heap was in use afterwards."""
    touched: Set[int] | None
    """The segments of the pools, by address, that the graph's work uses; None if that is not known."""


class Before(NamedTuple):
    """The free and the used memory before an instantiation."""

    free: int | None
    heap: int | None


def before_instantiation(captured: Owned) -> Before:
    """Begin to measure an instantiation."""
    memory = device_memory(captured)
    return Before(None if memory is None else memory.free, heap_bytes())


def after_instantiation(
    before: Before, captured: Owned, home: Stream, lease: Lease, retained: Iterable[object]
) -> Measured:
    """End the measurement of an instantiation, while there is still the graph."""
    heap, memory = heap_bytes(), device_memory(captured)
    contents = pool_contents(home, lease.with_others(retained))
    touched = contents and touched_segments(contents.segments, captured)
    backend = home.backend
    return Measured(
        _difference(
            before.free,
            memory and memory.free,
            f"backend {backend!r} does not report how much memory is free",
        ),
        _difference(heap, before.heap, "the C library does not report how much memory is in use"),
        touched,
    )


def _difference(larger: int | None, smaller: int | None, untold: str) -> Difference:
    if larger is None or smaller is None:
        return Difference(None, untold)
    if larger < smaller:
        return Difference(None, "another thread or program freed memory while this was measured")
    return Difference(larger - smaller)


def device_memory(made: Owned) -> DeviceMemory | None:
    """Return what the driver reports about the memory of a graph's or an executable's device, if anything."""
    try:
        return made.backend.device_memory(made.native)
    except AcceleratorGraphError:
        return None


def pool_contents(home: Stream, leases: Iterable[Lease]) -> PoolContents | None:
    """Return what frameworks have in a graph's pools; None if one of them does not report."""
    frameworks = stream_stack.taking_part(home._backend)
    ids = set().union(*(lease.ids for lease in leases))
    found = [interop.pool_contents(frameworks, each, home.device) for each in ids]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    used = [each.used for each in known if each.used is not None]
    segments = sorted({segment for each in known for segment in each.segments})
    return PoolContents(tuple(segments), sum(used) if len(used) == len(known) else None)


def touched_segments(segments: Sequence[PoolSegment], captured: Owned) -> Set[int] | None:
    """Return the segments, by address, into which an address of the graph points; None if not known."""
    if not segments:
        return frozenset()
    try:
        addresses = addresses_in(captured.backend.parameters(captured.native))
    except AcceleratorGraphError:
        return None
    return None if addresses is None else _around(segments, addresses)


def _around(segments: Sequence[PoolSegment], addresses: Iterable[int]) -> Set[int]:
    starts = [segment.address for segment in segments]
    found = set()
    for address in addresses:
        at = bisect_right(starts, address) - 1
        if at >= 0 and address < starts[at] + segments[at].nbytes:
            found.add(starts[at])
    return frozenset(found)


class measure_memory:
    """Measure the executables that this thread makes inside a ``with`` block, for `Graph.memory`.

    Measuring takes time at each instantiation, and what other threads and other programs allocate or free on
    the device meanwhile is counted as well. So capture the graphs in question inside the block, on one thread
    and on a device that nobody else uses. A kept graph can be instantiated once more inside it. Blocks can be
    nested.

    Examples
    --------
    ::

        with ag.measure_memory():
            for size in sizes:
                capture(size)
        print(ag.memory_report())
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "measure_memory()"

    def __enter__(self) -> Self:
        measuring.depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        measuring.depth -= 1
