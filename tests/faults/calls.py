"""Which calls of the driver an operation makes, in order, and what each is for."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from accelerator_graph import _lifetime
from accelerator_graph.backends import _cuda_capture, registry

DESTROYS = {
    "cuEventDestroy": "events",
    "cuGraphDestroy": "graphs",
    "cuGraphExecDestroy": "executables",
    "cuStreamDestroy": "streams",
}

_ABANDON, _OVER = _cuda_capture.abandon.__code__, _cuda_capture._over.__code__
_DRAIN = _lifetime.drain.__code__


@dataclass(frozen=True)
class Call:
    """One call, the n-th of its function in the operation.

    Attributes
    ----------
    role : str
        ``"work"``; ``"restore"``: it sets the context or the capture mode of the thread back to what it was;
        ``"clean-up"`` and ``"abandon"``: it is there to destroy something or to abandon a capture, and its
        failure stays unsaid.
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
    """Stands for ``cuda.bindings.driver`` and notes what is called."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._changed = {"cuCtxSetCurrent": False, "cuThreadExchangeStreamCaptureMode": False}
        self.phase = ""
        self.notes: list[tuple[str, str, str, bool]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._api, name)
        if not re.match(r"cu[A-Z]", name):
            return found
        function = re.sub(r"_v\d+$", "", name)

        def call(*args: Any) -> Any:
            self._note(function)
            return found(*args)

        setattr(self, name, call)
        return call

    def _note(self, function: str) -> None:
        codes = list(_codes())
        destroying = any(code.co_name.startswith("destroy_") or code is _OVER for code in codes)
        role = "work"
        if _DRAIN in codes or _OVER in codes:
            role = "clean-up"
        elif _ABANDON in codes:
            role = "abandon"
        if function in self._changed:  # forth and back, never nested
            if self._changed[function]:
                role, destroying = "restore", False
            self._changed[function] = not self._changed[function]
        self.notes.append((function, role, self.phase, destroying))

    def calls(self) -> list[Call]:
        """Return the calls that were noted."""
        found, seen = [], Counter[str]()
        for index, (function, role, phase, destroying) in enumerate(self.notes):
            before = frozenset(seen)
            seen[function] += 1
            later = [each for each, *_ in self.notes[index:] if each in DESTROYS]
            destroys = DESTROYS[later[0]] if destroying and later else ""
            found.append(Call(function, seen[function], role, phase, destroys, before))
        return found


def _codes() -> Iterator[Any]:
    frame: Any = sys._getframe(2)
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


@contextmanager
def recording() -> Iterator[Recorder]:
    """Note all calls of the backend."""
    driver = registry.get("cuda")._driver
    api = driver.api
    driver.api = recorder = Recorder(api)
    try:
        yield recorder
    finally:
        driver.api = api


def no_phase(_: str = "") -> None:
    """Note no phase."""


Phase = Callable[[str], None]
