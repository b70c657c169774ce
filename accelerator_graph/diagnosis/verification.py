"""`verify`: compare the replays of a graph with eager runs, and name what is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .._arrays.signatures import Call
from .._core import stream_stack
from .._core.call_site import outside
from .._core.streams import Stream, captured_by
from .._graphed.arguments import check_ordinary
from .._graphed.call_order import current_stream
from .._graphed.recorded_call import RecordedCall
from .._interpreter.integers import integer
from ..api import Graph
from ..errors import VerificationError, capture_error
from ._verify import bound
from ._verify.case import Case
from ._verify.given import GraphProgram, RecordedProgram
from ._verify.inquiry import verdict
from ._verify.program import Program
from ._verify.report import Cause, Finding, Verdict, Verification
from ._verify.trial import Trial

_ROUNDS = 3

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
        With how many different arguments to compare. The first are yours; the others have your
        floating-point numbers in another order, and scaled by less than 1. Integers are never changed.

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

    Notes
    -----
    Arguments, state and random numbers are as before at the end, whatever happens.
    """
    rounds = integer(rounds, "rounds")
    if rounds < 1:
        raise ValueError(f"verify: rounds must be at least 1, not {rounds}.")
    if tolerance is not None and not (isinstance(tolerance, int | float) and tolerance >= 0):
        raise ValueError(f"verify: tolerance must be a number of at least 0, not {tolerance!r}.")
    program = _program(function, inputs, outputs, reference, state)
    if program.stream._is_capturing():
        fact = captured_by(program.stream)
        raise capture_error("verify can't run", reason="foreign_capture", fact=fact)
    return _verified(program, tolerance, rounds)


def verify_recorded(
    function: Callable[..., Any], call: Call, names: Sequence[str], recorded: RecordedCall, stream: Stream
) -> None:
    """Compare the graph of a graphed function's call with eager runs; see `graphed`.

    Raises VerificationError if it is wrong, and warns if that can't be decided.
    """
    report = _verified(RecordedProgram(function, call, names, recorded, stream), None, _ROUNDS)
    if report.verdict == "undecided":
        warnings.warn(report.summary(), RuntimeWarning, stacklevel=outside()[0])


def why_unproven(
    function: Callable[..., Any], call: Call, names: Sequence[str], recorded: RecordedCall, stream: Stream
) -> str:
    """Return why a graph that uses the arrays of each call where they lie is not proven; empty if it is.

    It is if replays with arrays at other places give what eager runs give.
    """
    return bound.why_unproven(partial(bound.BoundProgram, function, call, names, recorded, stream), stream)


def _verified(program: Program, tolerance: float | None, rounds: int) -> Verification:
    report = stream_stack.within(program.stream, _run, program, tolerance, rounds)
    if report.verdict == "wrong":
        raise VerificationError(str(report), report=report)
    return report


def _run(program: Program, tolerance: float | None, rounds: int) -> Verification:
    trial = Trial(program)
    try:
        return verdict(Case(trial, tolerance, rounds))
    finally:
        trial.put_back()
        program.close()


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
