"""The model: what cells and buffers hold, and what each kind of work does to them."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace

from .._tools import applied

BUFFER_BYTES = 4

APART = 4
"""The numbers of a device's memory begin so far after those of the device before it."""


@dataclass
class Memory:
    """What the program's memory holds once all work is done. The model of the device."""

    cells: dict[int, int] = field(default_factory=dict)
    buffers: dict[int, bytes] = field(default_factory=dict)

    def cell(self, number: int) -> int:
        """Return what a cell holds."""
        return self.cells.get(number, 0)

    def buffer(self, number: int) -> bytes:
        """Return what a buffer holds."""
        return self.buffers.get(number, bytes(BUFFER_BYTES))


@dataclass(frozen=True)
class Piece:
    """A piece of the work that the backend's author wrote."""

    stream: int
    cell: int
    a: int = 1
    b: int = 0
    slow: bool = False
    route: int = 0
    """Which of the possible ways orders it after the work that it depends on."""

    @property
    def reads(self) -> frozenset[str]:
        """The memory that it only reads."""
        return frozenset()

    @property
    def writes(self) -> frozenset[str]:
        """The memory that it changes."""
        return frozenset({f"c{self.cell}"})

    def apply(self, memory: Memory) -> None:
        """Do the work."""
        memory.cells[self.cell] = applied(1, self.a, self.b, memory.cell(self.cell))

    def code(self, stream: str) -> str:
        """Return the call that enqueues it."""
        name = "enqueue_slow" if self.slow else "enqueue"
        return f"{work_of(self.cell)}.{name}({stream}, c{self.cell}, {self.a}, {self.b})"

    def on(self, device: int) -> Piece:
        """Return the same on the memory of a device."""
        return replace(self, cell=self.cell + APART * device)


@dataclass(frozen=True)
class Fill:
    """`Stream.fill`."""

    stream: int
    buffer: int
    value: int
    nbytes: int | None = None
    route: int = 0

    @property
    def reads(self) -> frozenset[str]:
        """The memory that it only reads."""
        return frozenset()

    @property
    def writes(self) -> frozenset[str]:
        """The memory that it changes."""
        return frozenset({f"b{self.buffer}"})

    def apply(self, memory: Memory) -> None:
        """Do the work."""
        count = BUFFER_BYTES if self.nbytes is None else self.nbytes
        rest = memory.buffer(self.buffer)[count:]
        memory.buffers[self.buffer] = bytes([self.value] * count) + rest

    def code(self, stream: str) -> str:
        """Return the call that enqueues it."""
        nbytes = "" if self.nbytes is None else f", {self.nbytes}"
        return f"{stream}.fill(b{self.buffer}, {self.value}{nbytes})"

    def on(self, device: int) -> Fill:
        """Return the same on the memory of a device."""
        return replace(self, buffer=self.buffer + APART * device)


@dataclass(frozen=True)
class Copy:
    """`Stream.copy`."""

    stream: int
    dst: int
    src: int
    nbytes: int | None = None
    route: int = 0

    @property
    def reads(self) -> frozenset[str]:
        """The memory that it only reads."""
        return frozenset({f"b{self.src}"})

    @property
    def writes(self) -> frozenset[str]:
        """The memory that it changes."""
        return frozenset({f"b{self.dst}"})

    def apply(self, memory: Memory) -> None:
        """Do the work."""
        count = BUFFER_BYTES if self.nbytes is None else self.nbytes
        memory.buffers[self.dst] = memory.buffer(self.src)[:count] + memory.buffer(self.dst)[count:]

    def code(self, stream: str) -> str:
        """Return the call that enqueues it."""
        nbytes = "" if self.nbytes is None else f", {self.nbytes}"
        return f"{stream}.copy(b{self.dst}, b{self.src}{nbytes})"

    def on(self, device: int) -> Copy:
        """Return the same on the memory of a device."""
        return replace(self, dst=self.dst + APART * device, src=self.src + APART * device)


Enqueued = Piece | Fill | Copy


def work_of(number: int) -> str:
    """Return the name of the work that has made a cell or a buffer."""
    return "work" if number < APART else "there"


def places(work: Iterable[Enqueued]) -> tuple[Set[str], Set[str]]:
    """Return the memory that work only reads, and that it changes."""
    reads, writes = frozenset[str](), frozenset[str]()
    for each in work:
        reads, writes = reads | each.reads, writes | each.writes
    return reads - writes, writes
