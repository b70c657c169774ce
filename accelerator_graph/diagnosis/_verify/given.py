"""What is verified where there is a graph already: the caller's, or that of a graphed function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..._arrays.arrays import elsewhere
from ..._arrays.containers import rebuild
from ..._arrays.signatures import Call
from ..._core import stream_stack
from ..._core.streams import Stream
from ..._graphed.recorded_call import RecordedCall
from ...api import Graph
from .case import Case
from .places import Place, wait
from .program import Program
from .trial import Changing, Trial

_NOT_A_NUMBER = b"\xff"
"""A byte of which NaNs consist, in all floating-point types."""


class GraphProgram(Program):
    """A graph that the caller has captured, and the function that it has to agree with."""

    given_graph = True

    def __init__(
        self, g: Graph, reference: Callable[..., Any], inputs: Sequence[Any], outputs: Any, state: Any
    ) -> None:
        stream = g._runner_for("replay()").destination().held()
        super().__init__(reference, inputs, state, stream)
        self.graph = g
        self.outputs = self.arrays_of(outputs, "outputs")

    def captured_on(self) -> Stream:
        """Return the stream of the caller's graph."""
        return self.stream

    def capture(self) -> None:
        """Do nothing."""


class RecordedProgram(Program):
    """A call of a graphed function, and the graph that is captured for calls like it, after this was made."""

    begins_anew = False
    copies_arguments = True

    def __init__(
        self, function: Callable[..., Any], call: Call, names: Sequence[str], stream: Stream
    ) -> None:
        self._shape, self._values = call.shape, call.values
        self._call_leaves = call.leaves
        bound = function if not call.instance else partial(function, *call.instance)
        self._begin(bound, names, None, stream)
        self.name = getattr(function, "__qualname__", self.name)

    def attach(self, recorded: RecordedCall) -> None:
        """Take the graph, which was captured while everything was as when this was made."""
        self._recorded = recorded
        self.graph = recorded.graph
        self.outputs = self.arrays_of(recorded.result.in_place(self._call_leaves), "result")

    def capture(self) -> None:
        """Do nothing."""

    def replay(self) -> list[Place]:
        """Replay as the graphed function does, which copies arguments and results."""
        if self.graph is not self._recorded.graph:
            return super().replay()
        result = stream_stack.within(self.stream, self._run_recorded)
        return self.arrays_of(result, "result")

    def _run_recorded(self) -> Any:
        where = self._recorded.streams.ready(self.stream)
        assert where is not None
        return self._recorded.run(self._call_leaves, where)


class Unproven(Exception):
    """Why nothing is proven."""


class BoundProgram(RecordedProgram):
    """A call with its arrays elsewhere: at one place in eager runs, at another one in replays.

    Each replay finds patterns in the captured arrays, and in those of the eager runs: work outside of the
    graph may have noted their addresses.
    """

    begins_anew = True

    def __init__(
        self,
        function: Callable[..., Any],
        call: Call,
        names: Sequence[str],
        recorded: RecordedCall,
        stream: Stream,
    ) -> None:
        bound = recorded.inputs.bound
        assert bound is not None
        self._bound = bound
        moved = sorted(bound.arguments)
        array_types = [recorded.inputs.array_types[i] for i in moved]
        statics = [recorded.inputs.arrays[i] for i in moved]
        given, fed = elsewhere(statics, array_types), elsewhere(statics, array_types)
        for i, other, array_type in zip(moved, given, array_types, strict=True):
            array_type.assign(other, call.leaves[i])
        ids = [id(call.leaves[i]) for i in moved]
        eager, replayed = dict(zip(ids, given, strict=True)), dict(zip(ids, fed, strict=True))
        leaves = [replayed.get(id(leaf), leaf) for leaf in call.leaves]
        values = [rebuild(value, lambda x: eager.get(id(x), x)) for value in call.values]
        wait(stream)
        super().__init__(function, call._replace(values=values, leaves=leaves), names, stream)
        self.attach(recorded)
        self._given = {id(other): i for i, other in zip(moved, given, strict=True)}
        places = {id(place.array): place for place in self.inputs}
        self._moved = [places[id(other)] for other in given]
        instead = {own: Place(x, own.array_type, own.name) for own, x in zip(self._moved, fed, strict=True)}
        self.fed = [instead.get(place, place) for place in self.inputs]
        self._unused = [
            *self._moved,
            *(Place(x, own.array_type, own.name) for own, x in zip(self._moved, statics, strict=True)),
        ]
        """The arrays that no replay may use."""
        self.nan = False

    def replay(self) -> list[Place]:
        """Replay with the other arrays filled, and check that nobody has touched them."""
        before = [self._filling(place) for place in self._unused]
        for place, data in zip(self._unused, before, strict=True):
            place.write(self.stream, data)
        wait(self.stream)
        found = super().replay()
        if self._recorded.inputs.copied:
            raise Unproven("no other place could be had for its arrays")
        after = [place.read(self.stream) for place in self._unused]
        wait(self.stream)
        for place, data, now in zip(self._unused, before, after, strict=True):
            if bytes(now) != data:
                raise Unproven(f"a replay writes to the captured array of argument {place.name}")
        return found

    def _filling(self, place: Place) -> bytes:
        """Return contents for a captured array that are not those of a call."""
        if place.elements.floating:
            return _NOT_A_NUMBER * place.nbytes if self.nan else place.pattern(0)
        return bytes(place.nbytes)

    def check_contents(self) -> None:
        """Raise `Unproven` if an argument holds what its captured array is filled with.

        Whole numbers are filled with zeros, since others might be indices that lead out of an array.
        """
        for place in self.inputs:
            if id(place.array) in self._given and not place.elements.floating:
                data = place.read(self.stream)
                wait(self.stream)
                if not any(data):
                    raise Unproven(
                        f"argument {place.name} holds only zeros, with which nothing can be proven"
                    )

    def unrelated(self, data: Sequence[bytes]) -> list[bytes]:
        """Return contents of the arguments of which each was turned and scaled in a way of its own.

        An argument that is written may hold the result for the others already, from the call before.
        """
        new = []
        for i, (place, old) in enumerate(zip(self.inputs, data, strict=True)):
            if place.elements.floating:
                turn = (i + 1) * place.elements.size % max(len(old), 1)
                old = place.elements.scaled(old[turn:] + old[:turn], (i + 3) / (i + 4))
            new.append(old)
        return new

    def note_written(self, before: Sequence[bytes], after: Sequence[bytes]) -> None:
        """Note which arguments and which state a run changes, given their contents before and after."""
        changed = zip([*self.inputs, *self.state], before, after, strict=True)
        for place in [place for place, old, new in changed if old != new]:
            if id(place.array) in self._given:
                self._recorded.inputs.note_written([self._given[id(place.array)]])
            elif place.extent is not None:
                self._bound.add_own(place.extent)


def prove(program: BoundProgram) -> None:
    """Compare replays with eager runs; raise `Unproven` or `Changing` unless they agree."""
    program.check_contents()
    case = Case(Trial(program), None, 2)
    trial = case.trial
    try:
        trial.warm_up()
        case.expected = case.expect()
        trial.capture()
        for data in (None, *map(program.unrelated, case.variations())):
            expected = case.expected if data is None else case.expect(data)
            if any(expected.unstable):
                raise Unproven("eager runs differ among themselves")
            for nan in (True, False):
                program.nan = nan
                wrong = case.mismatches(expected, trial.replay(data))
                trial.forget(program.inputs)
                if wrong:
                    place = trial.targets[wrong[0].target]
                    raise Unproven(
                        f"a replay with its arrays elsewhere gives another {place.name} than an eager run"
                    )
            before = trial.saved if data is None else [*data, *trial.saved[len(data) :]]
            program.note_written(before, expected.contents[trial.results :])
    finally:
        trial.put_back()
        program.close()


def why_unproven(program_of: Callable[[], BoundProgram], stream: Stream) -> str:
    """Return why nothing is proven; empty if replays are right."""
    try:
        stream_stack.within(stream, lambda: prove(program_of()))
    except Unproven as error:
        return str(error)
    except Changing:
        return "the arrays in its result are others in every run"
    return ""
