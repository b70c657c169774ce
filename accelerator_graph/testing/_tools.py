"""What rules use beside a `Case`: their conditions, expected errors, threads, and the result of work."""

from __future__ import annotations

import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from traceback import walk_stack
from types import TracebackType
from typing import Any, Generic, TypeVar

import accelerator_graph as ag
from accelerator_graph.backends.base import Backend, Capability

from ._failure import calls, place

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


def needs(*capabilities: Capability) -> Callable[[T], T]:
    """Mark a rule, or each rule of a class, that is about backends with these capabilities."""

    def mark(marked: T) -> T:
        each: Any
        for each in vars(marked).values() if isinstance(marked, type) else (marked,):
            if callable(each) and each.__name__.startswith("test_"):
                each.needs = (*getattr(each, "needs", ()), *capabilities)
        return marked

    return mark


def lacks(capability: Capability) -> Callable[[T], T]:
    """Mark a rule that is about backends without a capability."""

    def mark(rule: T) -> T:
        rule.lacks = capability  # type: ignore[attr-defined]
        return rule

    return mark


def only_if(condition: Callable[[Backend], object], fact: str) -> Callable[[T], T]:
    """Mark a rule that is about backends for which a condition holds; `fact` is true of all others."""

    def mark(rule: T) -> T:
        rule.only_if = (condition, fact)  # type: ignore[attr-defined]
        return rule

    return mark


def unmet(rule: object, backend: Backend) -> str:
    """Return why a rule is not about a backend; nothing if it is."""
    capabilities = backend.capabilities(0)
    for capability in getattr(rule, "needs", ()):
        if capability not in capabilities:
            return f"backend {backend.name!r} does not have the capability {str(capability)!r}"
    if (capability := getattr(rule, "lacks", None)) in capabilities:
        return f"backend {backend.name!r} has the capability {str(capability)!r}"
    condition, fact = getattr(rule, "only_if", (bool, ""))
    return f"backend {backend.name!r} {fact}" if fact and not condition(backend) else ""


class Hang(AssertionError):
    """A call does not return, and its thread can't be ended: what it holds, later calls may wait for."""


LOOKS = 20
"""How often a thread is looked at within its time limit. On a busy machine, the looks come later, too."""


class Thread(Generic[T]):
    """A function that runs in a thread."""

    def __init__(self, function: Callable[[], T], name: str) -> None:
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function,), name=name, daemon=True)
        self._thread.start()

    def _run(self, function: Callable[[], T]) -> None:
        try:
            self._value.append(function())
        except BaseException as error:
            self._error = error

    def result(self, limit: float) -> T:
        """Return what the function returns, or raise what it raises; fail if it hangs.

        It hangs if it has used no processor for `limit` seconds. A machine that is busy makes no failure,
        unless the thread is not done in five times as long, and half a minute at least.
        """
        idle, before, end = 0, None, time.monotonic() + max(5 * limit, 30.0)
        while time.monotonic() < end:
            self._thread.join(limit / LOOKS)
            if not self._thread.is_alive():
                break
            used = self._used()
            idle, before = (idle + 1 if used == before else 0), used
            if idle >= LOOKS - 1:
                break
        if self._thread.is_alive():
            frames = sys._current_frames()
            stacks = {
                thread: list(reversed(list(walk_stack(frames[thread.ident]))))
                for thread in threading.enumerate()
                if thread.ident in frames and thread is not threading.current_thread()
            }
            stack = stacks.pop(self._thread, [])
            begin = f"thread {self._thread.name!r} hangs in {place(stack)}, after {limit:g} s:"
            lines = [begin, *calls(stack)]
            for thread, stack in stacks.items():
                lines += [f"meanwhile, thread {thread.name!r} is here:", *calls(stack)]
            raise Hang("\n".join(lines))
        error, self._error = self._error, None
        try:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise AssertionError(f"{error!r} came out of thread {self._thread.name!r}") from error
            if error is not None:
                raise error
        finally:
            error = None
        return self._value.pop()

    def _used(self) -> object:
        """Return how much of the processor it has used; where that is not reported, where it is."""
        try:
            return Path(f"/proc/self/task/{self._thread.native_id}/schedstat").read_text().split()[0]
        except OSError:
            frame = sys._current_frames().get(self._thread.ident or 0)
            return frame and (id(frame), frame.f_lasti)


def in_thread(function: Callable[[], T], limit: float, name: str) -> T:
    """Run a function in another thread, which has to end within `limit` seconds."""
    return Thread(function, name).result(limit)


class raises(Generic[E]):
    """Expect an error in a ``with`` block; `error` has it afterwards. `doing` says what must raise it."""

    error: E

    def __init__(self, *kinds: type[E], match: str = "", doing: str = "") -> None:
        self._kinds = kinds
        self._match = match
        self._doing = f" by {doing}" if doing else ""

    def __enter__(self) -> raises[E]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        names = " or ".join(kind.__name__ for kind in self._kinds)
        assert error is not None, f"{names} was not raised{self._doing}"
        if not isinstance(error, self._kinds):
            return False
        assert re.search(self._match, str(error)), f"{str(error)!r} does not match {self._match!r}"
        self.error = error.with_traceback(None)
        return True


def expect(
    kinds: type[E] | tuple[type[E], ...],
    call: Callable[..., object],
    *args: object,
    match: str = "",
    **how: object,
) -> E:
    """Check that a call raises an error whose message matches; return the error."""
    name = getattr(call, "__qualname__", None) or repr(call)
    given = [*map(repr, args), *(f"{key}={value!r}" for key, value in how.items())]
    doing = f"{name}({', '.join(given)})"
    with raises(*(kinds if isinstance(kinds, tuple) else (kinds,)), match=match, doing=doing) as caught:
        call(*args, **how)
    return caught.error


@Integral.register
class Number:
    """An integer that is not an `int`, like NumPy's."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value

    def __int__(self) -> int:
        return self._value


def is_closed(stream: ag.Stream) -> bool:
    """Return True if a stream was closed."""
    try:
        stream.native  # noqa: B018
    except ag.GraphStateError:
        return True
    return False


def is_same(first: ag.Stream | None, second: ag.Stream | None) -> bool:
    """Return True if two are the same stream, or both None."""
    if first is None or second is None or first is second:
        return first is second
    return bool(first.native == second.native)


@contextmanager
def folder() -> Iterator[Path]:
    """Have an empty folder, which is removed at the end."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)
