"""`graphed(on_capture_error="break")`: which functions have to be called between the segments of a graph.

Two eager calls are watched for what a capture would not bear. Each such call is put down to the innermost
function around it that is called by its name, and whose results were alike in both.
"""

from __future__ import annotations

import inspect
import sys
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from numbers import Number
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

from .._arrays.containers import leaves_of
from .._arrays.signatures import Reader
from .._breaks.marks import EAGER, mark_until, places_of
from .._interpreter import outside, runs_later
from ..diagnosis._tracing import wording
from ..diagnosis._tracing.foreseen import Foreseen
from ..diagnosis._tracing.observation import Watched, events
from ..diagnosis._tracing.places import Place, callers
from ..diagnosis._tracing.streams import Streams
from ..diagnosis._tracing.suspects import Rules, Suspect
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
        self._caller: CodeType = type(graphed)._run.__code__
        self._own = _codes_of(graphed.__wrapped__)
        self._failed = failed
        for each in (failed, failed.__cause__):  # whose frames hold arrays of the capture
            traceback.clear_frames(None if each is None else each.__traceback__)
        self._reader = Reader(by_value=True)
        self._calls: dict[object, tuple[Suspect, tuple[CodeType, ...]]] = {}
        """What no capture bears, by its place, with the functions around it, the innermost first."""
        self._functions: dict[CodeType, FunctionType | None] = {}
        """The functions that may be breaks; None for code of which there is none by name."""
        self._marked: Sequence[FunctionType] = ()
        """Those that are marked in the present run, to see which are called by their names."""
        self._unnamed: set[CodeType] = set()
        """Those that are called in another way as well, as from a table."""
        self._results: list[defaultdict[CodeType, list[Hashable]]] = []
        """What the results of these functions were, in each run."""
        self._runs = 0

    def is_done(self) -> bool:
        """Return True if enough calls were watched."""
        return self._runs >= _RUNS

    def watch(self, call: Callable[[], R]) -> R:
        """Make an eager call, watched, and return its result."""
        run = _WatchedRun(self)
        self._marked = [each for each in self._functions.values() if each is not None]
        del self._results[self._runs :]  # of a run that was cut short
        self._results.append(defaultdict(list))
        with ExitStack() as stack:
            stack.callback(run.stop)  # an interrupt may have come before the other one
            mark_until(stack, self._marked)
            try:
                run.begin()
                result = call()
            finally:
                run.stop()
        self._runs += 1
        return result

    def seen(self, suspect: Suspect, frame: FrameType) -> list[FrameType]:
        """Note a call that a frame makes, and return the functions around it whose results are wanted.

        These may be breaks. There is none in an eager call.
        """
        stack: list[FrameType] = []
        marked: set[CodeType] = set()
        for each in callers(frame):
            if each.f_code is self._caller:
                break
            if each.f_code is EAGER:
                function: Any = each.f_locals["function"]
                if function not in self._marked:
                    return []
                marked.add(inspect.unwrap(function).__code__)
            else:
                stack.append(each)
        codes = [each.f_code for each in stack]
        times = Counter(codes)
        own = [len(codes) - 1 - codes[::-1].index(each) for each in self._own if each in times]
        inner = stack[: min(own, default=-1)]
        found = [each for each in inner if times[each.f_code] == 1 and self._function(each) is not None]
        around = tuple(each.f_code for each in found)
        if self._runs:
            self._unnamed.update(each for each in around if each not in marked)
        place = suspect.place
        self._calls.setdefault((place.file, place.line, suspect.called(), around), (suspect, around))
        return found

    def _function(self, frame: FrameType) -> FunctionType | None:
        """Return the function in which a frame is, if it can be found by its name."""
        code = frame.f_code
        if code not in self._functions:
            place = Place(code.co_filename, 0, "")
            ordinary = not (place.is_ours() or place.is_standard())
            found: Any = sys.modules.get(str(frame.f_globals.get("__name__"))) if ordinary else None
            for name in code.co_qualname.split("."):
                found = getattr(found, name, None)
            inner: Any = inspect.unwrap(found) if isinstance(found, FunctionType) else None
            good = inner is not None and inner.__code__ is code and not runs_later(inner) and places_of(found)
            self._functions[code] = found if good else None
        return self._functions[code]

    def returned(self, frame: FrameType, result: object) -> None:
        """Note what such a function is about to return."""
        self._results[-1][frame.f_code].append(self._read(frame, result))

    def _read(self, frame: FrameType, result: object) -> Hashable:
        """Return what results like this one have in common; None if a replay may return something else.

        A number or a text may be what was read from the device.
        """
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if self._reader.requires_grad(([frame.f_locals.get(name) for name in names], result)):
            return None
        if any(isinstance(each, Number | str | bytes) for each in leaves_of(result)):
            return None
        try:
            signature = self._reader.read((result,), [])
            hash(signature)
        except Exception:  # it can't be compared
            return None
        return signature

    def _is_break(self, code: CodeType) -> bool:
        first, *others = (each[code] for each in self._results)
        alike = bool(first) and None not in first and all(each == first for each in others)
        return alike and code not in self._unnamed

    def breaks(self) -> list[FunctionType]:
        """Return the functions that have to be called eagerly, and warn which they are.

        Raises
        ------
        CaptureError
            There is no function for one of the calls.
        """
        if not self._calls:
            raise self._error(
                f"{self._failed} Two eager calls were watched, and nothing that the function called is known "
                "to break a capture; mark what does with accelerator_graph.eager."
            )
        reasons: dict[CodeType, str] = {}
        for suspect, around in self._calls.values():
            code = next(filter(self._is_break, around), None)
            if code is None:
                raise self._error(
                    f"{self._name} can't be captured with breaks, since no capture bears "
                    f"{wording.call(suspect)}; or let a function of a module or a class make this call, "
                    "without gradients, that returns nothing but arrays whose shapes do not change, or mark "
                    "one with accelerator_graph.eager.",
                    suspect.public(),
                )
            reasons.setdefault(code, wording.call(suspect))
        lines = [
            f"{code.co_qualname} ({wording.short(code.co_filename)}:{code.co_firstlineno}), since no capture "
            f"bears {reason}."
            for code, reason in reasons.items()
        ]
        warnings.warn(
            "\n  ".join((f"{self._name} is captured with breaks, where every replay calls", *lines)),
            RuntimeWarning,
            stacklevel=outside()[0],
        )
        return [function for code in reasons if (function := self._functions[code]) is not None]

    def _error(self, message: str, *calls: BreakingCall) -> CaptureError:
        error = CaptureError(message, reason=self._failed.reason, calls=calls)
        error.__cause__ = self._failed
        return error


class _WatchedRun(Watched, Foreseen):
    """Reports the calls of this thread that a capture of the current stream would not bear, to a search."""

    def __init__(self, search: BreakSearch) -> None:
        Watched.__init__(self)
        stream = current_stream()
        streams = _AsIfCaptured(stream._backend, stream._native)
        Foreseen.__init__(self, stream._backend, Rules(streams, "default"))
        self.foreseen = self
        self._search = search
        self._open: set[FrameType] = set()
        """The frames whose results are wanted."""

    def begin(self) -> None:
        """Watch this thread from now on."""
        super().begin()
        events.begin(self)

    def stop(self) -> None:
        """Watch no more. May be called again."""
        events.end(self)
        self.leave()
        self._open.clear()

    def at_return(self, frame: FrameType, value: object) -> None:
        """Report the result if it is wanted."""
        self.ends(frame)
        if frame in self._open:
            self._open.remove(frame)
            self._search.returned(frame, value)

    def after_call(self, frame: FrameType, offset: int, function: Any, first: object) -> None:
        """Go on after a call into C."""
        self.ends(frame)

    def _note(self, suspect: Suspect) -> None:
        self._open.update(self._search.seen(suspect, sys._getframe(1)))


class _AsIfCaptured(Streams):
    """The streams of a run that is not captured, whose own stream is taken for one that is."""

    def is_captured(self, obj: Any) -> bool | None:
        """Return True for the run's stream."""
        native = self._native(obj)
        return True if native is not None and self._key(native) == self._own else super().is_captured(obj)


def _codes_of(function: Any) -> set[CodeType]:
    """Return the code that is a function's own, whatever kind of callable it is."""
    forms = (function, type(function).__call__, getattr(function, "forward", None))
    found = [getattr(inspect.unwrap(each), "__code__", None) for each in forms if each is not None]
    return {each for each in found if each is not None}
