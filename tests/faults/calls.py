"""Which calls of the driver an operation makes, in order, and what each is for."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from accelerator_graph._core import ownership
from accelerator_graph._interpreter.interruptions import Section

from .vendor import vendor

_DRAIN = ownership.drain.__code__
_SECTION = (Section.run.__code__, Section.__enter__.__code__, Section.__exit__.__code__)
"""What sets the context or the mode of the thread, and what sets it back."""


@dataclass(frozen=True)
class Call:
    """One call, the n-th of its function in the operation.

    Attributes
    ----------
    role : str
        ``"work"``; ``"restore"``: it sets the context or the capture mode of the thread back to what it was;
        ``"clean-up"`` and ``"abandon"``: it is there to destroy something or to abandon a capture, and its
        failure stays unsaid;
        ``"handle"``: it is asked whether a handle is one;
        ``"alive"``: likewise, and if it is none any more, that is all right.
    phase : str
        ``"before"``, ``"body"``, ``"breaking"`` (of the capture, on purpose) or ``"after"``; or empty.
    destroys : str
        What is about to be destroyed, and stays if this call fails; empty if nothing is.
    after : frozenset of str
        The functions that were called before.
    """

    function: str
    nth: int
    role: str
    phase: str
    destroys: str
    after: frozenset[str] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.function}-{self.nth}"


class Recorder:
    """Notes what is called."""

    def __init__(self) -> None:
        self._set: set[tuple[str, Any]] = set()
        self.phase = ""
        self.notes: list[tuple[str, str, str, bool]] = []

    def note(self, function: str) -> None:
        frames = list(_frames())
        codes = [frame.f_code for frame in frames]
        destroying = any(code.co_name.startswith("destroy_") or code is vendor.OVER for code in codes)
        role = "work"
        if _DRAIN in codes or vendor.OVER in codes:
            role = "clean-up"
        elif vendor.ABANDON in codes:
            role = "abandon"
        elif any(code.co_name == "as_stream" and "backends" in code.co_filename for code in codes):
            role = "handle"
        elif vendor.asks_whether_alive(function, codes):
            role = "alive"
        elif vendor.unsaid(function, codes):
            role, destroying = "clean-up", function in vendor.DESTROYS
        if function in (vendor.SET_PLACE, vendor.EXCHANGE):
            setting = function, next(frame.f_locals["self"] for frame in frames if frame.f_code in _SECTION)
            if setting in self._set:
                role, destroying = "restore", False
            self._set ^= {setting}
        self.notes.append((function, role, self.phase, destroying))

    def calls(self) -> list[Call]:
        """Return the calls that were noted."""
        found, seen = [], Counter[str]()
        for index, (function, role, phase, destroying) in enumerate(self.notes):
            before = frozenset(seen)
            seen[function] += 1
            later = [each for each, *_ in self.notes[index:] if each in vendor.DESTROYS]
            destroys = vendor.DESTROYS[later[0]] if destroying and later else ""
            found.append(Call(function, seen[function], role, phase, destroys, before))
        return found


def _frames() -> Iterator[Any]:
    frame: Any = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


@contextmanager
def recording() -> Iterator[Recorder]:
    """Note all calls of the backend."""
    recorder = Recorder()
    with vendor.noting(recorder.note):
        yield recorder


def no_phase(_: str = "") -> None:
    """Note no phase."""


Phase = Callable[[str], None]
