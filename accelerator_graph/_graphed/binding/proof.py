"""The proof of a graph that uses the arrays of each call: its replays give what eager runs do."""

from __future__ import annotations

from collections.abc import Sequence

from ..._arrays.arrays import elsewhere
from ..._arrays.containers import rebuild
from ..._core import stream_stack
from ...diagnosis._verify.case import Case
from ...diagnosis._verify.places import Place, read_all, wait
from ...diagnosis._verify.program import RecordedProgram
from ...diagnosis._verify.trial import Changing, Contents, Trial
from ..recorded_call import Capturable, RecordedCall


class Unproven(Exception):
    """Why nothing is proven."""


class BoundProgram(RecordedProgram):
    """A call with its arrays elsewhere: at one place in eager runs, at another one in replays.

    Each replay finds patterns in the captured arrays, and in those of the eager runs: work outside of the
    graph may have noted their addresses.
    """

    begins_anew = True

    def __init__(self, wanted: Capturable, recorded: RecordedCall) -> None:
        assert recorded.inputs.bound is not None
        call, moved = wanted.call, recorded.inputs.bound.in_order
        array_types = [recorded.inputs.array_types[i] for i in moved]
        statics = [recorded.inputs.arrays[i] for i in moved]
        given, fed = elsewhere(statics, array_types), elsewhere(statics, array_types)
        for i, other, array_type in zip(moved, given, array_types, strict=True):
            array_type.assign(other, call.leaves[i])
        wait(wanted.stream)
        ids = [id(call.leaves[i]) for i in moved]
        eager, replayed = dict(zip(ids, given, strict=True)), dict(zip(ids, fed, strict=True))
        leaves = [replayed.get(id(leaf), leaf) for leaf in call.leaves]
        values = [rebuild(value, lambda x: eager.get(id(x), x)) for value in call.values]
        super().__init__(wanted._replace(call=call._replace(values=values, leaves=leaves)))
        self.attach(recorded)
        places = {id(place.array): place for place in self.inputs}
        own = [places[id(x)] for x in given]
        self._moved = dict(zip(own, moved, strict=True))
        """The arguments that are used where they lie, and their numbers among the arrays of the call."""
        instead = {place: Place(x, place.array_type, place.name) for place, x in zip(own, fed, strict=True)}
        self.fed = [instead.get(place, place) for place in self.inputs]
        captured = [Place(x, place.array_type, place.name) for place, x in zip(own, statics, strict=True)]
        self._unused = [*own, *captured]
        """The arrays that no replay may use."""
        self.filling = b""
        """The byte that these are full of; empty for a pattern."""
        for place in own:
            if not place.elements.floating and not any(read_all(wanted.stream, [place])[0]):
                fact = f"argument {place.name} holds only zeros, with which nothing can be proven"
                raise Unproven(fact)  # whole numbers are replaced by zeros: others might be indices

    def replay(self) -> list[Place]:
        """Replay with the other arrays filled, and check that nobody has touched them."""
        before = [self._filled(place) for place in self._unused]
        for place, data in zip(self._unused, before, strict=True):
            place.write(self.stream, data)
        wait(self.stream)
        found = super().replay()
        if self._recorded.inputs.copied:
            raise Unproven("no other place could be had for its arrays")
        for place, data, now in zip(self._unused, before, read_all(self.stream, self._unused), strict=True):
            if now != data:
                raise Unproven(f"a replay writes to the captured array of argument {place.name}")
        return found

    def _filled(self, place: Place) -> bytes:
        if not place.elements.floating:
            return bytes(place.nbytes)
        return self.filling * place.nbytes or place.pattern(0)

    def unrelated(self, data: Sequence[bytes]) -> Contents:
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
        inputs = self._recorded.inputs
        for place, old, new in zip([*self.inputs, *self.state], before, after, strict=True):
            if old != new and place in self._moved:
                inputs.note_written([self._moved[place]])
            elif old != new and place.extent is not None and inputs.bound is not None:
                inputs.bound.add_own(place.extent)


_NOT_A_NUMBER = b"\xff"
"""A byte of which NaNs consist, in all floating-point types."""


def prove(program: BoundProgram) -> None:
    """Compare replays with eager runs; raise `Unproven` or `Changing` unless they agree."""
    case = Case(Trial(program), None, 2)
    trial = case.trial
    try:
        trial.warm_up()
        case.expected = case.expect()
        trial.capture()
        state = trial.saved[len(program.inputs) :]
        others = ([*program.unrelated(data), *state] for data in case.variations())
        for begin in (trial.saved, *others):
            expected = case.expected if begin is trial.saved else case.expect(begin)
            if any(expected.unstable):
                raise Unproven("eager runs differ among themselves")
            for filling in (_NOT_A_NUMBER, b""):
                program.filling = filling
                wrong = expected.mismatches(trial.replay(begin))
                trial.forget()
                if wrong:
                    name = trial.targets[wrong[0].target].name
                    raise Unproven(
                        f"a replay with its arrays elsewhere gives another {name} than an eager run"
                    )
            program.note_written(begin, expected.contents[trial.results :])
    finally:
        trial.put_back()
        program.close()


def why_unproven(recorded: RecordedCall, wanted: Capturable) -> str:
    """Return why a graph that uses the arrays of each call where they lie is not proven; empty if it is.

    It is if replays with arrays at other places give what eager runs give. Whatever the proof raises is a
    reason, too. After an interrupt, the graph is given up.
    """
    try:
        stream_stack.within(wanted.stream, lambda: prove(BoundProgram(wanted, recorded)))
    except Unproven as error:
        return str(error)
    except Changing:
        return "the arrays in its result are others in every run"
    except Exception as error:
        return f"it could not be compared with an eager run: {type(error).__name__}: {error}".rstrip(".")
    except BaseException:
        recorded.close()
        raise
    return ""
