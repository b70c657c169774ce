"""A KeyboardInterrupt can arrive at any moment of a call into the backend."""

from __future__ import annotations

import inspect
import os
import sys
from abc import ABC
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from types import FrameType
from typing import Any, TypeVar

from accelerator_graph.backends.base import Backend, Capability, CaptureStatus

from .._case import Case, applied

T = TypeVar("T")


class InterruptRules(Case):
    """Calls that begin or end a capture either complete or have no effect."""

    def test_interrupted_capture_begin_leaves_no_capture(self) -> None:
        """A KeyboardInterrupt at any moment of `capture_begin` leaves no capture on the stream."""
        stream, cell, graph = self.setup()
        for interrupter in interrupters(self.backend):
            try:
                token = interrupter.run(partial(self.begin, stream))
            except KeyboardInterrupt:
                assert self.status(stream) is CaptureStatus.NONE, interrupter.where
                token = self.begin(stream)
            self.enqueue(stream, cell)
            self.backend.capture_abandon(token)
        self.works(stream, graph)
        assert self.read(cell) == 0

    def test_interrupted_capture_end_leaves_no_capture(self) -> None:
        """After a KeyboardInterrupt at any moment of `capture_end`, `capture_abandon` leaves no capture."""
        backend, stream, fork, cell = self.backend, self.stream(), self.stream(), self.cell()
        for interrupter in interrupters(backend):
            token = self.begin(stream)
            self.enqueue(stream, cell)
            if self.has(Capability.EVENTS):
                fork.wait(stream)
                self.enqueue(fork, cell)
                stream.wait(fork)
            try:
                backend.destroy_graph(interrupter.run(partial(backend.capture_end, token)))
            except KeyboardInterrupt:
                backend.capture_abandon(token)
                for each in (stream, fork):
                    assert self.status(each) is CaptureStatus.NONE, interrupter.where
        for each in (stream, fork):
            self.works(each, self.graph(each))
        assert self.read(cell) == 0

    def test_interrupted_replay_is_done_or_not(self) -> None:
        """After a KeyboardInterrupt at any moment of `replay` that run is done or not, and others work."""
        backend, stream, other, cell = self.backend, self.stream(), self.stream(), self.cell()
        with self.executable(stream, cell) as executable:
            for replay in (
                partial(backend.replay, executable, stream.native),
                backend.bind(executable, stream.native),
            ):
                for interrupter in interrupters(backend):
                    before = self.read(cell)
                    with suppress(KeyboardInterrupt):
                        interrupter.run(replay)
                    found = self.read(cell)
                    assert found in (before, applied(1, start=before)), interrupter.where
                    for each in (other, stream):
                        backend.replay(executable, each.native)
                    assert self.read(cell) == applied(2, start=found), interrupter.where

    def test_interrupted_destroy_can_be_called_again(self) -> None:
        """If a ``destroy_`` method is interrupted, it can be called again."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        graphs: list[Any] = []

        def executable() -> Any:
            graphs.append(self.recorded(stream, cell))
            return backend.instantiate(graphs[-1])

        made: list[tuple[Callable[[], Any], Callable[[Any], None]]] = [
            (partial(self.recorded, stream, cell), backend.destroy_graph),
            (executable, backend.destroy_executable),
            (partial(backend.create_stream, 0), backend.destroy_stream),
        ]
        if self.has(Capability.EVENTS):
            made.append((partial(backend.record_event, stream.native), backend.destroy_event))
        for make, destroy in made:
            for interrupter in interrupters(backend):
                value = make()
                try:
                    interrupter.run(partial(destroy, value))
                except KeyboardInterrupt:
                    destroy(value)
        for graph in graphs:
            backend.destroy_graph(graph)
        self.works(stream, self.graph(stream))
        assert self.read(cell) == 0


class Interrupter:
    """Raises KeyboardInterrupt in a call, at the n-th moment at which Python could raise it in the backend.

    These are the beginnings of functions, and the returns from C. `where` says at which it was.
    """

    def __init__(self, backend: Backend, at: int) -> None:
        kinds = set(type(backend).__mro__) - {Backend, ABC, object}
        functions = (each for kind in kinds for each in vars(kind).values() if inspect.isfunction(each))
        codes = (inspect.unwrap(function).__code__ for function in functions)  # else those of the kit's watch
        folders = {os.path.dirname(code.co_filename) + os.sep for code in codes}
        self._folders = tuple(folders)
        self._left = at
        self.where: str = ""

    def run(self, call: Callable[[], T]) -> T:
        """Return the result of a call, if it is not interrupted."""
        before = sys.getprofile()
        sys.setprofile(self._look)
        try:
            return call()
        finally:
            sys.setprofile(before)

    def _look(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        begins = event == "call" and not code.co_flags & inspect.CO_GENERATOR
        if not (begins or event == "c_return") or not code.co_filename.startswith(self._folders):
            return
        if _in_a_finalizer(frame):  # an exception from a finalizer reaches nobody
            return
        self._left -= 1
        if self._left == 0:
            what = f"after {getattr(arg, '__name__', arg)}" if event == "c_return" else "at the beginning"
            self.where = f"interrupted in {code.co_qualname}, line {frame.f_lineno}, {what}"
            raise KeyboardInterrupt


def interrupters(backend: Backend) -> Iterator[Interrupter]:
    """Yield an interrupter for each moment in turn, up to the first one that a call does not reach."""
    for at in count(1):
        interrupter = Interrupter(backend, at)
        yield interrupter
        if not interrupter.where:
            return


def _in_a_finalizer(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None
