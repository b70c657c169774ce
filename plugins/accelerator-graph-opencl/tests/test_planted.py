"""Mistakes planted in the backend, each found by a rule of the kit or a test here that is meant for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyopencl as cl
import pytest
import test_kernels
import test_streams
from accelerator_graph_opencl import OpenclBackend, _commands, _kernel
from accelerator_graph_opencl._command_buffer import CommandBuffer
from accelerator_graph_opencl._devices import Devices
from accelerator_graph_opencl._executable import Executable
from accelerator_graph_opencl._stream import Stream
from accelerator_graph_opencl.conformance import OpenclWork

import accelerator_graph as ag
from accelerator_graph.backends.base import CaptureStatus
from accelerator_graph.backends.recording import Capture, Captures, Event, Runs
from accelerator_graph.testing import BackendConformance, Work
from conftest import Place

Plant = Callable[[pytest.MonkeyPatch], None]


class Kit(BackendConformance):
    __test__ = False

    def work(self) -> Work:
        return OpenclWork()


def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Plant:
    """Replace a function by what `make` makes of it."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, make(getattr(owner, name)))


def nothing(original: Any) -> Any:
    return lambda *arguments: None


def no_buffers(plant: Plant) -> Plant:
    def both(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Devices, "extension", lambda self, ordinal: None)
        plant(monkeypatch)

    return both


def forgetting_the_last_stream(enqueue: Any) -> Any:
    def wrong(self: Executable, stream: Stream) -> None:
        self.runs = Runs()
        enqueue(self, stream)

    return wrong


def running_at_once_as_well(record: Any) -> Any:
    def wrong(self: Captures, stream: Stream, method: str, command: Any) -> bool:
        command.on(stream.handle)()
        return bool(record(self, stream, method, command))

    return wrong


def without_order(end: Any) -> Any:
    def wrong(self: Captures, capture: Capture) -> list[Any]:
        return [each._replace(after=()) for each in end(self, capture)]

    return wrong


def without_the_first(enqueue: Any) -> Any:
    def wrong(self: Executable, stream: Stream) -> None:
        self.nodes = self.nodes[1:]
        enqueue(self, stream)

    return wrong


def in_the_users_kernel(new: Any) -> Any:
    return lambda kernel, name, stream: kernel


def half(kind: str) -> Any:
    def make(record: Any) -> Any:
        def wrong(self: CommandBuffer, found: str, after: Any, arguments: Any) -> int:
            if found == kind:
                *rest, nbytes = arguments
                arguments = (*rest, max(1, nbytes // 2))
            return int(record(self, found, after, arguments))

        return wrong

    return make


def not_forgotten(close: Any) -> Any:
    def wrong(self: Captures, capture: Capture) -> None:
        stream = capture.origin
        close(self, capture)
        stream.capture = capture
        capture.status = CaptureStatus.ACTIVE

    return wrong


def marked_at_once(_: Any) -> Any:
    def mark(self: Stream) -> cl.Event:
        event = cl.UserEvent(self.opencl_context)
        event.set_status(cl.command_execution_status.COMPLETE)
        return event

    return mark


def any_capture(link: Any) -> Any:
    def wrong(self: Captures, stream: Stream, event: Event) -> bool:
        try:
            return bool(link(self, stream, event))
        except ag.DriverError:
            return True

    return wrong


def beside_the_stream(original: Any) -> Any:
    """Let the branches run without waiting for the stream."""

    def wrong(self: CommandBuffer, *where: Any) -> list[Any]:
        import ctypes

        queue = ctypes.c_void_p(self._queue.int_ptr)
        enqueue = self.extension.functions["enqueue"]
        return [lambda: enqueue(1, ctypes.byref(queue), self.handle, 0, None, None), self._queue.flush]

    return wrong


def kept(destroy: Any) -> Any:
    never_released: list[Any] = []

    def wrong(self: OpenclBackend, executable: Executable) -> None:
        never_released.append(executable)
        destroy(self, executable)

    return wrong


def all_of_it(region_of: Any) -> Any:
    return lambda obj, nbytes, stream: region_of(obj, None, stream)


KIT: dict[str, tuple[Plant, str]] = {
    "executables are never released": (
        replaced(OpenclBackend, "destroy_executable", kept),
        "test_captures_and_replays_leave_nothing_alive",
    ),
    "runs overlap on two streams": (
        replaced(Executable, "enqueue", forgetting_the_last_stream),
        "test_runs_on_two_streams_take_turns",
    ),
    "a capture runs the work": (
        replaced(Captures, "record", running_at_once_as_well),
        "test_capturing_does_not_run_the_work",
    ),
    "a capture loses the order": (
        replaced(Captures, "end", without_order),
        "test_nodes_of_a_line",
    ),
    "a replay loses a command": (
        no_buffers(replaced(Executable, "enqueue", without_the_first)),
        "test_each_replay_runs_the_work_once",
    ),
    "a command buffer fills too little": (
        replaced(CommandBuffer, "record", half("memset")),
        "test_fill_and_copy_are_recorded",
    ),
    "a command buffer copies too little": (
        replaced(CommandBuffer, "record", half("memcpy")),
        "test_fill_and_copy_are_recorded",
    ),
    "streams ignore events": (replaced(Stream, "follow", nothing), "test_wait_orders_streams"),
    "events mark nothing": (replaced(Stream, "mark", marked_at_once), "test_wait_orders_streams"),
    "a forked graph ignores its stream": (
        replaced(CommandBuffer, "calls", beside_the_stream),
        "test_random_forks_and_joins_keep_their_order",
    ),
    "unjoined work is lost": (
        replaced(Capture, "is_joined", lambda original: lambda self, work: True),
        "test_unjoined_fork_is_a_capture_error",
    ),
    "a capture never ends": (
        replaced(Captures, "close", not_forgotten),
        "test_capture_status_follows_the_capture",
    ),
    "waits across captures are ignored": (
        replaced(Captures, "link", any_capture),
        "test_wait_for_an_event_of_another_capture_is_refused",
    ),
    "synchronize does not wait": (
        replaced(Stream, "synchronize", nothing),
        "test_stream_runs_work_and_synchronize_waits",
    ),
    "the status is always none": (
        replaced(OpenclBackend, "capture_status", lambda original: lambda self, stream: CaptureStatus.NONE),
        "test_capture_status_follows_the_capture",
    ),
    "query is always true": (
        replaced(OpenclBackend, "query", lambda original: lambda self, stream: True),
        "test_query_says_whether_work_is_done",
    ),
    "query is always false": (
        replaced(OpenclBackend, "query", lambda original: lambda self, stream: False),
        "test_query_says_whether_work_is_done",
    ),
    "a nested graph has no order": (
        replaced(Capture, "add_graph", nothing),
        "test_replay_onto_a_capturing_stream",
    ),
    "wrong memory is not refused": (
        replaced(_commands, "region_of", all_of_it),
        "test_wrong_memory_is_refused_before_anything_is_enqueued",
    ),
}


WITH_COMMAND_BUFFERS = (
    "a command buffer fills too little",
    "a command buffer copies too little",
    "a forked graph ignores its stream",
)
OWN: dict[str, tuple[Plant, Callable[[Place], None]]] = {
    "arguments stay in the user's kernel": (
        replaced(_kernel, "_copy", in_the_users_kernel),
        lambda place: test_kernels.test_the_users_kernel_object_is_left_alone(
            place, test_kernels.in_a_graph(place)
        ),
    ),
    "memory is not retained": (
        no_buffers(replaced(_commands, "_retained", nothing)),
        test_kernels.test_memory_that_its_owner_releases_stays_in_the_graph,
    ),
    "contexts are mixed": (
        replaced(_commands, "check_context", nothing),
        test_streams.test_streams_of_two_contexts_are_refused_together,
    ),
    "work that was enqueued directly is not seen": (
        replaced(Stream, "query", lambda original: lambda self: self._known[1] is None),
        test_streams.test_query_sees_work_that_was_enqueued_directly,
    ),
}


def repeat(rule: Callable[[], None]) -> None:
    """Check a rule several times: on a busy machine, work may be done before somebody looks."""
    for _ in range(10):
        rule()


@pytest.mark.parametrize("mistake", KIT)
def test_the_kit_finds_it(
    mistake: str, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int] | None
) -> None:
    plant, rule = KIT[mistake]
    if version is None and mistake in WITH_COMMAND_BUFFERS:
        pytest.skip("the device has no command buffers")
    getattr(Kit(), rule)()
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises(Exception) as found:  # noqa: PT011
            repeat(getattr(Kit(), rule))
    assert rule in "".join(found.value.__notes__)


@pytest.mark.parametrize("mistake", OWN)
def test_a_test_of_our_own_finds_it(place: Place, mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, test = OWN[mistake]
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises((Exception, pytest.fail.Exception), match=r"assert|DID NOT RAISE|not match"):
            test(place)
