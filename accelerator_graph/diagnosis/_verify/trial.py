"""The runs of a program: each begins with the same arguments, state and random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ..._core import stream_stack
from ..._core.side_streams import side_of
from ...interop import registry as interop
from ...interop.base import Undo
from .elements import differing
from .places import Place, read_all, wait
from .program import Program

_NOTHING: Mapping[int, bytes] = {}
Load = Callable[[], object]


def no_load() -> None:
    """Leave the device to the run."""


class Changing(Exception):
    """The arrays of two runs can't be compared, for a reason that is the message."""


class Run(NamedTuple):
    """What one run has left behind: the results, the arguments and the state, in this order."""

    contents: list[bytes]


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
        self.saved: list[bytes] = []
        """The contents of the arguments and of the state with which every run begins."""
        self.writes = False
        """Whether an eager run has changed an argument or the state."""
        self._now: dict[Place, bytes] = {}

    def put_back(self) -> None:
        """Leave arguments, state, references and random numbers as they were before the first run."""
        self._now.clear()
        self._write(self._first, self._before)
        self._python.restore()
        self._random.restore()

    def _write(self, places: Sequence[Place], contents: Sequence[bytes]) -> None:
        """Set the contents of arrays, where they are not known to be these."""
        stream = self.program.stream
        for place, data in zip(places, contents, strict=True):
            if self._now.get(place) != data:
                place.write(stream, data)
        wait(stream)
        self._now.update(zip(places, contents, strict=True))

    def _read(self, results: Sequence[Place], places: Sequence[Place]) -> list[bytes]:
        """Read the contents of results and of other arrays, once all work is done."""
        found = read_all(self.program.stream, [*results, *places], self._now)
        self._now.update(zip(places, found[len(results) :], strict=True))
        return found

    def warm_up(self) -> None:
        """Run eagerly twice: what is made in the first calls is there in all others.

        A result that lies in the same memory both times is state.
        """
        program = self.program
        one, other = self._warm_up_once(), self._warm_up_once()
        program.look_again()
        known = [*program.inputs, *program.state]
        program.state += [
            each
            for each in other
            if any(each.overlaps(before) for before in one)
            and not any(each.overlaps(place) for place in known)
        ]
        self._now.clear()
        self.saved = self._read([], [*program.inputs, *program.state])

    def _warm_up_once(self) -> list[Place]:
        self._random.restore()
        results = self.program.eager()
        wait(self.program.stream)
        self.eager_runs += 1
        self._now.clear()
        self._write(self._first, self._before)
        return results

    def _restore(
        self, fed: Sequence[Place], data: Sequence[bytes] | None, start: Mapping[int, bytes], python: bool
    ) -> None:
        self._write([*fed, *self.program.state], self._beginning(data, start))
        if python:
            self.program.python.restore()

    def _beginning(self, data: Sequence[bytes] | None, start: Mapping[int, bytes]) -> list[bytes]:
        """Return what the arguments and the state hold when a run begins."""
        count = len(self.program.inputs)
        contents = [*(self.saved[:count] if data is None else data), *self.saved[count:]]
        for i, other in start.items():
            contents[i - self.results] = other
        return contents

    def begin(self, fed: Sequence[Place]) -> None:
        """Put everything back, for runs that are made elsewhere; `forget_changed` has to follow them."""
        self._restore(self.program.inputs, None, _NOTHING, python=True)
        self._restore(fed, None, _NOTHING, python=True)
        self.program.random.restore()

    def forget(self, places: Sequence[Place]) -> None:
        """Take it that somebody has changed arrays."""
        for place in places:
            self._now.pop(place, None)

    def forget_changed(self, *runs: Sequence[bytes]) -> None:
        """Take it that the arguments and the state have changed that some runs change."""
        program = self.program
        for i, saved in enumerate(self.saved):
            if any(contents[self.results + i] != saved for contents in runs):
                for places in ([*program.inputs, *program.state], [*program.fed, *program.state]):
                    self._now.pop(places[i], None)

    # ---- runs ----------------------------------------------------------------------------------

    def eager(
        self,
        data: Sequence[bytes] | None = None,
        *,
        start: Mapping[int, bytes] = _NOTHING,
        beside: bool = False,
        python: bool = True,
        random: bool = True,
        filled: int = 0,
        load: Load = no_load,
    ) -> Run:
        """Run eagerly.

        Parameters
        ----------
        data : sequence of bytes, optional
            Other arguments.
        start : mapping of int to bytes
            What arguments or state hold at the beginning instead, by the index of the target.
        beside : bool
            Run beside the current stream.
        python, random : bool
            Put references and random numbers back first.
        filled : int
            With which of two patterns frameworks fill new arrays.
        load : callable
            Gives the device other work to do meanwhile.
        """
        program = self.program
        self._restore(program.inputs, data, start, python)
        if random:
            program.random.restore()
        with self._filling(filled):
            load()
            results = self._beside() if beside else program.eager()
        self.eager_runs += 1
        others = [*program.inputs, *program.state]
        if not self.targets:
            self.targets, self.results = [*results, *others], len(results)
        self._check([*results, *others], "the result differ between two runs")
        contents = self._read(results, others)
        self.writes = self.writes or contents[len(results) :] != self._beginning(data, start)
        return Run(contents)

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
        one, other = (self._new_contents(place, which) for which in (0, 1))
        return len(differing(one, other, place.elements)) == place.count

    def _new_contents(self, place: Place, which: int) -> bytes:
        with self._filling(which):
            new = Place(place.array_type.empty_like(place.array), place.array_type, place.name)
        return read_all(self.program.stream, [new])[0]

    def _beside(self) -> list[Place]:
        stream = self.program.stream
        side = side_of(stream)
        side._follow(stream)
        results = self.program.eager_on(side)
        stream._follow(side)
        return results

    def capture(self) -> None:
        """Capture the graph, with everything as before a run."""
        self._capture(self.program.capture)
        for target, output in zip(self.targets, self.program.outputs, strict=False):
            target.name = output.name

    def capture_anew(self) -> None:
        """Capture the function again, whatever graph there was before."""
        self._capture(self.program.capture_function)

    def _capture(self, capture: Callable[[], None]) -> None:
        program = self.program
        self._restore(program.inputs, None, _NOTHING, python=True)
        program.random.restore()
        capture()
        self._now.clear()
        self.eager()  # waits for work that has escaped from the capture
        known = [*program.fed, *program.state]
        self.poisoned = [
            i
            for i, place in enumerate(program.outputs)
            if place.writable and not any(place.overlaps(other) for other in known)
        ]
        what = (
            "outputs= are not those of the reference's result"
            if program.given_graph
            else "the result differ between two runs"
        )
        self._check([*program.outputs, *program.fed, *program.state], what)

    def replay(
        self,
        data: Sequence[bytes] | None = None,
        *,
        start: Mapping[int, bytes] = _NOTHING,
        pattern: int = 0,
        random: bool = True,
        load: Load = no_load,
    ) -> Run:
        """Replay the graph, with its own outputs filled with one of two patterns; else as `eager`."""
        program = self.program
        self._restore(program.fed, data, start, python=False)
        if random:
            program.random.restore()
        for i in self.poisoned:
            place = program.outputs[i]
            before = place.pattern(pattern)  # kept until the copy is done
            place.write(program.stream, before)
            wait(program.stream)
        load()
        results = program.replay()
        self.replays += 1
        return Run(self._read(results, [*program.fed, *program.state]))

    def _check(self, found: list[Place], what: str) -> None:
        alike = len(found) == len(self.targets)
        if not alike or not all(map(Place.like, found, self.targets)):
            raise Changing(f"the number, shapes or types of the arrays in {what}")
