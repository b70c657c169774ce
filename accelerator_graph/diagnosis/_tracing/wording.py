"""The messages of captures that broke."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import BreakingCall, CaptureError, explain
from .places import Place
from .suspects import Suspect

CODES = {
    900: "the operation is not permitted while a stream is captured",
    902: "two captures would have become one",
    903: "the capture was begun on another stream",
    905: "it would wait for work from outside the capture",
    906: "it would have to wait for the legacy default stream",
    907: "it asks for an event of the capture",
}
"""The driver's codes for calls that break a capture, which CUDA and HIP share."""

_BEFORE = 901
"""The code for calls on a capture that is broken already."""
_LINE = 90
_MOVE = "move it out of the captured code"


def broken(
    error: CaptureError,
    subject: str,
    found: Sequence[Suspect],
    last: Suspect,
    cause: BaseException | None,
    unwatched: Sequence[str],
) -> CaptureError:
    """Return the error that names the call that broke the capture, or the calls one of which did.

    If nobody saw one it says so, and names the threads that were not watched. A call of another thread that
    may be innocent is no more than mentioned.
    """
    if all(each.thread and each.breaks is None for each in found):
        places = ", or ".join(_at(each) for each in found)
        where = f"it may have been at {places}" if found else _look_at(unwatched)
        fact = f"failed while {_at(last)} was running, and nobody saw the call that broke it"
        return _with(error, f"{subject} {fact}; {where}.")
    if len(found) == 1:
        message = f"{subject} failed at {_at(found[0])}: {_story(found[0], cause, unwatched)}."
    else:
        places = ", or ".join(_at(each) for each in found)
        message = f"{subject} failed at one of {len(found)} places: {places}; {_MOVE}."
    told = _with(error, message, [each.public() for each in found])
    for each in told.calls:
        if cause is not None and not each.thread:
            continue  # its traceback says as much
        whose = f"thread {each.thread!r}" if each.thread else "the thread that captured"
        told.add_note(f"Where {whose} was when the capture broke:\n{each.stack}")
    return told


def refused(error: CaptureError, subject: str, call: Suspect) -> CaptureError:
    """Return the error that names the call that a framework has refused, which left the capture intact."""
    message = str(error).replace(f"{subject} failed", f"{subject} failed at {_at(call)}", 1)
    return _with(error, message, [call.public()])


def _look_at(unwatched: Sequence[str]) -> str:
    """Return where to look for what was not seen: a clause."""
    if unwatched:
        names = " or ".join(map(repr, unwatched))
        return f"look at thread {names}, which ran meanwhile and can be watched only from Python 3.12 on"
    return (
        "look at threads that run no Python code, at signal handlers and at code that sets a trace function, "
        "and keep them from synchronising the device during captures"
    )


def unjoined(error: CaptureError, subject: str, forks: Sequence[list[Place]]) -> CaptureError:
    """Return the error for a capture with forks, one of which was not joined."""
    found = [Suspect(stack, "") for stack in forks]
    places = ", or ".join(_at(each) for each in found)
    which = "the stream that joined it" if len(found) == 1 else "one of the streams that joined it"
    return _with(
        error,
        f"{subject} did not become a graph: {which} at {places} was not waited for; let the captured stream "
        "wait for it after its last work.",
        [each.public() for each in found],
    )


def every(
    error: CaptureError, subject: str, found: Mapping[Any, Suspect], end: BaseException | None
) -> CaptureError:
    """Return the error that lists all calls that can't be captured, and what ended the list early."""
    calls = [each.public() for each in found.values()]
    lines = [f"{call(each)}." for each in found.values()]
    if isinstance(end, CaptureError):
        calls += end.calls
        if not found:
            return _with(error, f"{end} What follows is not known, since the code could not go on.", calls)
        lines.append(f"The list ends here, since the rest of the code could not be captured: {end}")
    elif end is not None:
        lines.append("The list ends here, since the code has raised this exception.")
    number = f"{len(found)} calls" if len(found) > 1 else "a call"
    lines.insert(0, f"{subject} did not become a graph: {number} of its code can't be captured.")
    return _with(error, "\n  ".join(lines), calls)


def call(suspect: Suspect) -> str:
    """Return where a call is that can't be captured, what it does, and the way out: a clause."""
    return f"{_at(suspect)}: {_story(suspect, None, ())}"


def code_of(cause: BaseException | None) -> tuple[int, str] | None:
    """Return the driver's code in an exception or its causes, and the code's name; None if there is none."""
    for each in _causes(cause):
        for attribute in ("code", "error_code", "status"):  # ours, torch's, CuPy's
            code = getattr(each, attribute, None)
            if isinstance(code, int) and code in CODES:
                return code, str(getattr(each, "code_name", "") or "")
        if "not permitted when stream is capturing" in str(each):
            return 900, ""
    return None


def is_about_captures(error: BaseException) -> bool:
    """Return True if an exception says that its call has broken a capture, and none before had."""
    numbers = [getattr(error, each, None) for each in ("code", "error_code", "status")]
    if _BEFORE in numbers or "previous error during capture" in str(error):
        return False
    return any(isinstance(each, int) and 900 <= each < 909 for each in numbers) or "captur" in str(error)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _story(suspect: Suspect, cause: BaseException | None, unwatched: Sequence[str]) -> str:
    """Return what happened and the way out: a clause."""
    found, source, answer = suspect.advice(), suspect.place.source(), _answer(cause)
    line = f"`{source}`" if 0 < len(source) <= _LINE else "this line"
    if found is not None:
        name, what = found
        seen = name or suspect.raised or suspect.thread or not unwatched
        other = "" if seen else f", or, if it can't be the cause, {_look_at(unwatched)}"
        return f"{name or line} {what.effect}{answer}; {what.way_out}{other}"
    if suspect.raised:
        code = code_of(cause)
        meaning = explain("default_stream") if code is not None and code[0] == 906 else ""
        return f"{line} broke it{answer}; {meaning or _MOVE}"
    subject = suspect.name if suspect.name and not suspect.guessed else line
    return (
        f"{subject} was the last to run before the capture broke; {_MOVE}, or, if it can't be the cause, "
        f"{_look_at(unwatched)}"
    )


def _answer(cause: BaseException | None) -> str:
    code = code_of(cause)
    if code is None:
        return ""
    number, name = code
    return f" (the driver answered {f'{name}, ' if name else ''}{number}: {CODES[number]})"


def _at(suspect: Suspect) -> str:
    place, library = suspect.place, suspect.library
    where = _line(place)
    if library is not None:
        where += f", inside {_line(library)}"
    return f"{where}, on thread {suspect.thread!r}" if suspect.thread else where


def _line(place: Place) -> str:
    return f"{short(place.file)}:{place.line} in {place.function}"


def short(file: str) -> str:
    """Return the name of a file as it is seen from here."""
    return file.removeprefix(os.getcwd() + os.sep)


def _with(error: CaptureError, message: str, found: Sequence[BreakingCall] = ()) -> CaptureError:
    """Return an error with another message."""
    return CaptureError(
        message, reason=error.reason, code=error.code, code_name=error.code_name, calls=tuple(found)
    )
