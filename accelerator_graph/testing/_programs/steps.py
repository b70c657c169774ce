"""What a program does, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .body import Op

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
