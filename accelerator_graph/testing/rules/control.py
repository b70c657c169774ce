"""Loops and branches: work that is repeated or left out as the device's results say."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import Capability, CaptureStatus

from .._case import Case, applied, expect, needs
from .._work import A, B

LESS = 2**32 - 1
"""What adds -1 to a cell."""

Step = tuple[Any, ...]
"""``("work", cell, a, b)``, ``("loop", cell, steps)`` or ``("cond", cell, steps, steps)``."""


def both_ways(test: Callable[[Any, bool], None]) -> Callable[[Any], None]:
    """Decorate a rule: it is checked with the device testing flags, if it can, and with the host."""

    def both(case: Any) -> None:
        for native in (True, False):
            test(case, native)

    both.__name__, both.__doc__, both.__module__ = test.__name__, test.__doc__, test.__module__
    both.__qualname__ = test.__qualname__
    return both


class ControlRules(Case):
    """A graph with loops and branches does in each replay what its body does outside of a capture."""

    def step(self, cell: Any, a: int = A, b: int = B, *, times: int = 1) -> None:
        """Enqueue work on the current stream, which in a body may be the body's own."""
        self.enqueue(ag.current_stream(), cell, a, b, times=times)

    def put(self, stream: ag.Stream, cell: Any, value: int) -> None:
        """Enqueue work that sets a cell."""
        self.enqueue(stream, cell, 0, value)

    def count_down(self, cell: Any, body: Callable[[], object], **how: Any) -> ag.Loop:
        """Repeat work as often as a cell says, which is 0 afterwards."""

        def once() -> None:
            body()
            self.step(cell, 1, LESS)

        return ag.while_(self.used.flag(cell), once, **how)

    @needs(Capability.ENQUEUE)
    def test_reading_waits_for_the_stream(self) -> None:
        """`read` returns what the stream's work has written, and no less than that."""
        stream, cell = self.stream(), self.cell()
        for times in range(1, 4):
            self.enqueue_slow(stream, cell, times=3)
            found = self.backend.read(stream.native, self.used.flag(cell)[0], 4)
            assert int.from_bytes(found, "little") == applied(3 * times)

    @needs(Capability.ENQUEUE)
    @both_ways
    def test_loops_repeat_as_the_flag_says(self, native: bool) -> None:
        """A replay repeats the body as long as the flag is true: never, once, or more often; so do calls."""
        stream, cell, counter = self.stream(), self.cell(), self.cell()
        with self.graph(stream) as graph:
            self.enqueue(stream, cell)
            loop = self.count_down(counter, lambda: self.step(cell), native=native, limit=100)
            self.enqueue(stream, cell)
        assert self.read(cell) == 0
        done = 0
        for times in (3, 0, 20, *(1, 1, 1, 2, 1, 1, 1, 1)):  # as a solver that needs 1.13 of 100 iterations
            self.put(stream, counter, times)
            done += times + 2
            assert self.replayed(graph, cell) == applied(done)
            assert self.read(counter) == 0
            assert loop.count == times
        with stream:
            self.put(stream, counter, 2)
            self.count_down(counter, lambda: self.step(cell))
        assert self.read(cell) == applied(done + 2)

    @needs(Capability.ENQUEUE)
    @both_ways
    def test_loops_stand_in_loops(self, native: bool) -> None:
        """The flag of an inner loop is read anew whenever the outer one gets there, on whatever stream."""
        stream, cell, outer, inner, kept = self.stream(), *(self.cell() for _ in range(4))

        def body() -> None:
            self.step(inner, 1, 1)  # one more than the last time: 1, 2, 3 ...
            self.count_down(kept, lambda: self.step(cell), native=native)
            self.put(ag.current_stream(), kept, 2)

        with self.graph(stream) as graph:
            self.count_down(outer, body, native=native)
        other = self.stream()
        for where, times in ((stream, 2), (other, 3)):
            self.put(stream, kept, 0)  # the first time there is nothing to do
            self.put(stream, outer, times)
            stream.synchronize()
            graph.replay(where)
            where.synchronize()
        assert self.read(inner) == 5
        assert self.read(cell) == applied(2 * (1 + 2))

    @needs(Capability.ENQUEUE)
    @both_ways
    def test_branches_do_one_of_two(self, native: bool) -> None:
        """A replay does the work of one branch as the flag says then, and none if there is no other."""
        stream, flag, yes, no = self.stream(), self.cell(), self.cell(), self.cell()
        with self.graph(stream) as graph:
            ag.cond(
                self.used.flag(flag),
                lambda: self.step(yes),
                lambda: self.step(no),
                native=native,
            )
            ag.cond(self.used.flag(flag), lambda: self.step(yes), native=native)
        taken = [0, 0]
        for value in (1, 0, 0, 7):
            self.put(stream, flag, value)
            graph.replay()
            taken[not value] += 1
            assert (self.read(yes), self.read(no)) == (applied(2 * taken[0]), applied(taken[1]))

    @needs(Capability.CONDITIONS)
    def test_conditions_are_nodes_of_one_graph(self) -> None:
        """A loop of the device is a node whose body has the work; a body that is abandoned leaves nothing."""
        backend, stream, cell, side = self.backend, self.stream(), self.cell(), self.stream()
        flag, _ = self.used.flag(cell)
        for ends in (False, True):
            token = self.begin(stream)
            condition = backend.condition(stream.native, "while", 1, flag, 4, 3)
            body = backend.body_begin(condition, 0, side.native)
            assert self.status(side) is CaptureStatus.ACTIVE
            self.enqueue(side, cell)
            if not ends:
                backend.body_abandon(body)
                backend.body_abandon(body)
                backend.capture_abandon(token)
                continue
            inside = backend.body_end(body)
            assert backend.nodes(inside)[0]
            assert backend.misplaced(inside) is None
            graph = backend.capture_end(token)
            assert [node.bodies for node in backend.nodes(graph)[0] if node.kind == "conditional"]
            executable = backend.instantiate(graph)
            self.enqueue(stream, cell)
            backend.replay(executable, stream.native)
            assert self.read(cell) == applied(4)
            assert backend.runs(condition, stream.native) == 3
            backend.destroy_executable(executable)
            backend.destroy_graph(graph)
        assert self.status(side) is CaptureStatus.NONE

    @needs(Capability.ENQUEUE)
    @both_ways
    def test_limits_stop_loops(self, native: bool) -> None:
        """A loop whose flag nobody writes ends at its limit, in each replay; the count says so."""
        stream, cell, flag = self.stream(), self.cell(), self.cell()
        self.put(stream, flag, 1)
        with self.graph(stream) as graph:
            loop = ag.while_(self.used.flag(flag), lambda: self.step(cell), limit=5, native=native)
        for times in (1, 2):
            assert self.replayed(graph, cell) == applied(5 * times)
            assert loop.count == 5

    @needs(Capability.ENQUEUE)
    @both_ways
    def test_bodies_that_raise_leave_no_trace(self, native: bool) -> None:
        """If the body of a loop raises, its capture is abandoned, and the graph can be captured again."""
        stream, cell, flag, graph = self.stream(), self.cell(), self.cell(), self.graph()

        def body() -> None:
            self.step(cell)
            raise ZeroDivisionError

        def capture() -> None:
            with ag.graph(graph, stream=stream):
                self.enqueue(stream, cell)
                ag.while_(self.used.flag(flag), body, native=native)

        expect(ZeroDivisionError, capture)
        assert graph.state == "empty"
        assert ag.current_graph() is None
        assert not stream._is_capturing()
        with ag.graph(graph, stream=stream):
            self.enqueue(stream, cell)
        assert self.read(cell) == 0
        assert self.replayed(graph, cell) == applied(1)

    @needs(Capability.NODES)
    def test_loops_are_described(self) -> None:
        """A loop and a branch are nodes with bodies, in which their work is."""
        if not self.has(Capability.ENQUEUE):
            return
        stream, cell, flag = self.stream(), self.cell(), self.cell()
        with self.graph(stream, keep_graph=True) as graph:
            ag.while_(self.used.flag(flag), lambda: self.step(cell), limit=1, native=False)
            ag.cond(
                self.used.flag(flag),
                lambda: self.step(cell),
                lambda: self.step(cell, times=2),
                native=False,
            )
        loop, branch = graph.describe().nodes
        assert (loop.kind, loop.name, len(loop.bodies)) == ("conditional", "while", 1)
        assert (branch.kind, branch.name, len(branch.bodies)) == ("conditional", "if", 2)
        assert all(nodes for nodes, _ in (*loop.bodies, *branch.bodies))

    @needs(Capability.ENQUEUE)
    def test_random_loops_and_branches_do_what_calls_do(self) -> None:
        """Random programs of loops and branches end as a model says, called, captured and replayed."""
        for seed in range(12):
            chance = random.Random(seed)
            cells = [self.cell() for _ in range(4)]
            steps = _random_steps(chance, 3)
            start = [chance.randrange(4) for _ in cells]
            stream = self.stream()
            native = bool(seed % 2)
            with self.graph(stream) as graph:
                self._do(cells, steps, native)
            values = [0] * len(cells)
            for turn in range(3):
                for i, cell in enumerate(cells):
                    self.put(stream, cell, start[(i + turn) % len(start)])
                    values[i] = start[(i + turn) % len(start)]
                _model(values, steps)
                if turn == 2:
                    with stream:
                        self._do(cells, steps, native)
                else:
                    graph.replay()
                assert [self.read(cell) for cell in cells] == values, (seed, turn, steps)

    def _do(self, cells: Sequence[Any], steps: Sequence[Step], native: bool) -> None:
        for kind, cell, *rest in steps:
            flag = self.used.flag(cells[cell])
            if kind == "work":
                self.step(cells[cell], *rest)
            elif kind == "loop":

                def body(cell: int = cell, inner: Sequence[Step] = rest[0]) -> None:
                    self._do(cells, inner, native)
                    self.step(cells[cell], 1, LESS)

                ag.while_(flag, body, native=native, limit=_MOST)
            else:
                then, other = rest
                ag.cond(
                    flag,
                    lambda then=then: self._do(cells, then, native),  # type: ignore[misc]
                    lambda other=other: self._do(cells, other, native),  # type: ignore[misc]
                    native=native,
                )


_MOST = 4
"""How often each loop of a random program may run at most."""


def _random_steps(chance: random.Random, depth: int) -> list[Step]:
    steps: list[Step] = []
    for _ in range(chance.randint(1, 3)):
        kind = chance.choice(["work", "work", "loop", "cond"] if depth else ["work"])
        cell = chance.randrange(4)
        if kind == "work":
            steps.append((kind, cell, chance.choice([1, A]), chance.choice([1, 2, B])))
        elif kind == "loop":
            steps.append((kind, cell, _random_steps(chance, depth - 1)))
        else:
            steps.append((kind, cell, _random_steps(chance, depth - 1), _random_steps(chance, depth - 1)))
    return steps


def _model(values: list[int], steps: Sequence[Step]) -> None:
    """Do what steps do, on numbers."""
    for kind, cell, *rest in steps:
        if kind == "work":
            values[cell] = (values[cell] * rest[0] + rest[1]) % 2**32
        elif kind == "cond":
            _model(values, rest[0] if values[cell] else rest[1])
        else:
            for _ in range(_MOST):
                if not values[cell]:
                    break
                _model(values, rest[0])
                values[cell] = (values[cell] + LESS) % 2**32
