"""The backend on its own, as the library calls it, and in a process that forks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import (
    Availability,
    Capability,
    CaptureStatus,
)

from .._case import PIECES, Case, applied, expect, lacks, raises


class BackendRules(Case):
    """Facts that a backend states, and behaviour that the library relies on."""

    def test_probe_says_that_the_backend_is_usable(self) -> None:
        """`probe` says that the backend is usable where it runs, and agrees with `device_count`."""
        found, count = type(self.backend).probe(), self.backend.device_count
        assert isinstance(found, Availability)
        assert found.usable, found.reason
        assert all(isinstance(text, str) for pair in found.versions.items() for text in pair), found.versions
        assert count >= 1
        assert found.devices in (None, count)

    def test_capabilities_are_those_that_the_class_inherits(self) -> None:
        """Every device's capabilities are those of the classes that the backend inherits, or some of them."""
        for device in range(self.backend.device_count):
            assert set(self.backend.capabilities(device)) <= self.backend.inherited <= set(Capability)

    def test_streams_are_distinct_and_know_their_device(self) -> None:
        """`create_stream` makes a new stream each time, and `device_of` returns its device."""
        for device in range(self.backend.device_count):
            first, second = self.backend.create_stream(device), self.backend.create_stream(device)
            try:
                assert first is not second
                assert self.backend.device_of(first) == self.backend.device_of(second) == device
                assert self.backend.capture_status(first) is CaptureStatus.NONE
            finally:
                self.backend.destroy_stream(first)
                self.backend.destroy_stream(second)

    def test_capture_status_follows_the_capture(self) -> None:
        """`capture_status` is "active" from `capture_begin` to `capture_end`, and "none" before and after."""
        stream, cell = self.stream(), self.cell()
        token = self.begin(stream)
        assert self.status(stream) is CaptureStatus.ACTIVE
        self.enqueue(stream, cell)
        assert self.status(stream) is CaptureStatus.ACTIVE
        self.backend.destroy_graph(self.backend.capture_end(token))
        assert self.status(stream) is CaptureStatus.NONE
        assert self.read(cell) == 0

    def test_capture_abandon_ends_the_capture(self) -> None:
        """After `capture_abandon` the stream runs work again, and the recorded work is gone."""
        stream, cell, graph = self.setup()
        token = self.begin(stream)
        self.enqueue(stream, cell)
        self.backend.capture_abandon(token)
        self.works(stream, graph)
        assert self.read(cell) == 0

    def test_capture_abandon_twice_is_harmless(self) -> None:
        """`capture_abandon` of an ended capture does nothing, not even to the stream's next capture."""
        stream = self.stream()
        old = self.begin(stream)
        self.backend.capture_abandon(old)
        self.backend.capture_abandon(old)
        ended = self.begin(stream)
        self.backend.destroy_graph(self.backend.capture_end(ended))
        self.backend.capture_abandon(ended)
        with self.undisturbed_capture(stream):
            self.backend.capture_abandon(old)

    def test_capture_end_that_raises_leaves_no_capture(self) -> None:
        """A `capture_end` that raises, for unjoined work or a broken capture, has still ended the capture."""
        stream, fork, third, cell = self.stream(), self.stream(), self.stream(), self.cell()

        def not_joined() -> None:
            fork.wait(stream)
            self.enqueue(fork, cell)

        def joined_too_early() -> None:
            not_joined()
            stream.wait(fork)
            self.enqueue(fork, cell)

        def joined_to_a_fork() -> None:
            fork.wait(stream)
            third.wait(stream)
            for each in (fork, third):
                self.enqueue(each, cell)
            fork.wait(third)
            stream.wait(third)

        def broken() -> None:
            self.refusal(stream.synchronize)

        wrong = [broken]
        if self.has(Capability.EVENTS):
            wrong += [not_joined, joined_too_early, joined_to_a_fork]
        for body in wrong:
            token = self.begin(stream)
            self.enqueue(stream, cell)
            body()
            if body is broken and self.status(stream) is CaptureStatus.ACTIVE:
                self.backend.capture_abandon(token)
                continue
            error = self.refusal(partial(self.backend.capture_end, token))
            if not isinstance(error, ag.DriverError):
                raise AssertionError(f"{body.__name__}: a DriverError was expected, not {error!r}")
            assert error.reason in (("illegal_call", "invalidated") if body is broken else ("unjoined",))
            for each in (stream, fork, third):
                assert self.status(each) is CaptureStatus.NONE, body.__name__
                self.works(each, self.graph(each))
        assert self.read(cell) == 0

    def test_capture_abandon_after_the_end_leaves_the_graph(self) -> None:
        """`capture_abandon` of a capture that has become a graph leaves the graph as it is."""
        backend, stream, cell = self.backend, self.stream(), self.cell()
        token = self.begin(stream)
        self.enqueue(stream, cell)
        graph = backend.capture_end(token)
        backend.capture_abandon(token)
        executable = backend.instantiate(graph)
        backend.replay(executable, stream.native)
        assert self.read(cell) == applied(1)
        backend.destroy_executable(executable)
        backend.destroy_graph(graph)

    def test_executable_outlives_its_graph(self) -> None:
        """An executable works after its graph is destroyed."""
        stream, cell = self.stream(), self.cell()
        with self.executable(stream, cell) as executable:
            self.bound(executable, stream.native)()
            self.backend.replay(executable, stream.native)
            assert self.read(cell) == applied(2)

    def test_runs_complete_after_their_executable_was_destroyed(self) -> None:
        """`destroy_executable` lets runs in progress complete."""
        backend, stream, fork = self.backend, self.stream(), self.stream()
        forked_and_waiting = self.has(Capability.EVENTS), PIECES
        for forks, before in ((False, 0), forked_and_waiting):
            cell, forked = self.cell(), self.cell()
            token = self.begin(stream)
            self.enqueue_slow(stream, cell)
            if forks:
                fork.wait(stream)
                self.enqueue_slow(fork, forked)
                stream.wait(fork)
            graph = backend.capture_end(token)
            executable = backend.instantiate(graph)
            self.enqueue_slow(stream, self.cell(), times=before)
            for _ in range(5):
                backend.replay(executable, stream.native)
            backend.destroy_executable(executable)
            backend.destroy_graph(graph)
            assert self.read(cell) == applied(5)
            assert self.read(forked) == applied(5 if forks else 0)

    @lacks(Capability.ENQUEUE)
    def test_without_the_capability_nothing_is_enqueued(self) -> None:
        """Without "enqueue", `fill`, `copy` and `launch` raise an `UnsupportedError` that says so."""
        stream = self.stream()
        uses: list[Callable[[], None]] = [
            lambda: stream.fill(bytearray(1), 0),
            lambda: stream.copy(bytearray(1), bytearray(1)),
            lambda: stream.launch(print),
        ]
        for use in uses:
            assert expect(ag.UnsupportedError, use).capability == Capability.ENQUEUE

    @lacks(Capability.HANDLES)
    def test_without_handles_there_are_none(self) -> None:
        """Without "handles", `handle` is an `UnsupportedError`, and an int is not a stream."""
        stream = self.stream()
        with raises(ag.UnsupportedError) as caught:
            stream.handle  # noqa: B018
        assert caught.error.capability == Capability.HANDLES
        expect(TypeError, ag.Graph, stream=4096, backend=self.backend.name)

    @lacks(Capability.EVENTS)
    def test_events_without_the_capability_are_unsupported(self) -> None:
        """Without "events", `record` and `query` raise an `UnsupportedError` that says so."""
        stream = self.stream()
        for call in (stream.record, stream.query):
            assert expect(ag.UnsupportedError, call).capability == Capability.EVENTS


USE = """
import importlib, json, os, signal, sys, traceback

path, module, names, name, opened_before, limit = json.loads(sys.argv[1])
sys.path[:] = path
found = importlib.import_module(module)
for each in names.split("."):
    found = getattr(found, each)
before = set(sys._current_frames())
assert found.probe().usable, found.probe().reason
assert set(sys._current_frames()) <= before, "`probe` has started a thread, which no forked child has"

import accelerator_graph as ag

if name not in ag.backends.names():
    ag.backends.register(name, found)
if opened_before:
    ag.backends.get(name)

child = os.fork()
if child:
    sys.exit(os.waitpid(child, 0)[1] != 0)
signal.setitimer(signal.ITIMER_REAL, limit)  # the end of a child that hangs
try:
    if opened_before and not found.survives_fork:
        try:
            ag.backends.get(name)
        except ag.errors.BackendUnavailableError:
            os._exit(0)
        raise AssertionError("the child got a backend that its parent had opened")
    backend = ag.backends.get(name)
    stream = backend.create_stream(0)
    graph = backend.capture_end(backend.capture_begin(stream, backend.capture_modes[0]))
    executable = backend.instantiate(graph)
    backend.replay(executable, stream)
    backend.synchronize(stream)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)
    backend.destroy_stream(stream)
except BaseException:
    traceback.print_exc()
    os._exit(1)
os._exit(0)
"""


class ProcessRules(Case):
    """A process that has only probed can fork."""

    def test_child_of_a_process_that_has_probed_can_use_the_backend(self) -> None:
        """`probe` initialises nothing: after it, a forked child can open the backend, capture and replay."""
        self._in_a_child(opened_before=False)

    def test_child_of_a_process_that_has_opened_the_backend_can_use_it_or_is_told(self) -> None:
        """After its parent has opened the backend, a forked child can use it or gets an error."""
        self._in_a_child(opened_before=True)

    def _in_a_child(self, *, opened_before: bool) -> None:
        if not hasattr(os, "fork"):
            raise SkipTest("this system has no fork")
        kind = type(self.backend)
        found: object = sys.modules.get(kind.__module__)
        for name in kind.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is not kind or kind.__module__ == "__main__":
            raise SkipTest(f"another process can't import {kind.__qualname__} from {kind.__module__}")
        name, limit = self.backend.name, 2 * self.patience
        facts = json.dumps([sys.path, kind.__module__, kind.__qualname__, name, opened_before, limit])
        try:
            done = subprocess.run(
                [sys.executable, "-W", "ignore::DeprecationWarning", "-c", USE, facts],
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the child was still running after {limit:g} s") from None
        if done.returncode:
            raise AssertionError(f"this failed in the child:\n{done.stderr}")
