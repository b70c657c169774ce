"""Streams and graphs that do no work, but look whether a random program leaves an order open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple


class Access(NamedTuple):
    reads: frozenset[str]
    writes: frozenset[str]
    run_of: object = None
    """The executable whose run it is."""
    thread: object = None

    def conflicts(self, other: Access) -> bool:
        return bool(self.writes & (other.reads | other.writes) or other.writes & self.reads)


class History:
    """What was enqueued, and which of it comes before the next work of a stream."""

    def __init__(self) -> None:
        self.accesses: list[Access] = []
        self.until: list[set[int]] = []
        self.before: defaultdict[object, set[int]] = defaultdict(set)
        self.done: set[int] = set()

    def add(self, stream: object, access: Access) -> None:
        before = self.before[stream]
        for number, other in enumerate(self.accesses):
            if access.run_of is not None and access.run_of is other.run_of:
                before |= self.until[number]  # runs of one executable take turns
        for number, other in enumerate(self.accesses):
            apart = access.thread is not None and access.thread is not other.thread
            beside = apart and other.thread is not None and access.run_of is not other.run_of
            if access.conflicts(other) and (beside or number not in before | self.done):
                raise AssertionError(f"{access} is not ordered after {other}")
        before.add(len(self.accesses))
        self.accesses.append(access)
        self.until.append(set(before))


class World:
    """What replaces the library, the work, and threads, when a program runs."""

    def __init__(self) -> None:
        self.eager = History()
        self.captures: list[tuple[Graph, History]] = []
        self.current: list[Stream] = []
        self.thread: object = None

    def namespace(self) -> dict[str, Any]:
        library = SimpleNamespace(
            Stream=lambda *args, **how: Stream(self),
            Graph=lambda **how: Graph(self, how.get("stream")),
            graph=self.side_capture,
            current_stream=lambda: self.current[-1],
        )
        names = iter("abcdefghijklmnopqrstuvwxyz")
        work = SimpleNamespace(
            new=names.__next__,
            buffer=lambda nbytes: next(names),
            enqueue=enqueue,
            enqueue_slow=enqueue,
            on=lambda device: work,
        )
        return {"ag": library, "work": work, "in_threads": self.in_threads}

    def history(self, stream: Stream) -> History:
        if self.captures and stream in self.captures[-1][1].before:
            return self.captures[-1][1]
        return self.eager

    @contextmanager
    def side_capture(self, graph: Graph, stream: Stream | None = None) -> Iterator[None]:
        stream = stream or graph.stream or Stream(self)
        with graph.capture(stream):
            yield

    def in_threads(self, *calls: Sequence[Callable[[], object]]) -> None:
        for each in calls:
            self.thread = object()
            for call in each:
                call()
        self.eager.accesses = [access._replace(thread=None) for access in self.eager.accesses]
        self.thread = None


class Stream:
    def __init__(self, world: World) -> None:
        self.world = world

    def add(self, reads: frozenset[str], writes: frozenset[str], run_of: object = None) -> None:
        history = self.world.history(self)
        history.add(self, Access(reads, writes, run_of, self.world.thread))
        if history is not self.world.eager:
            self.world.captures[-1][0].accesses.append((reads, writes))

    def record(self) -> tuple[History, set[int]]:
        history = self.world.history(self)
        return history, set(history.before[self])

    def wait(self, other: Stream | tuple[History, set[int]]) -> None:
        history, before = other.record() if isinstance(other, Stream) else other
        assert self.world.history(self) in (history, self.world.eager), "waits for another capture"
        history.before[self] |= before

    def synchronize(self) -> None:
        history = self.world.history(self)
        assert history is self.world.eager, "synchronized in a capture"
        history.done |= history.before[self]

    def fill(self, dst: str, value: int, nbytes: int | None = None) -> None:
        self.add(frozenset(), frozenset(dst))

    def copy(self, dst: str, src: str, nbytes: int | None = None) -> None:
        self.add(frozenset(src), frozenset(dst))

    def close(self) -> None: ...

    def __enter__(self) -> None:
        self.world.current.append(self)

    def __exit__(self, *error: object) -> None:
        self.world.current.pop()


class Graph:
    def __init__(self, world: World, stream: Stream | None) -> None:
        self.world, self.stream = world, stream
        self.reset()

    def reset(self) -> None:
        self.state = "empty"
        self.accesses: list[tuple[frozenset[str], frozenset[str]]] = []
        self.executable = object()
        if self.world.captures and self.world.captures[-1][0] is self:
            self.world.captures.pop()
            self.world.current.pop()

    def instantiate(self) -> None:
        self.executable = object()

    @contextmanager
    def capture(self, stream: Stream) -> Iterator[None]:
        home = self.world.current[-1] if self.world.current and self.stream is None else stream
        self.begin(stream)
        try:
            yield
        except BaseException:
            self.reset()
            raise
        self.capture_end()
        self.home = home

    def begin(self, stream: Stream) -> None:
        assert self.state == "empty"
        self.state, self.home = "capturing", stream
        history = History()
        history.add(stream, Access(frozenset(), frozenset()))
        self.world.captures.append((self, history))
        self.world.current.append(stream)

    def capture_begin(self) -> None:
        self.begin(self.stream or self.world.current[-1])

    def capture_end(self) -> None:
        _, history = self.world.captures.pop()
        joined = history.before[self.world.current.pop()]
        assert joined >= set(range(len(history.accesses))), "not joined"
        self.state = "ready"

    def __enter__(self) -> None:
        self.context = self.capture(self.stream or self.world.current[-1])
        self.context.__enter__()

    def __exit__(self, *error: Any) -> Any:
        return self.context.__exit__(*error)

    def retain(self, obj: Any) -> Any:
        self.kept = obj
        return obj

    def replay(self, stream: Stream | None = None) -> None:
        assert self.state == "ready"
        reads = frozenset[str]().union(*(reads for reads, _ in self.accesses))
        writes = frozenset[str]().union(*(writes for _, writes in self.accesses))
        target = stream or self.home
        own = self.world.history(target) is self.world.eager
        target.add(reads, writes, self.executable if own else None)

    def bind(self, stream: Stream | None = None) -> Callable[[], None]:
        return lambda: self.replay(stream)


def enqueue(stream: Stream, cell: str, a: int, b: int) -> None:
    stream.add(frozenset(), frozenset(cell))


def check(code: str) -> None:
    """Raise `AssertionError` if a program leaves an order open; what it says of the memory is left out."""
    lines = [
        line
        for line in code.splitlines()
        if not line.startswith(("import accelerator_graph", "from accelerator_graph", "assert "))
    ]
    exec("\n".join(lines), World().namespace())
