"""The calls that can have broken a capture: which are sure to, which can't, and what to say of them."""

from __future__ import annotations

import re
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

from ...errors import BreakingCall
from . import places
from .places import Place, callers, is_passive, stack_of, users, watched, written
from .streams import Streams

Moment = tuple[CodeType, int, bool]
"""A code object, and a line of it (True) or the offset of an instruction (False)."""


class Advice(NamedTuple):
    """What a call does, as a clause that follows its name, and the way out."""

    effect: str
    way_out: str
    scope: str = ""
    """Whose captures it breaks: see `_TABLE`. Empty for those of the thread that makes the call."""


_MOVE = "call it before the capture or after a replay"

_TABLE = rf"""
item|tolist|_local_scalar_dense|__bool__|__float__|__int__|__index__|is_nonzero|equal|allclose
  needs a value on the host, and has to wait for it
  leave the value on the device (where() instead of if), or read it after a replay
nonzero|masked_select|unique|unique_\w+|_unique2|argwhere|bincount|flatnonzero|index(_put)?_?|repeat_interleave
  has a result whose size only the device knows, and has to wait for it
  use an operation whose result has a fixed size, such as where() with three arguments
cpu|numpy|get|asnumpy|toDlpack|__array__|_to_copy|copy_
  copies to or from ordinary host memory, and has to wait for it
  copy after a replay, or into pinned memory without waiting for it
all: (cu|cuda|hip)?(Ctx|Device)Synchronize|_(cuda|accelerator)_synchronize\w*|deviceSynchronize
  waits for the whole device, which breaks the captures of all threads
  wait for a stream or an event, after a replay; in another thread, keep it away from captures with a lock
event: (\w+\.)*(\w*[Ee]vent\w*\.(synchronize|query)|(cu|cuda|hip)Event(Synchronize|Query)(_\w+)?)
  waits for an event, or asks for it, which the capture forbids
  {_MOVE}
stream: \w*[sS]ynchronize|(cu|cuda|hip)StreamSynchronize_\w+
  waits for work that is only being recorded
  {_MOVE}
stream: \w*(Stream|Event)Query|(cu|cuda|hip)StreamQuery_\w+|query|done
  asks whether work is done that is only being recorded
  {_MOVE}
(cu|hip)Stream(GetId|GetFlags|GetDevice)(_v2)?|(cuda|hip)StreamGet(Id|Flags|Device)
  asks about a stream that is being captured, which the driver refuses
  ask before the capture
unsafe: (cu|cuda|hip)(Mem)?(Host)?(Alloc|Malloc)(?!\w*Async)\w*|_?pin_memory|malloc|mallocManaged|hostAlloc
  allocates memory from the driver
  allocate before the capture, or through a framework that takes its memory from the graph's pool
unsafe: (cu|cuda|hip)(Mem)?(Host)?Free(?!\w*Async)\w*|\w*MemPoolTrimTo|(_cuda_)?empty_?[cC]ache|free(Host)?
  gives memory back to the driver, which waits for the device
  free it after the capture
(cu|cuda|hip)Mem(cpy|set)(?!\w*Async)\w*|memcpy|memset
  goes to the legacy default stream, and waits
  use the function that ends with Async, and pass the captured stream to it
unsafe: (cu|cuda|hip)GraphInstantiate\w*|instantiate
  makes an executable of a graph, which allocates
  instantiate the graph before the capture
unsafe: (cu|cuda|hip)GraphExecDestroy
  destroys an executable graph
  keep it until the capture has ended
(cu|cuda|hip)GraphLaunch\w*|replay
  replays a graph into the capture, which the driver refuses
  replay the two graphs one after the other
(cu|cuda|hip)StreamEndCapture|capture_end|endCapture
  ends a capture that this call did not begin
  let the code that began the capture end it
(cu|cuda|hip)StreamBeginCapture\w*|capture_begin|beginCapture
  begins a capture inside another one
  end the first capture before
(cu|cuda|hip)StreamAddCallback|addCallback
  adds a callback of the kind that captures don't permit
  use a host function (cuLaunchHostFunc, cudaLaunchHostFunc, hipLaunchHostFunc)
(cu|cuda|hip)(Module|Library)Unload|unload|moduleUnload
  unloads code from the device
  keep the module until the capture has ended
(cu|cuda|hip)StreamWaitEvent|streamWaitEvent|wait_event|wait_stream|wait
  waits for work outside of the capture
  wait for it before the capture begins, or take its stream into the capture first
backward|run_backward|grad
  runs autograd, whose operations go to the streams that the forward pass was on
  run the forward pass inside the capture too, and warm up on a side stream
collect
  collected garbage whose destruction breaks captures
  collect before the capture; keep graphs that other libraries made until it has ended
(cu|cuda|hip)(Mem\w+Async|Launch\w+)\w*|memcpyAsync|memsetAsync|launchKernel
  goes to a stream that disturbs the capture, such as the legacy default stream
  pass the captured stream to it
"""
"""By the names of functions, as a pattern: what they do, and the way out.

A scope before the pattern says whose captures a call breaks. Those "of all" are those of all threads, in all
modes. A call about a stream or an event breaks the capture that this takes part in, and an "unsafe" one that
of its thread. A capture in mode "global" does not permit them to other threads either, and one in mode
"relaxed" permits them to its own.
"""
_LINES = _TABLE.strip().splitlines()
_ADVICE = [
    (re.compile(pattern), Advice(effect.strip(), way_out.strip(), scope))
    for (scope, _, pattern), effect, way_out in zip(
        (line.rpartition(": ") for line in _LINES[::3]), _LINES[1::3], _LINES[2::3], strict=True
    )
]

_TEST = Advice(
    "tests a value that is on the device, and has to wait for it",
    "leave the decision on the device (where() instead of if)",
)
_DELETION = Advice("destroys an object, which breaks the capture", "keep it until the capture has ended")

_COMMON = re.compile(
    r"get|done|free|collect|grad|unique|equal|instantiate|unload|replay|query|wait|index|copy_"
)
"""Names that many libraries use for something else."""


def _last(name: str) -> str:
    """Return the name of a function without its class, unless the class says what the method does."""
    return "deviceSynchronize" if name.endswith("Device.synchronize") else name.rpartition(".")[2]


def for_call(name: str, *, common: bool = True) -> Advice | None:
    """Return what a function of this name does; None if it is not known to break captures.

    `common` says whether names count that many libraries use for something else.
    """
    last = _last(name)
    if not common and _COMMON.fullmatch(last):
        return None
    for pattern, advice in _ADVICE:
        if pattern.fullmatch(name if advice.scope == "event" else last):
            return advice
    return None


def for_line(text: str, *, raised: bool) -> tuple[str, Advice] | None:
    """Return the first call in a line that is known to break captures, by name; or a statement, without.

    `raised` says whether the line has raised an exception: a test of a value that is on the device does.
    """
    for name in re.findall(r"([A-Za-z_][\w.]*)\s*\(", text):
        advice = for_call(name, common=name == "gc.collect")
        if advice is not None:
            return name if name == "gc.collect" else name.rpartition(".")[2], advice
    if raised and re.match(r"(el)?if\b|while\b|assert\b", text):
        return "", _TEST
    return ("", _DELETION) if re.match(r"del\b", text) else None


# ---- the rules of captures -----------------------------------------------------------------------

_WAITS = re.compile(r"\w*[sS]ynchronize|\w*Query|query|done")
_OF_AN_ARRAY = re.compile(r"(\w+\.)*(item|tolist|get)|float|int|bool|complex|str|repr|print|format")
"""Calls that need the contents of an array of a device; a method ``float`` may only change the type."""


class Rules:
    """What breaks a capture in its mode: ``docs/reference/capture-rules.md``, as far as calls are known."""

    def __init__(self, streams: Streams, mode: str) -> None:
        self.mode = mode
        self._streams = streams

    def breaks(self, name: str, captured: bool | None, elsewhere: bool) -> bool | None:
        """Return whether a call breaks the capture; None if that is not known.

        `captured` says whether the stream that it is about is, and `elsewhere` whether another thread than
        the capturing one makes it.
        """
        advice = for_call(name)
        if advice is None or not advice.scope:
            return None if elsewhere or advice is None else True
        permitted = advice.scope != "all" and (elsewhere or self.mode == "relaxed")
        if captured or self.mode == "global" or not permitted:
            return True
        if self.mode == "default" or not (captured is False or advice.scope == "unsafe"):
            return None  # a stream or an event of the capture can't be told from others
        return False

    def is_captured(self, name: str, first: object) -> bool | None:
        """Return whether a call is about a stream that is captured; None if that is not known."""
        advice = for_call(name)
        if advice is None or advice.scope != "stream" or (isinstance(first, int) and "Stream" not in name):
            return None
        known = map(self._streams.is_captured, first if isinstance(first, list) else [first])
        return next((each for each in known if each is not None), None)

    def foresees(self, call: Suspect) -> bool:
        """Return True if a call that the capturing thread is about to make is sure to break the capture."""
        advice, last = for_call(call.name), _last(call.name)
        scope = "" if advice is None else advice.scope
        captured = self.is_captured(call.name, call.first)
        if scope == "stream" and captured is None:
            return False
        if scope and (scope != "unsafe" or re.match(r"cu|hip", last)):
            return self.breaks(call.name, captured, False) is True
        if not _OF_AN_ARRAY.fullmatch(call.name) or not _is_array(call.first):
            return False
        call.reason = for_call("item")
        return True

    def reason(self, advice: Advice, elsewhere: bool) -> Advice:
        """Return what a call does that waits for a stream that is not captured."""
        verb = "asks about" if advice.effect.startswith("asks") else "waits for"
        if elsewhere:
            return Advice(
                f'{verb} a stream that is not captured, which mode "global" forbids to all threads',
                'capture with capture_error_mode="thread_local"',
            )
        return Advice(
            f"{verb} a stream that is not captured, which the thread that captures may not do",
            f'{_MOVE}, or capture with capture_error_mode="relaxed"',
        )


def _is_array(obj: object) -> bool:
    """Return True for an array of a device; a property may raise anything."""
    try:
        return not isinstance(obj, type) and hasattr(obj, "__cuda_array_interface__")
    except Exception:
        return False


# ---- suspects ------------------------------------------------------------------------------------


@dataclass
class Suspect:
    """A call, or a line without one, that can have broken a capture."""

    stack: list[Place]
    """Where it is, the innermost first."""
    name: str = ""
    """What was called there into C; empty if nothing was, or that is not known."""
    first: object = None
    """Its first argument, or a list of what that may be; None if it is not known, or not needed any more."""
    raised: bool = False
    """The call raised an exception that says that it broke the capture."""
    thread: str = ""
    """The name of the thread, if that is not the one that captures."""
    guessed: bool = False
    """The name was read from the source, since another thread was still in the call."""
    breaks: bool | None = None
    """Whether it breaks the capture, by the rules; None if that is not known."""
    captured: bool | None = None
    """Whether the stream that it is about is captured; None if that is not known."""
    reason: Advice | None = None
    """What it does, if the rules know better than its name."""

    @property
    def place(self) -> Place:
        """The place in the user's code."""
        return users(self.stack)

    @property
    def library(self) -> Place | None:
        """The place in the library that the user called; None if the user's own code made the call."""
        inner = next((place for place in self.stack if not place.is_ours()), self.stack[0])
        return None if inner == self.place else inner

    def look(self, rules: Rules) -> None:
        """Find out which stream the call is about, while that is sure to exist."""
        known = self.advice()
        if known is not None:
            self.captured, self.first = rules.is_captured(known[0], self.first), None
            if self.captured is False:
                self.reason = rules.reason(known[1], bool(self.thread))

    def judge(self, rules: Rules) -> None:
        """Find out by the rules whether it breaks the capture."""
        known = self.advice()
        name = self.name if known is None else known[0]
        if self.raised or (not name and known is not None and not self.thread):
            self.breaks = True
        elif name:
            self.breaks = rules.breaks(name, self.captured, bool(self.thread))

    def advice(self) -> tuple[str, Advice] | None:
        """Return the call that is known to break captures, and what it does; None if none is."""
        found = self._by_name()
        return found if self.reason is None else (self.name if found is None else found[0], self.reason)

    def _by_name(self) -> tuple[str, Advice] | None:
        found = for_call(self.name, common=not self.guessed) if self.name else None
        if found is not None:
            last = _last(self.name)  # a guess has the name that the source has, with the module
            short = self.guessed and found.scope != "event" and self.name.endswith(last)
            return last if short else self.name, found
        called = self.stack[: self.stack.index(self.place)]
        theirs = [place for place in called if not place.is_ours() and not place.is_standard()]
        ours = [place for place in reversed(called) if place.is_ours()]
        for place in (*theirs, *ours):
            found = for_call(place.function, common=place.is_ours())
            if found is not None:
                return place.function, found
        inner = self.library or self.place
        sources = inner.source(), self.place.source()
        found_in = (for_line(source, raised=self.raised) for source in sources)
        return next(filter(None, found_in), None)

    def has_called(self) -> bool:
        """Return True if something was called into C; before Python 3.12, calls in Cython are not seen."""
        return bool(self.name) or (sys.version_info < (3, 12) and "(" in self.place.source())

    def called(self) -> str:
        """Return the call by name, from the user's line to C; empty if it is not known."""
        outer = self.stack[: self.stack.index(self.place)]
        names = [outer[-1].function] if outer else []
        known = self.advice()
        if known is not None and known[0]:
            names.append(known[0])
        elif self.name and not self.guessed:
            names.append(self.name)
        return " > ".join(dict.fromkeys(names))

    def public(self) -> BreakingCall:
        """Return what the error says of it."""
        place, library = self.place, self.library
        inner = None if library is None else (library.file, library.line, library.function)
        return BreakingCall(
            *place,
            self.called(),
            inner,
            self.thread,
            written([each for each in self.stack if not each.is_ours()]),
        )


def culprits(found: list[Suspect], rules: Rules, cause: BaseException | None) -> list[Suspect]:
    """Return those of the suspects that the error has to name: all that can be the cause.

    Those that are sure to break a capture leave out the others, but no call that the capturing thread has
    made. `cause` is what the captured code has raised, if the driver has refused a call of that thread. Its
    traceback can lead into another one, such as a thread of autograd.
    """
    raised = [] if cause is None else [frame[:2] for frame in traceback.extract_tb(cause.__traceback__)]
    for place in reversed(raised):
        there = [each for each in found if each.raised and each.stack[0][:2] == place]
        if there:
            return there
    for each in found:
        each.judge(rules)
    found = [each for each in found if each.breaks is not False]
    if cause is not None:
        found = [each for each in found if not each.thread] or found
    sure = [each for each in found if each.breaks]
    if not sure:
        return found
    if any(not each.thread for each in sure):
        return sure
    return [each for each in found if each.breaks or (not each.thread and each.has_called())]


def after_call(frame: FrameType, function: Any, first: object) -> Suspect | None:
    """Return a call into C that has just returned to a frame; None if it only waited."""
    if places.only_waits(function):
        return None
    owner = getattr(function, "__self__", None)
    first = first if owner is None or isinstance(owner, ModuleType) else owner
    return Suspect(stack_of(frame), places.name_of(function), first)


def raised_by(error: BaseException) -> Suspect:
    """Return the call that an exception comes from."""
    lines = [(frame.f_code, number) for frame, number in traceback.walk_tb(error.__traceback__)]
    stack = [Place(code.co_filename, number, code.co_qualname) for code, number in reversed(lines)]
    return Suspect(stack, raised=True)


def between(frame: FrameType, last: Moment | None) -> Suspect:
    """Return what ran on a thread after the last moment at which all was well: the line of that moment."""
    stack = stack_between(frame, last)
    within = None if last is None else frame_of(frame, last[0])
    if within is None:
        return Suspect(stack)
    called = for_line(stack[0].source(), raised=False)
    first = None if called is None else places.first_argument(stack[0].source(), called[0], within)
    return Suspect(stack, first=first or itself(frame))


def stack_between(frame: FrameType, last: Moment | None) -> list[Place]:
    """Return where the line of a thread's last moment is, and its callers, the innermost first."""
    if last is None:
        return stack_of(frame)
    code, at, is_line = last
    place = Place(code.co_filename, at if is_line else places.line_of(code, at), code.co_qualname)
    within = frame_of(frame, code)
    return [place, *stack_of(frame if within is None else within.f_back)]


def frame_of(frame: FrameType | None, code: CodeType) -> FrameType | None:
    """Return the innermost frame of that code among a frame and its callers."""
    return next((each for each in callers(frame) if each.f_code is code), None)


Positions = dict[int, tuple[str, int, int]]
"""By thread: its name, which frame it is in, and at which instruction."""


def positions() -> Positions:
    """Return where the other threads are that run Python code."""
    names = {each.ident: each.name for each in threading.enumerate()}
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)  # this function's own frame, which would keep itself alive
    return {
        ident: (names[ident], id(frame), frame.f_lasti) for ident, frame in frames.items() if ident in names
    }


def moved(before: Positions) -> list[str]:
    """Return the names of the threads that ran before the capture and meanwhile, and could not be watched.

    Those of this library are left out.
    """
    watched = sys.version_info >= (3, 12)
    now = before if watched else positions()
    names = (each[0] for ident, each in before.items() if now.get(ident) != each)
    return [name for name in names if not name.startswith("accelerator_graph ")]


def others(here: int, capturing: int, last: Mapping[int, Moment], before: Positions) -> list[Suspect]:
    """Return the calls that other threads than this one are in, and that can have broken the capture.

    A thread that is about to ask may have just done it, since the `last` moment at which all was well. One
    that is in the call that it was in `before` the capture has not: calls are refused when they begin.
    """
    found = []
    frames = sys._current_frames()
    frames.pop(here, None)
    for ident, (name, *at) in positions().items():
        frame = frames.get(ident)
        asks = None if frame is None else watched(frame)
        top = asks or next((each for each in callers(frame) if not is_passive(each.f_code)), None)
        if top is None or (sys.version_info >= (3, 12) and ident not in last):
            continue
        stack = stack_of(top) if asks is None else between(asks, last.get(ident)).stack
        if stack[0].is_ours() and all(place.is_ours() or place.is_standard() for place in stack):
            continue  # a worker of this package
        if stack[0].is_standard() and not stack[0].function.endswith("run"):
            continue  # it waits for a lock, a queue, a socket, ...
        known = _known_call(top)
        call = known or (("", None) if asks else places.in_progress(top))
        if call is None or (known is None and before.get(ident) == (name, *at)):
            continue
        called, first = call
        thread = "" if ident == capturing else name
        found.append(Suspect(stack, called, first or itself(top), thread=thread, guessed=True))
    return found


def _known_call(top: FrameType) -> tuple[str, object] | None:
    """Return the innermost call of a thread that is known to break captures."""
    calls = filter(None, map(places.in_progress, callers(top)))
    return next((call for call in calls if call[0] and for_call(call[0], common=False) is not None), None)


def itself(top: FrameType) -> list[object]:
    """Return what methods belong to that wait by their names, the innermost first."""
    return [frame.f_locals.get("self") for frame in callers(top) if _WAITS.fullmatch(frame.f_code.co_name)]
