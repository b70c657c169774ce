"""The model of a program: what its memory holds, what each kind of work does to it, and in which order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace

from .._work import applied

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


NONE: frozenset[int] = frozenset()


class Order:
    """What is known of the order of the work so far. Each piece of it is a number.

    Two pieces that touch the same memory must be ordered, unless both only read it: `missing` says which
    waits a piece still needs.
    """

    def __init__(self) -> None:
        self.before: defaultdict[int, Set[int]] = defaultdict(frozenset)
        """For each stream, the work that comes before whatever is enqueued on it next."""
        self.done: Set[int] = NONE
        """The work that the host has waited for."""
        self.until: list[Set[int]] = []
        """For each piece, the work that is done when it is done: itself, and all before it."""
        self.stream_of: list[int] = []
        self._writers: defaultdict[str, Set[int]] = defaultdict(frozenset)
        self._readers: defaultdict[str, Set[int]] = defaultdict(frozenset)

    def missing(self, stream: int, reads: Set[str], writes: Set[str], known: Set[int] = NONE) -> list[int]:
        """Return the pieces that have to come before a new one on a stream, and are not known to."""
        needed: set[int] = set()
        for place in reads | writes:
            needed |= self._writers[place]
        for place in writes:
            needed |= self._readers[place]
        return sorted(needed - self.before[stream] - self.done - known)

    def add(
        self,
        stream: int,
        reads: Set[str] = frozenset(),
        writes: Set[str] = frozenset(),
        *,
        known: Set[int] = NONE,
        beside: Set[int] = NONE,
    ) -> int:
        """Note a piece on a stream and return its number.

        Parameters
        ----------
        stream : int
            The stream.
        reads, writes : set of str
            The memory that it only reads, and that it changes.
        known : set of int
            What comes before it for another reason than the stream.
        beside : set of int
            What changes the same memory, without an order between them.
        """
        piece = len(self.until)
        self.before[stream] = self.before[stream] | known | {piece}
        self.until.append(self.before[stream])
        self.stream_of.append(stream)
        for place in reads:
            self._readers[place] |= {piece}
        for place in writes:
            self._writers[place] = self._writers[place] & beside | {piece}
            self._readers[place] = NONE
        return piece

    def wait(self, stream: int, other: int) -> None:
        """Note that a stream waits for all work so far on another one."""
        self.before[stream] = self.before[stream] | self.before[other]

    def synchronize(self, stream: int) -> None:
        """Note that the host waits for all work so far on a stream."""
        self.done = self.done | self.before[stream]

    def wait_for(self, stream: int, piece: int) -> None:
        """Note that a stream waits for a piece."""
        self.before[stream] = self.before[stream] | self.until[piece]

    def streams_after(self, piece: int) -> list[int]:
        """Return the streams that come after a piece, first the one that it is on."""
        own = self.stream_of[piece]
        return [own, *(each for each in sorted(self.before) if each != own and piece in self.before[each])]
