"""The runs of a program: each begins with the same arguments, state and random numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from ..._core import stream_stack
from ..._core.streams import Stream
from ...interop import registry as interop
from ...interop.base import Inspectable, Undo
from .places import Place, differing, read_all, wait
from .program import Program

Contents = list[bytes]
"""The contents of arrays: before a run those of arguments and state, and after it those of the targets."""

_FILLS = 500
_DIFFER = "the result differ between two runs"


class Changing(Exception):
    """The arrays of two runs can't be compared, for a reason that is the message."""


class OutOfTime(Exception):
    """The time limit was over before a run."""


class Trial:
    """Runs a program eagerly and replays its graph, and puts everything back at the end.

    No run begins once `time_limit` seconds have passed, and nothing runs beside them but fills of memory that
    nobody else has, on the stream `beside`, if that is given.
    """

    def __init__(
        self, program: Program, time_limit: float | None = None, beside: Stream | None = None
    ) -> None:
        self.program = program
        self.beside = beside
        self.busy = False
        """Whether that stream gets work ahead of each run."""
        self._scratch: Place | None = None
        self._end = None if time_limit is None else time.monotonic() + time_limit
        self.eager_runs = self.replays = 0
        self.targets: list[Place] = []
        """The arrays that runs are compared by, of the first eager run: results, arguments, state."""
        self.poisoned: list[int] = []
        """The indices of the outputs that the graph has for itself."""
        self.results = 0
        """How many of the targets are results."""
        self._first = [*program.inputs, *program.state]
        self._before = read_all(program.stream, self._first)
        self._python, self._random = program.look()
        self._held: list[object] = [program.python]
        """What captures and runs may use although it was put back: code that was compiled, for example."""
        self.saved: Contents = []
        """The contents of the arguments and of the state with which a run begins by default."""
        self.writes = False
        """Whether an eager run has changed an argument or the state."""
        self._now: dict[Place, bytes] = {}

    def put_back(self, *, arrays: bool = True) -> None:
        """Leave references, `arrays` and random numbers as they were before the first run."""
        self.forget()
        self._python.put_back()
        self._random.restore()
        if arrays:
            try:
                wait(self.program.captured_on())  # an eager run that was interrupted may still write
            finally:
                self._write(self._first, self._before)

    def forget(self) -> None:
        """Assume that anybody may have changed the arrays."""
        self._now.clear()

    def _write(self, places: Sequence[Place], contents: Sequence[bytes]) -> None:
        """Set the contents of arrays, where they are not known to be these."""
        stream = self.program.stream
        for place, data in zip(places, contents, strict=True):
            if self._now.get(place) != data:
                place.write(stream, data)
        wait(stream)
        self._now.update(zip(places, contents, strict=True))

    def _read(self, results: Sequence[Place], places: Sequence[Place]) -> Contents:
        """Read the contents of results and of other arrays, once all work is done."""
        found = read_all(self.program.stream, [*results, *places], self._now)
        self._now.update(zip(places, found[len(results) :], strict=True))
        return found

    def warm_up(self) -> None:
        """Run eagerly twice: what is made in the first calls is there in all others.

        A result that lies in the same memory both times is state. Where there is a graph already, all runs
        begin as its capture did.
        """
        program = self.program
        one, other = self._warm_up_once(), self._warm_up_once()
        if program.begins_anew:
            program.look_again()
        known = [*program.inputs, *program.state]
        program.state += [
            each
            for each in other
            if any(each.overlaps(before) for before in one)
            and not any(each.overlaps(place) for place in known)
        ]
        self._held.append(program.look())
        self.forget()
        self.saved = self._read([], [*program.inputs, *program.state])

    def _warm_up_once(self) -> list[Place]:
        self._check_time()
        if not (self.program.begins_anew and self.eager_runs):
            self.program.python.restore()
        self.program.random.restore()
        results = self.program.eager()
        wait(self.program.stream)
        self.eager_runs += 1
        self.forget()
        self._write(self._first, self._before)
        return results

    def _restore(self, fed: Sequence[Place], begin: Contents | None, python: bool, random: bool) -> None:
        self._check_time()
        if python and self.program.python.restore():
            self.forget()
        self._write([*fed, *self.program.state], self.saved if begin is None else begin)
        if random:
            self.program.random.restore()

    def _check_time(self) -> None:
        if self._end is not None and time.monotonic() > self._end:
            raise OutOfTime

    def beginning(self, changes: Mapping[int, bytes], begin: Contents | None = None) -> Contents:
        """Return what a run begins with, but for other contents of some targets."""
        contents = [*(self.saved if begin is None else begin)]
        for i, other in changes.items():
            contents[i - self.results] = other
        return contents

    def scaled(self, target: int) -> bytes:
        """Return the saved contents of an argument or of the state, with other numbers."""
        return self.targets[target].elements.scaled(self.saved[target - self.results], 0.75)

    # ---- runs ----------------------------------------------------------------------------------

    def eager(
        self,
        begin: Contents | None = None,
        *,
        python: bool = True,
        random: bool = True,
        filled: int = 0,
    ) -> Contents:
        """Run eagerly, and return what is left; `begin` is what arguments and state hold at the start.

        References and random numbers are put back first, unless `python` or `random` is False. New arrays of
        frameworks are `filled` with one of two patterns.
        """
        program = self.program
        self._restore(program.inputs, begin, python, random)
        try:
            with self._filling(filled):
                self._load()
                results = program.eager()
        except BaseException:
            self.forget()  # what it has written until then is not known
            raise
        self.eager_runs += 1
        others = [*program.inputs, *program.state]
        if not self.targets:
            self.targets, self.results = [*results, *others], len(results)
        try:
            self._check([*results, *others], _DIFFER)
        except Changing:
            wait(program.stream)
            self.forget()
            raise
        contents = self._read(results, others)
        self.writes = self.writes or contents[len(results) :] != (self.saved if begin is None else begin)
        return contents

    @contextmanager
    def _filling(self, which: int) -> Iterator[None]:
        """Let frameworks fill new arrays with one of two patterns, as far as they can."""
        undos: list[Undo] = []
        try:
            for framework in interop.inspectable(self.program.stream.backend):
                settle = partial(self._settle, framework)
                undos.extend(filter(None, (framework.fill_new(which, settle),)))
            yield
        finally:
            stream_stack.undo(undos)

    def _settle(self, framework: Inspectable) -> None:
        """Wait for a framework's current stream, where an array was filled that any stream may use now."""
        stream, current = self.program.captured_on(), framework.current_stream()
        wait(stream, None if current is None else stream._backend.as_stream(current[0]))

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

    def _load(self) -> None:
        """Give the stream `beside` work for some milliseconds, if it is to be busy."""
        if not self.busy or self.beside is None:
            return
        if self._scratch is None:
            places = [each for each in self.targets if each.array_type.kind != "place"]
            largest = max(places, key=lambda each: each.nbytes, default=None)
            if largest is None:
                return
            array = stream_stack.within(self.beside, largest.array_type.empty_like, largest.array)
            self._scratch = Place(array, largest.array_type, "scratch")
        for _ in range(_FILLS):
            self._scratch.fill(self.beside, 0)

    def capture(self) -> None:
        """Capture the graph if there is none yet, with everything as before a run."""
        self._capture(anew=self.program.graph is None)
        for target, output in zip(self.targets, self.program.outputs, strict=False):
            target.name = output.name

    @contextmanager
    def captured_anew(self) -> Iterator[None]:
        """Capture the function again, whatever graph there is, and replay that one in this block."""
        program, poisoned = self.program, self.poisoned
        before = program.graph, program.fed, program.outputs
        try:
            self._capture(anew=True)
            yield
        finally:
            program.graph, program.fed, program.outputs = before
            self.poisoned = poisoned

    def _capture(self, *, anew: bool) -> None:
        program = self.program
        self._restore(program.inputs, None, python=True, random=True)
        if anew:
            program.capture()
        self._held.append(program.look())
        self.forget()
        self.eager()  # waits for work that has escaped from the capture
        known = [*program.fed, *program.state]
        self.poisoned = [
            i
            for i, place in enumerate(program.outputs)
            if place.writable and not any(place.overlaps(other) for other in known)
        ]
        theirs = program.given_graph and not anew
        what = "outputs= are not those of the reference's result" if theirs else _DIFFER
        self._check([*program.outputs, *program.fed, *program.state], what)

    def replay(self, begin: Contents | None = None, *, pattern: int = 0, random: bool = True) -> Contents:
        """Replay the graph, with its own outputs filled with one of two patterns; else as `eager`."""
        program = self.program
        self._restore(program.fed, begin, python=True, random=random)
        for i in self.poisoned:
            place = program.outputs[i]
            before = place.pattern(pattern)  # kept until the copy is done
            place.write(program.stream, before)
            wait(program.stream)
        self._load()
        results = program.replay()
        self.replays += 1
        return self._read(results, [*program.fed, *program.state])

    def _check(self, found: list[Place], what: str) -> None:
        alike = len(found) == len(self.targets)
        if not alike or not all(map(Place.like, found, self.targets)):
            raise Changing(f"the number, shapes or types of the arrays in {what}")
