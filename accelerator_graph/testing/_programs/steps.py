"""What a program does: functions of work, which are run eagerly and captured, and its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

from .model import Copy, Enqueued, Fill, Order, Piece, places

STREAMS = 4
"""The most streams that a program has, beside `aside`."""

OUTSIDE = 3
"""The cell that only work on the stream `aside` touches."""

MOST_WORK = 60
"""How much work a function may do, with that of the graphs that it replays."""


@dataclass(frozen=True)
class Wait:
    """`Stream.wait` for another stream, or for an event that is recorded there at that moment."""

    stream: int
    other: int
    event: bool = False
    route: int = 0


@dataclass(frozen=True)
class Nested:
    """A replay of another graph: a captured function records it."""

    stream: int
    graph: int
    bound: bool = False
    route: int = 0


@dataclass(frozen=True)
class Aside:
    """Work on a stream that takes no part: it runs once, when the function is called."""

    a: int = 1
    b: int = 0


@dataclass(frozen=True)
class Release:
    """`Graph.reset` of another graph, when the function is called."""

    graph: int


Op = Piece | Fill | Copy | Wait | Nested | Aside | Release


def shifted(op: Op, number: int) -> Op:
    """Return the same op with other numbers."""
    match op:
        case Piece():
            return replace(op, b=op.b + number)
        case Fill():
            return replace(op, value=op.value + number)
    return op


def one_of(numbers: Sequence[int], choice: int) -> list[int]:
    """Return one of some numbers, in a list; none if there are none."""
    return [numbers[choice % len(numbers)]] if numbers else []


class Body:
    """The code and the effect of a function that enqueues work on several streams.

    Its argument is the stream that it begins on: the stream 0 of its ops, while the others are those that
    follow in the program. They wait for that one before they do anything, work on the same memory is ordered
    by waits, and in the end the first stream waits for all the work.

    Parameters
    ----------
    streams : sequence of int
        The streams that it may use. It begins on the first.
    ops : sequence of Op
        What it does, without the waits.
    width : int
        How many streams it uses. Ops on others are done on these.
    device_of : callable
        Returns the device of a stream.
    graphs : mapping of int to (int or None, sequence of Enqueued)
        The device and the work of the graphs that it can replay or reset. Others are left out. None for the
        device of a graph that it can only reset.
    raises : int, optional
        Raise an exception before the op of this number, or at the end if there are fewer.
    """

    def __init__(
        self,
        streams: Sequence[int],
        ops: Sequence[Op],
        width: int,
        device_of: Callable[[int], int],
        graphs: Mapping[int, tuple[int | None, Sequence[Enqueued]]],
        raises: int | None = None,
    ) -> None:
        self.work: list[Enqueued] = []
        """What it does to memory, in an order in which it may happen."""
        self.asides: list[Piece] = []
        """What runs even if the function is captured."""
        self.replays: set[int] = set()
        """The graphs that it replays."""
        self.released: set[int] = set()
        """The graphs that it resets."""
        self._streams = streams[:width]
        self._devices = [device_of(each) for each in self._streams]
        self._width = len(self._streams)
        self._graphs = dict(graphs)
        self._order = Order()
        self._lines: list[list[str]] = []
        self._line_of: list[list[str]] = []
        self._piece("", 0)
        for op in ops[:raises]:
            self._add(op)
        if raises is None:
            for piece in range(len(self._line_of) - 1, -1, -1):
                if piece not in self._order.before[0]:
                    self._wait_for(0, piece, 0)
        else:
            self._line("raise Abandoned")

    @property
    def code(self) -> list[str]:
        """The lines of the function's body."""
        return [line for lines in self._lines for line in lines if line] or ["pass"]

    def _add(self, op: Op) -> None:
        match op:
            case Wait():
                stream, other = self._enter(op.stream, op.route), self._enter(op.other, op.route)
                event = ".record()" if op.event else ""
                self._line(f"{self._name(stream)}.wait({self._name(other)}{event})")
                self._order.wait(stream, other)
            case Nested():
                self._replay(op)
            case Aside():
                piece = Piece(OUTSIDE, OUTSIDE, op.a, op.b)
                self.asides.append(piece)
                self._line(piece.code("aside"))
            case Release():
                for graph in one_of(sorted(self._graphs), op.graph):
                    del self._graphs[graph]
                    self.released.add(graph)
                    self._line(f"g{graph}.reset()")
            case _:
                stream = op.stream % self._width
                work = op.on(self._devices[stream])
                self._enqueue(work.code(self._name(stream)), op, [work])

    def _replay(self, op: Nested) -> None:
        number = op.stream % self._width
        here = [each for each, (device, _) in self._graphs.items() if device == self._devices[number]]
        for graph in one_of(sorted(here), op.graph):
            _, work = self._graphs[graph]
            if len(self.work) + len(work) <= MOST_WORK:
                stream = self._name(number)
                how = f"bind({stream})()" if op.bound else f"replay({stream})"
                self.replays.add(graph)
                self._enqueue(f"g{graph}.{how}", op, work)

    def _enqueue(self, code: str, op: Enqueued | Nested, work: Sequence[Enqueued]) -> None:
        """Add a line that enqueues work, behind the waits that it needs."""
        stream = self._enter(op.stream, op.route)
        reads, writes = places(work)
        while missing := self._order.missing(stream, reads, writes):
            self._wait_for(stream, missing[-1], op.route)
        self._piece(code, stream, reads, writes)
        self.work += work

    def _enter(self, number: int, route: int) -> int:
        """Let a stream take part; return its number among those that may."""
        stream = number % self._width
        if 0 not in self._order.before[stream]:
            self._wait_for(stream, 0, route)
        return stream

    def _wait_for(self, stream: int, piece: int, route: int) -> None:
        """Let a stream wait for a piece: for an event behind it, or for a stream that comes after it."""
        streams = self._order.streams_after(piece)
        route %= len(streams) + 1
        if route < len(streams):
            self._line(f"{self._name(stream)}.wait({self._name(streams[route])})")
            self._order.wait(stream, streams[route])
        else:
            event = f"e{piece}"
            record = f"{event} = {self._name(self._order.stream_of[piece])}.record()"
            if record not in self._line_of[piece]:
                self._line_of[piece].append(record)
            self._line(f"{self._name(stream)}.wait({event})")
            self._order.wait_for(stream, piece)

    def _piece(
        self, code: str, stream: int, reads: Set[str] = frozenset(), writes: Set[str] = frozenset()
    ) -> None:
        self._order.add(stream, reads, writes)
        self._line_of.append(self._line(code))

    def _line(self, code: str) -> list[str]:
        self._lines.append([code])
        return self._lines[-1]

    def _name(self, stream: int) -> str:
        return f"s{self._streams[stream]}" if stream else "s"


CaptureWay = Literal["with", "by hand", "graph", "side stream"]


@dataclass(frozen=True)
class Traits:
    """What a program may use of the backend."""

    backend: str
    """Its name."""
    events: bool = True
    """Streams can wait for each other."""
    nested: bool = True
    """A replay can be captured."""
    nested_kept: bool = False
    """That of a kept graph only."""
    modes: Sequence[str] = ("default",)
    """Its capture modes."""
    devices: int = 1
    """How many devices the program uses: 1 or 2."""
    crosses: bool = True
    """Streams of the two can wait for each other, in captures as well."""

    def device(self, stream: int) -> int:
        """Return the device of a stream."""
        return stream % self.devices

    def connects(self, stream: int, other: int) -> bool:
        """Return True if a stream can wait for another one."""
        return self.events and (self.crosses or self.device(stream) == self.device(other))


@dataclass(frozen=True)
class Options:
    """How a graph is made."""

    keep_graph: bool = False
    mode: int = 0
    """Index of its capture mode."""
    stream: int | None = None
    """The stream that it is made with."""

    def code(self, modes: Sequence[str]) -> str:
        """Return the call that makes the graph."""
        arguments = [
            f"stream=s{self.stream}" if self.stream is not None else "",
            "keep_graph=True" if self.keep_graph else "",
            f'capture_error_mode="{modes[self.mode]}"' if 0 < self.mode < len(modes) else "",
        ]
        return f"ag.Graph({', '.join(filter(None, arguments))})"


@dataclass(frozen=True)
class Call:
    """Run a function eagerly."""

    stream: int
    body: Sequence[Op]
    width: int = 1
    """How many streams it uses."""
    route: int = 0


@dataclass(frozen=True)
class Capture:
    """Capture a function into a graph, which is reset before if it is not empty."""

    graph: int
    stream: int
    body: Sequence[Op]
    width: int = 1
    """How many streams it uses."""
    way: CaptureWay = "with"
    raises: int | None = None
    """Before which op of the body an exception is raised."""
    eager: bool = False
    """Whether the function is first run eagerly."""
    retain: bool = False
    """Whether the graph retains an object."""
    replays: Sequence[int | None] = ()
    """Where the graph is replayed at once; None if no stream is named."""
    route: int = 0


@dataclass(frozen=True)
class Again:
    """Capture the function of the latest capture once more, with other numbers."""

    graph: int
    shift: int = 1
    """What is added to the numbers."""
    replays: Sequence[int | None] = ()
    """As in `Capture`."""


@dataclass(frozen=True)
class Replay:
    """Replay a graph several times."""

    graph: int
    stream: int | None = None
    """The stream that is named, if one is."""
    bound: bool = False
    """Whether the callable from `bind` is used."""
    times: int = 1
    route: int = 0

    @property
    def target(self) -> str:
        """The argument that names the stream."""
        return "" if self.stream is None else f"s{self.stream}"

    @property
    def bound_name(self) -> str:
        """The name of the callable from `bind`."""
        return f"launch{self.graph}{self.target and f'_{self.stream}'}"


@dataclass(frozen=True)
class Together:
    """Replay graphs from several threads at once."""

    replays: Sequence[Replay]


@dataclass(frozen=True)
class Instantiate:
    """Make the executable again."""

    graph: int


@dataclass(frozen=True)
class Reset:
    """Reset a graph, or make a new one in its place."""

    graph: int
    drop: bool = False


@dataclass(frozen=True)
class Close:
    """Close a stream that no graph is for, and make another one."""

    stream: int


@dataclass(frozen=True)
class Check:
    """Wait for all streams and look at the memory."""


Step = Call | Capture | Again | Replay | Together | Instantiate | Reset | Close | Check
