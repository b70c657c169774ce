"""Do replays that use other arrays than the captured ones give what eager runs give?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..._core import stream_stack
from ..._core.streams import Stream
from ..._graphed.containers import rebuild
from ..._graphed.other_places import elsewhere
from ..._graphed.recorded_call import RecordedCall
from ..._graphed.signature import Call
from .case import Case
from .given import RecordedProgram
from .places import Place, wait
from .trial import Changing, Trial

_NOT_A_NUMBER = b"\xff"
"""A byte of which NaNs consist, in all floating-point types."""


class Unproven(Exception):
    """Why nothing is proven."""


class BoundProgram(RecordedProgram):
    """A call with its arrays at other places. Each replay finds patterns in the captured arrays."""

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
        others = elsewhere(statics, array_types)
        for i, other, array_type in zip(moved, others, array_types, strict=True):
            array_type.assign(other, call.leaves[i])
        instead = {id(call.leaves[i]): other for i, other in zip(moved, others, strict=True)}
        leaves = [instead.get(id(leaf), leaf) for leaf in call.leaves]
        values = [rebuild(value, lambda x: instead.get(id(x), x)) for value in call.values]
        wait(stream)
        super().__init__(function, call._replace(values=values, leaves=leaves), names, recorded, stream)
        self._captured_places = [
            Place(static, array_type, recorded.names[i])
            for i, static, array_type in zip(moved, statics, array_types, strict=True)
        ]
        self._given = {id(other): i for i, other in zip(moved, others, strict=True)}
        self.nan = False

    def replay(self) -> list[Place]:
        """Replay with the captured arrays filled, and check that nobody has touched them."""
        before = [self._filling(place) for place in self._captured_places]
        for place, data in zip(self._captured_places, before, strict=True):
            place.write(self.stream, data)
        wait(self.stream)
        found = super().replay()
        if self._recorded.inputs.copied:
            raise Unproven("no other place could be had for its arrays")
        after = [place.read(self.stream) for place in self._captured_places]
        wait(self.stream)
        for place, data, now in zip(self._captured_places, before, after, strict=True):
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

    def note_written(self, saved: Sequence[bytes], after: Sequence[bytes]) -> None:
        """Note the arguments that runs change, given their contents before and after."""
        changed = zip(self.inputs, saved, after, strict=False)
        found = [self._given.get(id(place.array)) for place, old, new in changed if old != new]
        self._recorded.inputs.note_written(i for i in found if i is not None)


def prove(program: BoundProgram) -> None:
    """Compare replays with eager runs; raise `Unproven` or `Changing` unless they agree."""
    program.check_contents()
    case = Case(Trial(program), None, 2)
    trial = case.trial
    try:
        trial.warm_up()
        case.expected = case.expect()
        trial.capture()
        for data in (None, *case.variations()):
            expected = case.expected if data is None else case.expect(data)
            if any(expected.unstable):
                raise Unproven("eager runs differ among themselves")
            for nan in (True, False):
                program.nan = nan
                wrong = case.mismatches(expected, trial.replay(data))
                if wrong:
                    place = trial.targets[wrong[0].target]
                    raise Unproven(
                        f"a replay with its arrays elsewhere gives another {place.name} than an eager run"
                    )
        program.note_written(trial.saved, case.expected.contents[trial.results :])
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
