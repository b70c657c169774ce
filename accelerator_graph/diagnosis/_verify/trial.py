"""The runs of a program: each begins with the same arguments, state and random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..._core import stream_stack
from ..._core.side_streams import side_of
from ...interop import registry as interop
from ...interop.base import Undo
from .elements import differing
from .places import Place, read_all, wait
from .program import Program


class Changing(Exception):
    """The arrays of two runs can't be compared, since their number, shapes or types differ."""


class Run(NamedTuple):
    """What one run has left behind: the results, the arguments and the state, in this order."""

    contents: list[bytes]
    patterns: dict[int, bytes]
    """What the outputs held before the run, by their index."""


class Trial:
    """Runs a program eagerly and replays its graph, and puts everything back at the end."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.eager_runs = self.replays = 0
        self.targets: list[Place] = []
        """The arrays that the runs are compared by: those of the first eager run."""
        self.poisoned: list[int] = []
        """The indices of the outputs that the graph has for itself."""
        self.results = 0
        """How many of the targets are results."""
        self._first = [*program.inputs, *program.state]
        self._before = read_all(program.stream, self._first)
        self._python, self._random = program.python, program.random
        self._kept: list[Place] = []
        self.saved: list[bytes] = []
        self._written: list[bytes] = []

    def put_back(self) -> None:
        """Leave arguments, state, references and random numbers as they were before the first run."""
        stream = self.program.stream
        for place, data in zip(self._first, self._before, strict=True):
            place.write(stream, data)
        wait(stream)
        self._python.restore()
        self._random.restore()

    def warm_up(self) -> None:
        """Run eagerly once: what is made in the first call is there in all others."""
        program, stream = self.program, self.program.stream
        results = program.eager()
        self.eager_runs += 1
        wait(stream)
        for place, data in zip(self._first, self._before, strict=True):
            place.write(stream, data)
        wait(stream)
        self._random.restore()
        program.look_again()
        known = [*program.inputs, *program.state]
        self._kept = [each for each in results if not any(each.overlaps(other) for other in known)]
        self._held = results
        self._save()

    def _save(self) -> None:
        program = self.program
        self.saved = read_all(program.stream, [*program.inputs, *program.state])

    def restore(
        self, fed: Sequence[Place], data: Sequence[bytes] | None = None, python: bool = True
    ) -> None:
        """Put arguments, state, and on request references, back; `data` are other arguments."""
        stream, count = self.program.stream, len(self.program.inputs)
        self._written = [*(self.saved[:count] if data is None else data), *self.saved[count:]]
        for place, contents in zip([*fed, *self.program.state], self._written, strict=True):
            place.write(stream, contents)
        wait(stream)
        if python:
            self.program.python.restore()

    # ---- runs ----------------------------------------------------------------------------------

    def eager(
        self,
        data: Sequence[bytes] | None = None,
        *,
        beside: bool = False,
        python: bool = True,
        random: bool = True,
        filled: int = 0,
    ) -> Run:
        """Run eagerly, `beside` the current stream if that is asked for; new arrays hold one of two patterns."""
        program = self.program
        self.restore(program.inputs, data, python)
        if random:
            program.random.restore()
        with self._filling(filled):
            results = self._beside() if beside else program.eager()
        self.eager_runs += 1
        found = [*results, *program.inputs, *program.state]
        if not self.targets:
            self.targets, self.results = found, len(results)
            shared = [each for each in self._kept if any(each.overlaps(other) for other in results)]
            self._kept, self._held = shared, []
        self._check(found)
        return Run(read_all(program.stream, found), {})

    @contextmanager
    def _filling(self, which: int) -> Iterator[None]:
        """Let frameworks fill new arrays with one of two patterns, as far as they can."""
        undos: list[Undo] = []
        try:
            for framework in interop.active(self.program.stream.backend):
                undos.extend(filter(None, (framework.fill_new(which),)))
            yield
        finally:
            stream_stack.undo(undos)

    def shows_unwritten(self, place: Place) -> bool:
        """Return True if a new array like this one is filled, so that eager runs show who writes it."""
        if place.array_type.kind == "place":
            return False
        contents = []
        for which in (0, 1):
            with self._filling(which):
                new = Place(place.array_type.empty_like(place.array), place.array_type, place.name)
            contents += read_all(self.program.stream, [new])
        return len(differing(*contents, place.elements)) == place.nbytes // place.elements.size

    def _beside(self) -> list[Place]:
        stream = self.program.stream
        side = side_of(stream)
        side._follow(stream)
        results = self.program.eager_on(side)
        stream._follow(side)
        return results

    def capture(self) -> None:
        """Capture the graph, with everything as before a run."""
        program = self.program
        self.restore(program.inputs)
        program.random.restore()
        program.capture()
        known = [*program.fed, *program.state, *self._kept]
        self.poisoned = [
            i
            for i, place in enumerate(program.outputs)
            if place.writable and not any(place.overlaps(other) for other in known)
        ]
        self._check([*program.outputs, *program.fed, *program.state])

    def replay(
        self,
        data: Sequence[bytes] | None = None,
        *,
        pattern: int = 0,
        random: bool = True,
        around: Callable[[Callable[[], Any]], Any] = lambda run: run(),
    ) -> Run:
        """Replay the graph, with its own outputs filled with one of two patterns."""
        program = self.program
        self.restore(program.fed, data)
        if random:
            program.random.restore()
        patterns = {i: program.outputs[i].poison(program.stream, pattern) for i in self.poisoned}
        wait(program.stream)
        around(program.replay)
        self.replays += 1
        found = [*program.outputs, *program.fed, *program.state]
        return Run(read_all(program.stream, found), patterns)

    def _check(self, found: list[Place]) -> None:
        alike = len(found) == len(self.targets)
        if not alike or not all(map(Place.like, found, self.targets)):
            raise Changing
