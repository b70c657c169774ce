"""`graphed(on_capture_error="break")`: which functions have to be called between the segments of a graph.

Two eager calls are watched for what a capture would not bear. Each such call is put down to the innermost
function around it whose results have had the same structure and shapes in both.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Hashable
from numbers import Number
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

from .._arrays.containers import leaves_of
from .._arrays.signatures import Reader
from .._breaks.marks import EAGER, places_of
from .._interpreter import outside, runs_later
from ..diagnosis._tracing import wording
from ..diagnosis._tracing.eager_runs import EagerRun, Frames
from ..errors import BreakingCall, CaptureError
from .call_order import current_stream

R = TypeVar("R")

_RUNS = 2


class BreakSearch:
    """Watches eager calls of a graphed function, and finds its breaks.

    Parameters
    ----------
    graphed : Graphed
        The graphed function.
    failed : CaptureError
        Why it can't be captured without breaks.
    """

    def __init__(self, graphed: Any, failed: CaptureError) -> None:
        self._name = repr(graphed)
        self._frames = Frames(type(graphed)._run.__code__, _codes_of(graphed.__wrapped__), (EAGER,))
        self._failed = failed
        self._reader = Reader(by_value=True)
        self._runs: list[EagerRun] = []

    def is_done(self) -> bool:
        """Return True if enough calls were watched."""
        return len(self._runs) >= _RUNS

    def watch(self, call: Callable[[], R]) -> R:
        """Make an eager call, watched, and return its result."""
        run = EagerRun(current_stream(), self._frames, self._read)
        try:
            try:
                run.begin()
                result = call()
            finally:
                run.stop()
        finally:
            run.stop()  # an interrupt may have come before the first
        self._runs.append(run)
        return result

    def breaks(self) -> list[FunctionType]:
        """Return the functions that have to be called eagerly, and warn which they are.

        Raises
        ------
        CaptureError
            There is no function for one of the calls.
        """
        reasons: dict[FunctionType, str] = {}
        calls = {key: pair for run in self._runs for key, pair in run.within.items()}
        if not calls:
            raise self._error(
                f"{self._failed} Two eager calls were watched, and nothing that the function called is known "
                "to break a capture; mark what does with accelerator_graph.eager."
            )
        for suspect, codes in calls.values():
            function = next(filter(None, map(self._function, codes)), None)
            if function is None:
                raise self._error(
                    f"{self._name} can't be captured with breaks, since no capture bears "
                    f"{wording.call(suspect)}; or let a function of a module or a class make this call, "
                    "without gradients, that returns nothing but arrays whose shapes do not change, or mark "
                    "one with accelerator_graph.eager.",
                    suspect.public(),
                )
            reasons.setdefault(function, wording.call(suspect))
        lines = [f"{_place(each)}, since no capture bears {reason}." for each, reason in reasons.items()]
        warnings.warn(
            "\n  ".join((f"{self._name} is captured with breaks, where every replay calls", *lines)),
            RuntimeWarning,
            stacklevel=outside()[0],
        )
        return list(reasons)

    def _function(self, code: CodeType) -> FunctionType | None:
        """Return the function with this code if it can be a break."""
        first, *others = [run.results[code] for run in self._runs]
        if not first or None in first or any(each != first for each in others):
            return None
        found: Any = sys.modules.get(next(filter(None, (run.modules.get(code) for run in self._runs)), ""))
        for name in code.co_qualname.split("."):
            found = getattr(found, name, None)
        if not isinstance(found, FunctionType) or not places_of(found):
            return None
        inner: Any = inspect.unwrap(found)
        return found if inner.__code__ is code and not runs_later(inner) else None

    def _error(self, message: str, *calls: BreakingCall) -> CaptureError:
        error = CaptureError(message, reason=self._failed.reason, calls=calls)
        error.__cause__ = self._failed
        return error

    def _read(self, frame: FrameType, result: object) -> Hashable:
        """Return the signature of a result; None if a replay may have to return something else.

        A number or a text may be what was read from the device.
        """
        code = frame.f_code
        given = [
            frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        ]
        if self._reader.requires_grad((given, result)) or any(
            isinstance(each, Number | str | bytes) for each in leaves_of(result)
        ):
            return None
        try:
            signature = self._reader.read((result,), [])
            hash(signature)
        except Exception:
            return None
        return signature


def _place(function: FunctionType) -> str:
    code: CodeType = inspect.unwrap(function).__code__
    return f"{function.__qualname__} ({wording.short(code.co_filename)}:{code.co_firstlineno})"


def _codes_of(function: Any) -> set[CodeType]:
    """Return the code that is a function's own, whatever kind of callable it is."""
    forms = (function, type(function).__call__, getattr(function, "forward", None))
    found = [getattr(inspect.unwrap(each), "__code__", None) for each in forms if each is not None]
    return {each for each in found if each is not None}
