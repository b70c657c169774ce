"""The binding of the made-up runtime: functions that return a code and values. It works on the host's memory.

A stream is a thread. Two devices share the memory. Kernels are functions of Python.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial, wraps
from itertools import count
from queue import SimpleQueue
from typing import Any

from accelerator_graph.backends.base import CaptureStatus
from accelerator_graph.backends.recording import Capture, Captures, Recorded, Run, Runs
from accelerator_graph.errors import DriverError

DEVICES = 2
MODES = ("global", "thread_local", "relaxed")


class musaError(IntEnum):
    """Codes with the numbers of CUDA's."""

    musaSuccess = 0
    musaErrorInvalidValue = 1
    musaErrorMemoryAllocation = 2
    musaErrorInvalidHandle = 400
    musaErrorIllegalState = 401
    musaErrorNotReady = 600
    musaErrorStreamCaptureUnsupported = 900
    musaErrorStreamCaptureInvalidated = 901
    musaErrorStreamCaptureUnjoined = 904
    musaErrorStreamCaptureIsolation = 905
    musaErrorStreamCaptureWrongThread = 908


_CODES = {
    "ILLEGAL_STATE": musaError.musaErrorIllegalState,
    "CAPTURE_UNSUPPORTED": musaError.musaErrorStreamCaptureUnsupported,
    "CAPTURE_INVALIDATED": musaError.musaErrorStreamCaptureInvalidated,
    "CAPTURE_UNJOINED": musaError.musaErrorStreamCaptureUnjoined,
    "CAPTURE_ISOLATION": musaError.musaErrorStreamCaptureIsolation,
    "CAPTURE_MERGE": musaError.musaErrorStreamCaptureIsolation,
    "CAPTURE_WRONG_THREAD": musaError.musaErrorStreamCaptureWrongThread,
}


class musaStream_t(int):
    """A handle of a stream."""


class _Captures(Captures):
    """What is refused breaks the capture, and outside relaxed mode its thread has to end it."""

    def refused(self, *captures: Capture | None) -> None:
        for capture in captures:
            if capture is not None:
                capture.status = CaptureStatus.INVALIDATED

    def check_end(self, capture: Capture) -> None:
        if capture.mode != "relaxed" and capture.thread is not threading.current_thread():
            raise self.error("capture_end", "CAPTURE_WRONG_THREAD", "wrong_thread")


_captures = _Captures("musa_stub")
_objects: dict[int, Any] = {}
_handles = count(0x1000, 0x10)
_thread = threading.local()


class _Stream:
    """Work that is done in order, by a thread."""

    place = None

    def __init__(self, device: int) -> None:
        self.device = device
        self.capture: Capture | None = None
        self.queue: SimpleQueue[tuple[Callable[[], object], Callable[[], object]] | None] = SimpleQueue()
        self.unfinished: deque[None] = deque()
        threading.Thread(target=self.serve, daemon=True).start()

    def put(self, work: Callable[[], object], and_then: Callable[[], object] = int) -> None:
        self.unfinished.append(None)
        self.queue.put((work, and_then))

    def serve(self) -> None:
        while (item := self.queue.get()) is not None:
            work, and_then = item
            work()
            self.unfinished.pop()
            and_then()
            del item, work, and_then


class _Event:
    def __init__(self) -> None:
        self.done = threading.Event()
        self.time = 0.0
        self.capture: Capture | None = None
        self.nodes: frozenset[int] = frozenset()

    def set(self) -> None:
        self.time = time.perf_counter()
        self.done.set()


class _Run(Run):
    """A run of an executable: one piece of its stream's work, behind the run before."""

    def __init__(self, work: list[Recorded], stream: _Stream) -> None:
        self.work, self.stream, self.done = work, stream, threading.Event()
        self.previous: _Run | None = None
        super().__init__((partial(stream.unfinished.append, None), partial(stream.queue.put, (self, int))))

    def follow(self, previous: _Run | None) -> None:
        self.previous = previous

    def __call__(self) -> None:
        if self.previous is not None:
            self.previous.done.wait()
            self.previous = None
        for piece in self.work:
            piece.work()
        self.done.set()


def _made(obj: Any, kind: Callable[[int], Any] = int) -> Any:
    handle = kind(next(_handles))
    _objects[int(handle)] = obj
    return handle


def _function(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """Return a code and what a function returns, as the binding does."""

    @wraps(function)
    def answering(*args: Any) -> tuple[Any, ...]:
        try:
            values = function(*args)
        except DriverError as error:
            return (_CODES[str(error.code_name)],)
        except KeyError:
            return (musaError.musaErrorInvalidHandle,)
        if isinstance(values, musaError):
            return (values,)
        if values is None:
            return (musaError.musaSuccess,)
        return (musaError.musaSuccess, *(values if isinstance(values, tuple) else (values,)))

    return answering


def _stream(handle: Any) -> _Stream:
    """Return a stream; the ones that stand for the current device's have one for each device."""
    number = int(handle)
    if number <= 2:
        number = -1 - getattr(_thread, "device", 0)
        if number not in _objects:
            _objects.setdefault(number, _Stream(-1 - number))
    found: _Stream = _objects[number]
    return found


def _enqueue(handle: Any, name: str, work: Callable[[], object]) -> None:
    stream = _stream(handle)
    if not _captures.record(stream, name, work):
        stream.put(work)


# ---- devices -----------------------------------------------------------------------------------------


@_function
def musaGetDeviceCount() -> int:
    return DEVICES


@_function
def musaGetDevice() -> int:
    return int(getattr(_thread, "device", 0))


@_function
def musaSetDevice(device: int) -> None:
    _thread.device = device


@_function
def musaThreadExchangeStreamCaptureMode(mode: int) -> int:
    former: int = getattr(_thread, "mode", 0)
    _thread.mode = mode
    return former


@_function
def musaHostAlloc(nbytes: int, flags: int) -> int:
    memory = (ctypes.c_ubyte * nbytes)()
    _objects[ctypes.addressof(memory)] = memory
    return ctypes.addressof(memory)


# ---- streams and events ------------------------------------------------------------------------------


@_function
def musaDeviceGetStreamPriorityRange() -> tuple[int, int]:
    return 0, -2


@_function
def musaStreamCreateWithPriority(flags: int, priority: int) -> Any:
    return _made(_Stream(getattr(_thread, "device", 0)), musaStream_t)


@_function
def musaStreamDestroy(stream: Any) -> None:
    found = _objects.pop(int(stream))
    if found.capture is not None:
        _captures.refused(found.capture)
    found.queue.put(None)


@_function
def musaStreamGetDevice(stream: Any) -> int:
    return _stream(stream).device


@_function
def musaStreamSynchronize(stream: Any) -> None:
    found, done = _stream(stream), threading.Event()
    _captures.check_waiting(found, "synchronize")
    found.put(int, done.set)
    done.wait()


@_function
def musaStreamQuery(stream: Any) -> Any:
    found = _stream(stream)
    _captures.check_waiting(found, "query")
    return musaError.musaErrorNotReady if found.unfinished else None


@_function
def musaEventCreateWithFlags(flags: int) -> Any:
    return _made(_Event())


@_function
def musaEventRecord(event: Any, stream: Any) -> None:
    found, on = _objects[event], _stream(stream)
    point = _captures.mark(on)
    if point is None:
        on.put(found.set)
    else:
        found.capture, found.nodes = point


@_function
def musaStreamWaitEvent(stream: Any, event: Any, flags: int) -> None:
    found, on = _objects[event], _stream(stream)
    if not _captures.link(on, found):
        on.put(found.done.wait)


@_function
def musaEventQuery(event: Any) -> Any:
    return None if _objects[event].done.is_set() else musaError.musaErrorNotReady


@_function
def musaEventSynchronize(event: Any) -> None:
    _objects[event].done.wait()


@_function
def musaEventElapsedTime(start: Any, end: Any) -> Any:
    events = _objects[start], _objects[end]
    if not all(each.done.is_set() for each in events):
        return musaError.musaErrorNotReady
    return (events[1].time - events[0].time) * 1000


@_function
def musaEventDestroy(event: Any) -> None:
    del _objects[event]


# ---- work --------------------------------------------------------------------------------------------


@_function
def musaMemsetAsync(address: int, value: int, nbytes: int, stream: Any) -> None:
    _enqueue(stream, "fill", partial(ctypes.memset, address, value, nbytes))


@_function
def musaMemcpyAsync(target: int, source: int, nbytes: int, kind: int, stream: Any) -> None:
    _enqueue(stream, "copy", partial(ctypes.memmove, target, source, nbytes))


@_function
def musaLaunchKernel(kernel: int, *args: Any) -> None:
    *_, stream, arguments, _ = args
    types, function = _objects[kernel]
    places = (ctypes.c_void_p * len(types)).from_address(arguments)
    values = [kind.from_address(place).value for kind, place in zip(types, places, strict=True)]
    _enqueue(stream, "launch", partial(function, *values))


def kernel(*types: Any) -> Callable[[Callable[..., object]], int]:
    """Make a kernel of a function, with these types of arguments. Return its handle."""

    def make(function: Callable[..., object]) -> int:
        handle: int = _made((types, function))
        return handle

    return make


# ---- captures and graphs -----------------------------------------------------------------------------


@_function
def musaStreamBeginCapture(stream: Any, mode: int) -> None:
    capture = _captures.begin(_stream(stream), MODES[mode])  # type: ignore[arg-type]
    _objects[id(capture)] = capture


@_function
def musaStreamEndCapture(stream: Any) -> Any:
    capture = _stream(stream).capture
    if capture is None or capture.origin is not _stream(stream):
        return musaError.musaErrorIllegalState
    _objects.pop(id(capture), None)
    return _made(_captures.end(capture))


@_function
def musaStreamIsCapturing(stream: Any) -> int:
    return list(CaptureStatus).index(_captures.status(_stream(stream)))


@_function
def musaStreamGetCaptureInfo(stream: Any) -> tuple[int, int, int]:
    found = _stream(stream)
    info = _captures.info(found)
    status = list(CaptureStatus).index(_captures.status(found))
    return (status, info.id, id(found.capture)) if info else (status, 0, 0)


@_function
def musaGraphGetNodes(graph: Any) -> tuple[list[int], int]:
    found = _objects[graph]
    return [], found.count if isinstance(found, Capture) else len(found)


@_function
def musaGraphInstantiateWithFlags(graph: Any, flags: int) -> Any:
    return _made((_objects[graph], Runs()))


@_function
def musaGraphUpload(executable: Any, stream: Any) -> None:
    _objects[executable], _stream(stream)


@_function
def musaGraphLaunch(executable: Any, stream: Any) -> None:
    (work, runs), on = _objects[executable], _stream(stream)
    _captures.check_waiting(on, "replay")
    runs.enqueue(_Run(work, on))


@_function
def musaGraphDestroy(graph: Any) -> None:
    del _objects[graph]


@_function
def musaGraphExecDestroy(executable: Any) -> None:
    del _objects[executable]


def alive() -> dict[str, int]:
    """Return how many objects live, by the names of their types."""
    return Counter(type(each).__name__ for each in list(_objects.values()))
