"""A whole program: its steps become lines of Python that check what the model says, and these are run."""

from __future__ import annotations

import random
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import accelerator_graph as ag

from .._case import Case
from .._tools import Thread
from .._work import Work
from .model import BUFFER_BYTES, NONE, Enqueued, Memory, Order, Piece, places, work_of
from .steps import (
    STREAMS,
    Again,
    Body,
    Call,
    Capture,
    Check,
    Close,
    Instantiate,
    Op,
    Options,
    Replay,
    Reset,
    Step,
    Together,
    Traits,
    Wait,
    one_of,
    shifted,
)

PRELUDE = {
    "suppress": "from contextlib import suppress",
    "partial": "from functools import partial",
    "ref": "from weakref import ref",
    "ag": "import accelerator_graph as ag",
    "in_threads": "from accelerator_graph.testing._programs.program import in_threads",
    "Abandoned": "class Abandoned(Exception): ...",
    "Token": "class Token: ...",
    "there": "there = work.on(1)",
}
"""What defines a name that programs use."""


def indented(lines: Iterable[str]) -> list[str]:
    """Return the lines of a block."""
    return [f"    {line}" for line in lines]


def captured(step: Capture, given: int | None, function: str, token: str) -> list[str]:
    """Return the lines that capture a function.

    Parameters
    ----------
    step : Capture
        The way.
    given : int, optional
        The stream that the graph was made with.
    function : str
        Name of the function.
    token : str
        Name of the reference to an object that the graph retains; empty if it retains none.
    """
    graph = f"g{step.graph}"
    origin = f"s{step.stream if given is None else given}"
    entered = origin if given is None else ""
    argument = "ag.current_stream()" if step.way == "side stream" and given is None else origin
    inside = [f"{token} = ref({graph}.retain(Token()))"] if token else []
    inside.append(f"{function}({argument})")
    abandoned = "suppress(Abandoned)" if step.raises is not None else ""
    if step.way == "by hand":
        if abandoned:
            inside = [f"with {abandoned}:", *indented(inside)]
        inside = [f"{graph}.capture_begin()", *inside, f"{graph}.{'reset' if abandoned else 'capture_end'}()"]
        return [f"with {entered}:", *indented(inside)] if entered else inside
    context = {
        "with": graph,
        "graph": f"ag.graph({graph}, stream={origin})",
        "side stream": f"ag.graph({graph})",
    }[step.way]
    if step.way == "graph":
        entered = ""
    return [f"with {', '.join(filter(None, (abandoned, entered, context)))}:", *indented(inside)]


def stream(traits: Traits, number: int) -> str:
    """Return the call that makes a stream."""
    return f'ag.Stream({traits.device(number)}, backend="{traits.backend}")'


def declared(lines: Sequence[str], traits: Traits, options: Sequence[Options]) -> list[str]:
    """Return the lines that make what a program uses."""
    used = set(re.findall(r"[A-Za-z_]\w*", "\n".join(lines)))
    graphs = [number for number in range(len(options)) if f"g{number}" in used]
    used |= {f"s{options[number].stream}" for number in graphs}
    made: dict[str, Callable[[int], str]] = {
        "s": lambda number: stream(traits, number),
        "c": lambda number: f"{work_of(number)}.new()",
        "b": lambda number: f"{work_of(number)}.buffer({BUFFER_BYTES})",
    }
    found = [f"aside = {stream(traits, 0)}"] if "aside" in used else []
    for kind, code in made.items():
        names = (name for name in sorted(used) if re.fullmatch(rf"{kind}\d", name))
        found += [f"{name} = {code(int(name[1:]))}" for name in names]
    used |= set(re.findall(r"there", "\n".join(found)))
    found += [f"g{number} = {options[number].code(traits.modes)}" for number in graphs]
    return [line for name, line in PRELUDE.items() if name in used | {"ag"}] + found


@dataclass
class GraphState:
    """What is known of a graph at one point of the program."""

    options: Options
    work: list[Enqueued] | None = None
    """What a replay does; None if the graph is empty."""
    home: int = 0
    """The stream that replays go to."""
    bound: set[int | None] = field(default_factory=set)
    """The streams that it was bound to; None for its home."""
    runs: Set[int] = NONE
    """The work that comes before the next run of its executable."""
    retained: frozenset[str] = frozenset()
    """The references to what it keeps: an object that it retains, and those of the graphs inside it."""


class Program:
    """The code of a program.

    Parameters
    ----------
    traits : Traits
        What it may use.
    options : sequence of Options
        How its graphs are made.
    steps : sequence of Step
        What it does. Steps that are not possible at their place are left out.
    """

    def __init__(self, traits: Traits, options: Sequence[Options], steps: Sequence[Step]) -> None:
        self._traits = traits
        self._graphs = [GraphState(each) for each in options]
        self._memory = Memory()
        self._order = Order()
        self._lines: list[str] = []
        self._functions = self._tokens = 0
        self._latest: Capture | None = None
        for step in steps:
            self._do(step)
        self._check()
        self.code = "\n".join([*declared(self._lines, traits, options), *self._lines, ""])

    def _do(self, step: Step) -> None:
        match step:
            case Call():
                function = self._body(step, step.stream)
                self._call(self._defined(function), step.stream, function, step.route)
            case Capture():
                self._capture(step)
                self._latest = step
            case Again():
                if self._latest is not None:
                    body = [shifted(op, step.shift) for op in self._latest.body]
                    self._capture(
                        replace(self._latest, graph=step.graph, body=body, raises=None, replays=step.replays)
                    )
            case Replay():
                for number in one_of(self._captured(), step.graph):
                    self._replay(replace(step, graph=number))
            case Together():
                self._together(step.replays)
            case Instantiate():
                kept = [each for each in self._captured() if self._graphs[each].options.keep_graph]
                for number in one_of(kept, step.graph):
                    self._lines.append(f"g{number}.instantiate()")
                    self._graphs[number].runs = NONE
            case Reset():
                for number in one_of(self._captured(), step.graph):
                    self._reset(number, step.drop)
            case Close():
                self._close(step.stream)
            case Check():
                self._check()

    def _captured(self) -> list[int]:
        """Return the graphs that are not empty."""
        return [number for number, graph in enumerate(self._graphs) if graph.work is not None]

    # ---- functions and captures ----------------------------------------------------------------

    def _body(self, step: Call | Capture, origin: int, raises: int | None = None) -> Body:
        device = self._traits.device
        graphs = {
            number: (device(graph.home) if self._may_nest(graph) else None, graph.work)
            for number, graph in enumerate(self._graphs)
            if graph.work is not None
        }
        turned = [(origin + each) % STREAMS for each in range(STREAMS)]
        streams = [each for each in turned if each == origin or self._traits.connects(each, origin)]
        return Body(streams, step.body, step.width, device, graphs, raises)

    def _may_nest(self, graph: GraphState) -> bool:
        return graph.options.keep_graph or not self._traits.nested_kept

    def _defined(self, body: Body) -> str:
        """Define a function; return its name."""
        name = f"f{self._functions}"
        self._functions += 1
        self._lines += [f"def {name}(s):", *indented(body.code)]
        return name

    def _call(self, function: str, stream: int, body: Body, route: int) -> None:
        """Run a function eagerly."""
        reads, writes = places(body.work)
        self._wait(stream, reads, writes, route)
        self._lines.append(f"{function}(s{stream})")
        self._order.add(stream, reads, writes)
        self._apply([*body.asides, *body.work])
        for graph in body.replays:
            self._graphs[graph].runs = NONE
        self._release(body)

    def _release(self, body: Body) -> None:
        for number in body.released:
            self._graphs[number] = GraphState(self._graphs[number].options)

    def _capture(self, step: Capture) -> None:
        self._reset(step.graph)
        graph, name = self._graphs[step.graph], f"g{step.graph}"
        given = graph.options.stream
        home = step.stream if given is None else given
        body = self._body(step, home, step.raises)
        function = self._defined(body)
        if step.eager and step.raises is None and not body.released:
            self._call(function, home, body, step.route)
        token = ""
        if step.retain:
            token = f"t{self._tokens}"
            self._tokens += 1
        self._lines += captured(step, given, function, token)
        self._apply(body.asides)
        inside = frozenset[str]().union(*(self._graphs[each].retained for each in body.replays))
        self._release(body)
        if step.raises is not None:
            self._lines.append(f'assert {name}.state == "empty", {name}.state')
            self._lines += _gone(filter(None, [token]))
            return
        graph.work, graph.home = body.work, home
        graph.retained = inside | frozenset(filter(None, [token]))
        for each in step.replays:
            self._replay(Replay(step.graph, each, route=step.route))

    def _reset(self, number: int, drop: bool = False) -> None:
        graph, name = self._graphs[number], f"g{number}"
        if graph.work is None:
            return
        self._graphs[number] = GraphState(graph.options)
        if drop:
            self._lines.append(f"{name} = {graph.options.code(self._traits.modes)}")
        else:
            kept = frozenset[str]().union(*(each.retained for each in self._graphs))
            self._lines += [f"{name}.reset()", *_gone(graph.retained - kept)]

    def _close(self, number: int) -> None:
        for graph in self._graphs:
            if number in (graph.options.stream, None if graph.work is None else graph.home):
                return
        for graph in self._graphs:
            graph.bound.discard(number)
        self._synchronize(number)
        self._lines += [f"s{number}.close()", f"s{number} = {stream(self._traits, number)}"]

    # ---- replays -------------------------------------------------------------------------------

    def _replay(self, step: Replay) -> None:
        step = self._near(step)
        self._prepare(step)
        call = f"{step.bound_name}()" if step.bound else f"g{step.graph}.replay({step.target})"
        self._lines += [f"for _ in range({step.times}):", f"    {call}"] if step.times > 1 else [call]
        self._ran(step, NONE)

    def _together(self, steps: Sequence[Replay]) -> None:
        """Replay graphs at once, but only such that don't touch the same memory."""
        chosen: list[Replay] = []
        for each in steps:
            for number in one_of(self._captured(), each.graph):
                step = self._near(replace(each, graph=number))
                if not any(self._conflict(number, other.graph) for other in chosen):
                    self._prepare(step)
                    chosen.append(step)
        calls = []
        for step in chosen:
            call = step.bound_name if step.bound else f"g{step.graph}.replay"
            if step.target and not step.bound:
                call = f"partial({call}, {step.target})"
            calls.append(f"[{call}] * {step.times}")
        if calls:
            self._lines.append(f"in_threads({', '.join(calls)})")
        pieces: Set[int] = NONE
        for step in chosen:
            pieces = pieces | {self._ran(step, pieces)}

    def _near(self, step: Replay) -> Replay:
        """Return the same replay, but on a stream of the graph's device."""
        device, home = self._traits.device, self._graphs[step.graph].home
        if step.stream is None or device(step.stream) == device(home):
            return step
        return replace(step, stream=step.stream ^ 1)

    def _prepare(self, step: Replay) -> None:
        """Wait for what has to come before a replay."""
        graph = self._graphs[step.graph]
        self._wait(self._target(step), *places(graph.work or ()), step.route, graph.runs)
        if step.bound and step.stream not in graph.bound:
            graph.bound.add(step.stream)
            self._lines.append(f"{step.bound_name} = g{step.graph}.bind({step.target})")

    def _ran(self, step: Replay, beside: Set[int]) -> int:
        """Note that a replay was enqueued, and which others change the same memory; return its piece."""
        graph = self._graphs[step.graph]
        assert graph.work is not None
        piece = self._order.add(
            self._target(step), *places(graph.work), known=graph.runs - beside, beside=beside
        )
        graph.runs = graph.runs | self._order.until[piece]
        for _ in range(step.times):
            self._apply(graph.work)
        return piece

    def _target(self, step: Replay) -> int:
        return self._graphs[step.graph].home if step.stream is None else step.stream

    def _conflict(self, first: int, second: int) -> bool:
        (reads, writes), (others, written) = (
            places(self._graphs[number].work or ()) for number in (first, second)
        )
        return first != second and bool(writes & (others | written) or written & reads)

    # ---- order and memory ----------------------------------------------------------------------

    def _wait(
        self, stream: int, reads: Set[str], writes: Set[str], route: int, known: Set[int] = NONE
    ) -> None:
        """Let a stream wait for all that has to come before."""
        while missing := self._order.missing(stream, reads, writes, known):
            streams = self._order.streams_after(missing[-1])
            other = streams[route % len(streams)]
            if self._traits.connects(stream, other) and route < 2 * len(streams):
                self._lines.append(f"s{stream}.wait(s{other})")
                self._order.wait(stream, other)
            else:
                self._synchronize(other)

    def _synchronize(self, stream: int) -> None:
        self._lines.append(f"s{stream}.synchronize()")
        self._order.synchronize(stream)

    def _apply(self, work: Sequence[Enqueued]) -> None:
        for each in work:
            each.apply(self._memory)

    def _check(self) -> None:
        """Wait for all work, and compare the memory with the model."""
        while unknown := set(range(len(self._order.until))) - self._order.done:
            self._synchronize(self._order.stream_of[max(unknown)])
        code = "\n".join(self._lines)
        if "(aside, " in code:
            self._lines.append("aside.synchronize()")
        for name in sorted(set(re.findall(r"\b[bc]\d\b", code))):
            number = int(name[1])
            if name[0] == "c":
                wanted, found = str(self._memory.cell(number)), f"{work_of(number)}.read({name})"
            else:
                wanted, found = repr(self._memory.buffer(number)), f"{work_of(number)}.read_bytes({name})"
            self._lines.append(f'assert {found} == {wanted}, f"{name} holds {{{found}}}"')
        for token in sorted(frozenset[str]().union(*(each.retained for each in self._graphs))):
            self._lines.append(f'assert {token}() is not None, "it was not retained"')


def _gone(tokens: Iterable[str]) -> list[str]:
    return [f'assert {token}() is None, "it is still retained"' for token in sorted(tokens)]


CELLS, OPS, REPLAYS = 4, 30, 3


def forks_and_joins(backend: str, seed: int) -> str:
    """Return the code of a program that replays one capture of slow work on several streams."""
    choose = random.Random(seed)
    body: list[Op] = []
    for _ in range(OPS):
        stream = choose.randrange(STREAMS)
        if choose.random() < 0.3:
            body.append(Wait(stream, choose.randrange(STREAMS), event=choose.random() < 0.5))
        else:
            cell, a, b = choose.randrange(CELLS), choose.randrange(1, 9, 2), choose.randrange(9)
            body.append(Piece(stream, cell, a, b, slow=True, route=choose.randrange(6)))
    capture = Capture(0, 0, body, STREAMS, replays=[None] * REPLAYS)
    return Program(Traits(backend), [Options()], [capture]).code


def crosses(work: Work, there: Work) -> bool:
    """Return True if a stream of device 1 can wait for one of device 0 and back, in captures as well."""
    try:
        with ag.Stream(0, backend=work.backend) as stream, ag.Stream(1, backend=work.backend) as other:
            cell, elsewhere = work.new(), there.new()
            other.wait(stream)
            stream.wait(other)
            with ag.Graph(stream=stream) as graph:
                work.enqueue(stream, cell, 1, 1)
                other.wait(stream)
                there.enqueue(other, elsewhere, 1, 1)
                stream.wait(other)
            graph.replay()
            stream.synchronize()
    except (ag.CaptureError, ag.DriverError, ag.UnsupportedError):
        return False  # the contract leaves that to the backend
    return True


FILE = "<random program>"
LIMIT = 20.0
"""Seconds that replays in threads may take."""


def run(case: Case, code: str) -> None:
    """Run the code of a program, inside a test of a case."""
    namespace: dict[str, Any] = {"work": case.used}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ag.EmptyGraphWarning)
            exec(compile(code, FILE, "exec"), namespace)
    finally:
        case.adopt(namespace.values())


def report(work: Work, code: str, error: Exception) -> str:
    """Return a message with the code, in which the lines that raised the error are marked."""
    marked = {int(number) for number in re.findall(rf"{FILE}, line (\d+)", str(error))}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            marked.add(trace.tb_lineno)
        trace = trace.tb_next
    kind = type(work)
    return "\n".join(
        (
            f"a program on backend {work.backend!r} fails with {type(error).__name__}: {error}",
            "",
            f"    # work is a {kind.__module__}.{kind.__qualname__}",
            "    # work.enqueue(stream, cell, a, b) does: cell = cell * a + b",
            *(
                f"{'->  ' if number in marked else '    '}{line}"
                for number, line in enumerate(code.splitlines(), 1)
            ),
        )
    )


def in_threads(*calls: Sequence[Callable[[], object]]) -> None:
    """Make calls in threads that begin together, each its own in order, and wait for all."""
    begin = threading.Barrier(len(calls))

    def make(each: Sequence[Callable[[], object]]) -> None:
        begin.wait(LIMIT)
        for call in each:
            call()

    threads = [Thread(partial(make, each), f"replay-{number}") for number, each in enumerate(calls)]
    for thread in threads:
        thread.result(LIMIT)
