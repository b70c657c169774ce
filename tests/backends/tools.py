"""What the tests of the CUDA and the HIP backend share: processes, threads, interrupts, small graphs."""

import os
import sys
import threading
from pathlib import Path

import pytest

from accelerator_graph.backends.base import CaptureStatus
from accelerator_graph.errors import BackendUnavailableError
from processes import execute
from threads import in_thread

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = str(ROOT / "accelerator_graph" / "backends")
TIMEOUT = 120
MODES = ("global", "thread_local", "relaxed")


# ---- processes and threads -----------------------------------------------------------------------


def child(code, **variables):
    """Run code in an interpreter of its own; return its status, and what it prints and complains."""
    paths = (str(ROOT), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")]))
    done = execute(
        [sys.executable, "-X", "faulthandler", "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables},
        timeout=TIMEOUT,
    )
    return done.returncode, done.stdout.strip(), done.stderr


def python(code, **variables):
    """Run code in an interpreter of its own and return what it prints."""
    status, printed, complaint = child(code, **variables)
    assert status == 0, complaint
    return printed


def in_threads_of_one_ident(first, second):
    """Run `first` in a thread, then `second` with its answer in another one that was given the same ident."""
    answer, ident = in_thread(lambda: (first(), threading.get_ident()))

    def again():
        if threading.get_ident() != ident:
            return False
        second(answer)
        return True

    assert any(in_thread(again) for _ in range(1000)), "no thread was given the ident"


class Interrupter:
    """Raises KeyboardInterrupt at the n-th place where the interpreter looks for signals.

    It does so when a Python function begins or goes on, and when a C function has returned. The functions
    of the fake driver or runtime, `answered` in that file, stand for C functions; nothing comes between
    them and a C function that calls them.
    """

    def __init__(self, at, fake):
        self.left = at
        self.fake = fake
        self.in_c = False

    def __call__(self, frame, event, arg):
        file = frame.f_code.co_filename
        there = False
        if file == self.fake:
            there = event == "return" and frame.f_code.co_name == "answered" and not self.in_c
        elif file.startswith(BACKENDS) or file.endswith("contextlib.py"):
            there = event in ("call", "c_return")
            self.in_c = event == "c_call"
        if there:
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt


def interrupted(work, at, fake):
    """Run `work`, interrupted at some place. Whether it was."""
    sys.setprofile(Interrupter(at, fake))
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def check_unusable(kind, name, reason):
    """Find that `probe` and `open` give the reason."""
    found = kind.probe()
    assert not found.usable
    assert found.reason.startswith(reason)
    assert not found.reason.endswith(".")
    backend = kind()
    backend.name = name
    with pytest.raises(BackendUnavailableError, match=f"^backend '{name}' is not available: ") as raised:
        backend.open()
    assert raised.value.reasons == {name: found.reason}


# ---- backends and small graphs -------------------------------------------------------------------


def opened(backend_class, name):
    backend = backend_class()
    backend.name = name
    backend.open()
    return backend


def captured(backend, stream, work):
    """A graph of what `work` enqueues."""
    token = backend.capture_begin(stream, "thread_local")
    work()
    return backend.capture_end(token)


def recorded(backend, stream, block, value=7, mode="thread_local"):
    """A graph that fills the block."""
    token = backend.capture_begin(stream, mode)
    backend.fill(stream, block, value, None)
    return backend.capture_end(token)


def replayed(backend, graph, stream):
    """Replay a graph twice, the two ways, wait, and release it."""
    executable = backend.instantiate(graph)
    backend.native_calls(stream).upload(executable)
    backend.native_calls(stream).bind(executable)()
    backend.replay(executable, stream)
    backend.synchronize(stream)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


def prepare(backend, stream):
    """Wait for a stream as the library does ahead of a capture."""
    with backend.relaxed(stream):
        backend.synchronize(stream)


def linked(backend, stream, other):
    """Let `other` wait for `stream`."""
    event = backend.record_event(stream)
    backend.wait_event(other, event)
    backend.destroy_event(event)


def everything(backend, stream, block, path):
    """Call every method once."""
    device = backend.device_of(stream)
    side = backend.create_stream(device, like=stream, priority=-1)
    backend.fill(stream, block, 1, None)
    backend.copy(stream, block, bytes(range(16)), None)
    backend.synchronize(stream)
    assert backend.query(stream)
    for mode in MODES:
        prepare(backend, stream)
        token = backend.capture_begin(stream, mode)
        assert backend.capture_status(stream) is CaptureStatus.ACTIVE
        backend.fill(stream, block, 2, None)
        linked(backend, stream, side)
        assert backend.capture_info(side) == backend.capture_info(stream) is not None
        backend.fill(side, block, 3, 8)
        linked(backend, side, stream)
        graph = backend.capture_end(token)
        assert backend.capture_status(side) is CaptureStatus.NONE
        assert backend.capture_info(stream) is None
        assert len(backend.nodes(graph)[0]) == 2
        backend.dump(graph, str(path), True)
        replayed(backend, graph, stream)
        backend.capture_abandon(backend.capture_begin(stream, mode))
    assert block.read() == bytes([3] * 8 + [2] * (block.nbytes - 8))
    backend.destroy_stream(side)


def diamond(backend, stream, other, work):
    """Capture four pieces of work: the first, two side by side, the last."""
    token = backend.capture_begin(stream, "thread_local")
    work(stream, 0)
    linked(backend, stream, other)
    work(other, 1)
    work(stream, 2)
    linked(backend, other, stream)
    work(stream, 3)
    return backend.capture_end(token)


def check_forked(backend, graph):
    """Find a copy, two fills after it and a fill that joins them."""
    nodes, edges = backend.nodes(graph)
    assert [node.id for node in nodes] == [0, 1, 2, 3]
    assert len(backend.nodes(graph)[0]) == 4
    assert {node.name for node in nodes} == {""}
    (first,) = {node.id for node in nodes} - {edge.target for edge in edges}
    (last,) = {node.id for node in nodes} - {edge.source for edge in edges}
    middle = {node.id for node in nodes} - {first, last}
    assert {node.id: node.kind for node in nodes} == {
        first: "memcpy",
        **dict.fromkeys([*middle, last], "memset"),
    }
    pairs = {(edge.source, edge.target) for edge in edges}
    assert len(pairs) == len(edges)
    assert pairs == {(first, m) for m in middle} | {(m, last) for m in middle}
