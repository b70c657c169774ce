"""`verify`: compare the replays of a graph with eager runs, and name what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._graphed.call_order import current_stream
from .._interpreter.integers import integer
from ..errors import VerificationError, capture_error
from .._core.streams import captured_by
from ._verify.inquiry import Inquiry
from ._verify.program import FunctionProgram
from ._verify.report import Cause, Finding, Verdict, Verification
from ._verify.trial import Trial

__all__ = ["Cause", "Finding", "Verdict", "Verification", "verify"]


def verify(
    function: Callable[..., Any],
    /,
    *inputs: Any,
    state: Any = None,
    tolerance: float | None = None,
    rounds: int = 3,
) -> Verification:
    """Capture a function and compare the replays of its graph with eager runs.

    Parameters
    ----------
    function : callable
        The function. It enqueues work on the current stream, and returns arrays, nested at will.
    *inputs
        Its arguments.
    state : iterable of arrays and modules, optional
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
    stream = current_stream()
    if stream._is_capturing():
        raise capture_error("verify can't run", reason="foreign_capture", fact=captured_by(stream))
    program = FunctionProgram(function, inputs, state, stream)
    trial = Trial(program)
    try:
        report = Inquiry(trial, tolerance, rounds).verdict()
    finally:
        trial.put_back()
        program.close()
    if report.verdict == "wrong":
        raise VerificationError(str(report), report=report)
    return report
