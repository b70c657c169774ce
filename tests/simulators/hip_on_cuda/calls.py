"""HIP as the tests of the shim call it: checked, with integers for handles and addresses."""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

import pytest
from hip import hiprtc

TIMEOUT = 60
NOT_SUPPORTED = 801
GLOBAL, THREAD_LOCAL, RELAXED = range(3)

# hip-python has several functions wrong, and some versions keep the interpreter's lock while they wait.
LIBRARY = ctypes.CDLL("libamdhip64.so")
LIBRARY.hipKernelNameRef.restype = ctypes.c_char_p
SOFTWARE = hasattr(ctypes.CDLL("libcuda.so.1"), "driver_unknown_calls")


def checked(code, what):
    if SOFTWARE and code == NOT_SUPPORTED:
        pytest.skip(f"the software CUDA driver lacks what {what} needs")
    assert code == 0, f"{what} answered {code}"


def call(function, *args):
    """Call a function of hip-python and return what it answers besides success."""
    code, *values = function(*args)
    checked(int(code), function.__name__)
    return values[0] if len(values) == 1 else tuple(values)


def raw(name, *args):
    """Call a function of the library by name; integers stand for handles and addresses."""
    checked(answer(name, *args), name)


def answer(name, *args):
    return getattr(LIBRARY, name)(*(c_void_p(arg) if type(arg) is int else arg for arg in args))


def handle(name, *args):
    """Call a function that makes something, whose handle it writes where the first parameter points."""
    made = c_void_p()
    raw(name, byref(made), *args)
    return made.value


def read(address, count=1):
    found = (c_uint * count)()
    raw("hipMemcpy", found, address, c_size_t(4 * count), c_int(2))
    return list(found) if count > 1 else found[0]


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def in_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join(TIMEOUT)
    assert found, "the thread failed or hangs"
    return found[0]


def compiled(source):
    program = call(hiprtc.hiprtcCreateProgram, source, b"step.hip", 0, None, None)
    (code,) = hiprtc.hiprtcCompileProgram(program, 1, [b"--offload-arch=gfx942"])
    return program, int(code)


class Step:
    """The arguments of the kernel, kept alive."""

    def __init__(self, cell, a, b, pause=0):
        self.values = c_void_p(cell), c_uint(a), c_uint(b), c_uint64(pause)
        self.pointers = (c_void_p * 4)(*(ctypes.addressof(value) for value in self.values))


def launch(function, stream, *args):
    one, arguments = c_uint(1), Step(*args)
    raw("hipModuleLaunchKernel", function, *[one] * 6, c_uint(0), stream, arguments.pointers, None)


class Gate:
    """A host function that keeps a stream waiting until it is opened."""

    def __init__(self):
        self.opened = threading.Event()
        self.reached = threading.Event()
        self.function = ctypes.CFUNCTYPE(None, c_void_p)(self._wait)

    def _wait(self, _):
        self.reached.set()
        self.opened.wait(TIMEOUT)

    def close(self, stream):
        raw("hipLaunchHostFunc", stream, self.function, None)
        assert self.reached.wait(TIMEOUT)


def begin(stream, mode=THREAD_LOCAL):
    raw("hipStreamBeginCapture", stream, c_int(mode))


def end(stream):
    graph = c_void_p()
    raw("hipStreamEndCapture", stream, byref(graph))
    assert graph.value
    return graph.value


def handles(function, of):
    raw(function, of, None, byref(count := c_size_t()))
    found = (c_void_p * max(count.value, 1))()
    raw(function, of, found, byref(count))
    return found[: count.value]


def edges(graph):
    raw("hipGraphGetEdges", graph, None, None, byref(count := c_size_t()))
    sources, targets = (c_void_p * count.value)(), (c_void_p * count.value)()
    raw("hipGraphGetEdges", graph, sources, targets, byref(count))
    return set(zip(sources, targets, strict=True))


def kind(node):
    raw("hipGraphNodeGetType", node, byref(found := c_int(-1)))
    return found.value


def executable_of(graph, flags=0):
    made = c_void_p()
    raw("hipGraphInstantiateWithFlags", byref(made), graph, c_uint64(flags))
    return made.value


class KernelParams(ctypes.Structure):
    _fields_ = (
        *(("block", c_uint * 3), ("extra", c_void_p), ("function", c_void_p), ("grid", c_uint * 3)),
        *(("arguments", ctypes.POINTER(c_void_p)), ("shared", c_uint)),
    )
