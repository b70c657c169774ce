"""Which work comes after which, on several streams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

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
