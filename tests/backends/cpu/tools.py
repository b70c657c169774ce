"""What the tests of the cpu backend share."""

import threading

import pytest

from accelerator_graph.backends._cpu.worker import WorkerThread
from accelerator_graph.backends.base import CaptureStatus
from accelerator_graph.errors import DriverError

LIMIT = 120  # seconds, for everything that waits
MODES = ["global", "thread_local", "relaxed"]
staying = set()
"""Threads that were there before the test."""


def everyone():
    return [thread for thread in threading.enumerate() if isinstance(thread, WorkerThread)]


def workers():
    """Return the threads that this test has started."""
    return [thread for thread in everyone() if thread not in staying]


def no_workers_left():
    for thread in workers():
        thread.join(LIMIT)
    return not workers()


def refused(reason, function, *args):
    with pytest.raises(DriverError) as caught:
        function(*args)
    assert (caught.value.reason, caught.value.backend, caught.value.code) == (reason, "cpu", None)
    assert caught.value.code_name
    return caught.value


def fork(backend, source, target):
    event = backend.record_event(source)
    backend.wait_event(target, event)
    backend.destroy_event(event)


def nothing_captures(backend, streams):
    return all(backend.capture_status(stream) is CaptureStatus.NONE for stream in streams)
