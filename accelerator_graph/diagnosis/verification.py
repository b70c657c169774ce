"""`verify`: compare the replays of a graph with eager runs, and name what is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .._core import stream_stack
from .._core.streams import Stream, as_stream, captured_by
from .._graphed.arguments import check_ordinary
from .._graphed.call_order import current_stream
from .._graphed.recorded_call import Capturable, RecordedCall
from .._interpreter import integer, outside
from ..api import Graph
from ..errors import VerificationError, capture_error
from ._verify.case import Case
from ._verify.inquiry import verdict
from ._verify.places import Hanging, patience
from ._verify.program import CantBePutBack, GraphProgram, Program, RecordedProgram
from ._verify.report import Cause, Finding, Verdict, Verification
from ._verify.trial import Trial

_ROUNDS = 4
_TIME_LIMIT = 120.0
_running: list[Trial] = []
"""Trials whose work may never end. Nothing that it uses is given back."""

__all__ = ["Cause", "Finding", "Verdict", "Verification", "verify"]


def verify(
    function: Callable[..., Any] | Graph,
    /,
    *inputs: Any,
    outputs: Any = None,
    reference: Callable[..., Any] | None = None,
    state: Any = None,
    tolerance: float | None = None,
    rounds: int = _ROUNDS,
    examples: Iterable[Sequence[Any]] = (),
    time_limit: float | None = _TIME_LIMIT,
    beside: Any = None,
) -> Verification:
    """Capture a function, or take a graph, and compare replays with eager runs.

    Parameters
    ----------
    function : callable or Graph
        The function. It enqueues work on the current stream, and returns arrays, nested at will. Or a graph
        that you have captured.
    *inputs
        The arguments of the function. For a graph: the arguments of its reference, with the arrays that the
        graph reads.
    outputs
        For a graph: the arrays that it writes, nested as the result of the reference.
    reference : callable
        For a graph: the function that does the same eagerly.
    state : array, module, iterable of them, or dict of them by names, optional
        What else the function reads and writes. By default the arrays that it can reach: the parameters and
        buffers of modules, attributes, variables of the enclosing function and globals that it names.
    tolerance : float, optional
        How far numbers may differ, relative to the largest magnitude in their array. By default not at all,
        if eager runs agree in every bit, and otherwise four times as far as eager runs differ.
    rounds : int
        With how many different arguments to compare, up to 4. The first are yours; the others have your
        floating-point numbers in another order, scaled by at most 1, and once with other signs. Integers are
        never changed.
    examples : iterable of sequences
        Further arguments of yours, with arrays of the same shapes and types: those that take another branch,
        for example.
    time_limit : float, optional
        After how many seconds to begin no further run. What was left out then makes the verdict
        ``"undecided"``. As long may a single run take. None for no limit.
    beside : stream, optional
        A stream to keep busy beside half of the runs that look for races, by fills of memory of its own. By
        default nothing runs beside anything else.

    Returns
    -------
    Verification
        Its verdict is ``"right"`` or ``"undecided"``.

    Raises
    ------
    VerificationError
        The replay is wrong. The error has the report.
    CaptureError
        The function can't be captured.
    TimeoutError
        The work of a single run takes longer than the time limit, and may never end.

    Notes
    -----
    Arguments, state and random numbers are as before at the end, whatever happens; but after a TimeoutError
    no array is touched. Python code that does not return is not covered by the time limit. A function that
    can reach an iterator which can't be put back, such as a generator, is refused with a TypeError.
    """
    rounds = integer(rounds, "rounds")
    if rounds < 1:
        raise ValueError(f"verify: rounds must be at least 1, not {rounds}.")
    if tolerance is not None and not (isinstance(tolerance, int | float) and tolerance >= 0):
        raise ValueError(f"verify: tolerance must be a number of at least 0, not {tolerance!r}.")
    if time_limit is not None and not (isinstance(time_limit, int | float) and time_limit > 0):
        raise ValueError(
            f"verify: time_limit must be a positive number of seconds or None, not {time_limit!r}."
        )
    program = _program(function, inputs, outputs, reference, state)
    if program.stream._is_capturing():
        fact = captured_by(program.stream)
        raise capture_error("verify can't run", reason="foreign_capture", fact=fact)
    busy = None if beside is None else as_stream(beside)
    named = [program.contents_of(each, f"examples[{i}]") for i, each in enumerate(examples)]
    return _verified(program, lambda trial: Case(trial, tolerance, rounds, named), time_limit, busy)


class RecordedCheck:
    """Captures a call of a graphed function, and compares the graph with eager runs that begin like that."""

    def __init__(self, record: Callable[[], RecordedCall], wanted: Capturable) -> None:
        self._record, self._wanted = record, wanted
        self._program: RecordedProgram | None = None
        self._refused = ""

    def record(self) -> RecordedCall:
        """Look at what the function can reach, and capture the call."""
        try:
            self._program = RecordedProgram(self._wanted)
        except CantBePutBack as error:
            self._refused = str(error)
        return self._record()

    def compare(self, recorded: RecordedCall) -> None:
        """Raise VerificationError, and give the graph up, if it is wrong; warn if that can't be decided."""
        try:
            self._compare(recorded)
        except TimeoutError:  # its work may never end, and giving up the graph would wait for it
            raise
        except BaseException:
            recorded.close()
            raise

    def _compare(self, recorded: RecordedCall) -> None:
        if self._program is not None:
            self._program.attach(recorded)
            report = _verified(self._program, lambda trial: Case(trial, None, _ROUNDS), _TIME_LIMIT, None)
            self._refused = report.summary() if report.verdict == "undecided" else ""
        if self._refused:
            warnings.warn(self._refused, RuntimeWarning, stacklevel=outside()[0])


def _verified(
    program: Program, case_of: Callable[[Trial], Case], time_limit: float | None, beside: Stream | None
) -> Verification:
    def run() -> Verification:
        trial, ended = Trial(program, time_limit, beside), True
        try:
            return verdict(case_of(trial))
        except Hanging:
            ended = False
            _running.append(trial)
            raise
        finally:
            trial.put_back(arrays=ended)  # nothing is enqueued behind work that may never end
            if ended:
                program.close()

    token = patience.set(time_limit)
    try:
        report = stream_stack.within(program.stream, run)
    except Hanging:
        raise TimeoutError(
            f"verify: a run of {program.name!r} has not ended within {time_limit:g} s, and may never; its "
            "arrays are not put back, and waiting for its stream or its device may not return."
        ) from None
    finally:
        patience.reset(token)
    if report.verdict == "wrong":
        raise VerificationError(str(report), report=report)
    return report


def _program(
    function: Callable[..., Any] | Graph,
    inputs: Sequence[Any],
    outputs: Any,
    reference: Callable[..., Any] | None,
    state: Any,
) -> Program:
    if isinstance(function, Graph):
        if not callable(reference):
            raise TypeError(
                "verify: a graph is compared with eager runs of a function; pass reference=, and outputs=."
            )
        check_ordinary(reference, "verify")
        return GraphProgram(function, reference, inputs, outputs, state)
    if not callable(function):
        raise TypeError(f"verify: the function must be a callable or a Graph, not {function!r}.")
    if reference is not None or outputs is not None:
        raise TypeError("verify: outputs= and reference= belong to a graph; a function is its own reference.")
    check_ordinary(function, "verify")
    return Program(function, inputs, state, current_stream(problem="verify can't run"))
