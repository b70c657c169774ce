"""Measuring the executables that a thread makes."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from .switches import measuring


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

    def __enter__(self) -> Self:
        measuring.depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        measuring.depth -= 1
