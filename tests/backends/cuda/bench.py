"""What the tests of the CUDA backend start from: the backend, the bare driver, memory and kernels."""

import contextlib
import ctypes
import threading
from functools import cache
from types import SimpleNamespace

import pytest
from cuda.bindings import driver

from accelerator_graph.backends.cuda import CudaBackend
from backends import tools

SOURCE = rb"""
struct pair { signed char a; double b; };
extern "C" __global__ void store(double *out, int n, float f, pair p)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = i * f + p.a + p.b;
}
extern "C" __global__ void geometry(unsigned *out)
{
    extern __shared__ unsigned shared[];
    unsigned dynamic;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic));
    shared[0] = dynamic;
    out[0] = gridDim.x; out[1] = gridDim.y; out[2] = gridDim.z;
    out[3] = blockDim.x; out[4] = blockDim.y; out[5] = blockDim.z; out[6] = shared[0];
}
"""


def call(function, *args):
    """Call the driver and return its values."""
    code, *values = function(*args)
    assert code == 0, (function.__name__, code)
    return values[0] if len(values) == 1 else values or None


def opened():
    return tools.opened(CudaBackend, "cuda")


def need_conditions(backend):
    """Skip the test where the device does not test flags."""
    if "conditions" not in backend.capabilities(0):
        pytest.skip("loops and branches on the device need a driver of CUDA 12.8 or newer")


@cache
def primary_context(device=0):
    return call(driver.cuDevicePrimaryCtxRetain, call(driver.cuDeviceGet, device))


@contextlib.contextmanager
def current(context=None):
    """Make a context current for a while: by default that of device 0."""
    call(driver.cuCtxPushCurrent, primary_context() if context is None else context)
    try:
        yield
    finally:
        call(driver.cuCtxPopCurrent)


def new_context(device=0):
    """Make a context, which is current afterwards."""
    handle = call(driver.cuDeviceGet, device)
    try:
        return call(driver.cuCtxCreate, None, 0, handle)  # since CUDA 13
    except TypeError:
        return call(driver.cuCtxCreate, 0, handle)


# ---- what the tests of both backends ask of a vendor's own functions -----------------------------


on_device = current
"""A block in which the driver's own functions find device 0."""


def last_error():
    """0: the driver knows no last error."""
    return 0


def blocking_stream():
    """A stream of its own that waits for the legacy stream, and a function that destroys it."""
    with current():
        stream = call(driver.cuStreamCreate, 0)
    return int(stream), lambda: call(driver.cuStreamDestroy, stream)


def allocate():
    """Allocate and free, which a capture forbids that is not relaxed. The code."""
    with current():
        code, pointer = driver.cuMemAlloc(64)
        if code == 0:
            call(driver.cuMemFree, pointer)
    return int(code)


def exchange(mode):
    """Set this thread's capture mode, a number, and return the one it had."""
    return int(call(driver.cuThreadExchangeStreamCaptureMode, driver.CUstreamCaptureMode(mode)))


def priorities():
    """The least and the greatest priority that a stream can have."""
    with current():
        return tuple(call(driver.cuCtxGetStreamPriorityRange))


def priority_and_flags(stream):
    return call(driver.cuStreamGetPriority, stream), call(driver.cuStreamGetFlags, stream)


IF = driver.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF
ASSIGN_DEFAULT = 1


def add_conditional(graph, kind=IF, value=1, size=1, after=(), of=None, handle=None):
    """Add a conditional node whose condition has this value at the beginning; return it, and its bodies.

    The condition belongs to the graph `of`, by default to the graph itself; or it has the given handle.
    """
    context = call(driver.cuCtxGetCurrent)
    params = driver.CUgraphNodeParams()
    params.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    params.conditional.handle = handle or call(
        driver.cuGraphConditionalHandleCreate, of or graph, context, value, ASSIGN_DEFAULT
    )
    params.conditional.type, params.conditional.size, params.conditional.ctx = kind, size, context
    add = getattr(driver, "cuGraphAddNode_v2", None)  # for CUDA 12 the binding has two functions
    if add is None:
        node = call(driver.cuGraphAddNode, graph, [*after], None, len(after), params)
    else:
        node = call(add, graph, [*after], [driver.CUgraphEdgeData() for _ in after], len(after), params)
    return node, [driver.CUgraph(int(body)) for body in params.conditional.phGraph_out]


# ---- memory and kernels --------------------------------------------------------------------------


class Block:
    """Device memory in a context of its own choice."""

    def __init__(self, nbytes=1024, context=None):
        self.context, self.nbytes = primary_context() if context is None else context, nbytes
        with current(self.context):
            self.memory = call(driver.cuMemAlloc, nbytes)
        self.pointer = int(self.memory)
        self.__cuda_array_interface__ = {
            "data": (self.pointer, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def read(self):
        host = bytearray(self.nbytes)
        with current(self.context):
            call(driver.cuMemcpyDtoH, host, self.memory, self.nbytes)
        return bytes(host)

    def words(self):
        return list(memoryview(self.read()).cast("I"))

    def doubles(self):
        return list(memoryview(self.read()).cast("d"))

    def free(self):
        with current(self.context):
            call(driver.cuMemFree, self.memory)


@cache
def compiled():
    """The kernels of `SOURCE` for device 0."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    which = driver.CUdevice_attribute
    major, minor = (
        call(driver.cuDeviceGetAttribute, attribute, call(driver.cuDeviceGet, 0))
        for attribute in (
            which.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            which.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    try:
        program = call(nvrtc.nvrtcCreateProgram, SOURCE, b"kernels.cu", 0, [], [])
    except RuntimeError as error:
        pytest.skip(f"NVRTC can't be loaded: {error}")
    options = [f"--gpu-architecture=sm_{major}{minor}".encode()]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = bytearray(call(nvrtc.nvrtcGetProgramLogSize, program))
    call(nvrtc.nvrtcGetProgramLog, program, log)
    assert code == 0, log.decode()
    binary = bytearray(call(nvrtc.nvrtcGetCUBINSize, program))
    call(nvrtc.nvrtcGetCUBIN, program, binary)
    call(nvrtc.nvrtcDestroyProgram, program)
    return bytes(binary)


@contextlib.contextmanager
def kernels():
    """The kernels on device 0: `store`, `geometry`, and other objects that stand for `store`."""
    with current():
        module = call(driver.cuModuleLoadData, compiled())
        library = call(driver.cuLibraryLoadData, compiled(), [], [], 0, [], [], 0)
    store = call(driver.cuModuleGetFunction, module, b"store")
    kernel = call(driver.cuLibraryGetKernel, library, b"store")
    yield SimpleNamespace(
        store=store,
        geometry=call(driver.cuModuleGetFunction, module, b"geometry"),
        kernel=kernel,
        other_kernel=call(driver.cuLibraryGetKernel, library, b"geometry"),
        same=(store, int(store), kernel, SimpleNamespace(handle=store)),
    )
    with current():
        call(driver.cuLibraryUnload, library)
        call(driver.cuModuleUnload, module)


def pointers(block):
    """Objects that stand for the address of a block."""
    return block, driver.CUdeviceptr(block.pointer), ctypes.c_void_p(block.pointer)


def working(stream):
    """Let a stream work until the function that is returned is called."""
    gate = threading.Event()
    passed = []
    wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: passed.append(gate.wait(tools.TIMEOUT)))
    with current():
        call(driver.cuLaunchHostFunc, stream, driver.CUhostFn(_ptr=ctypes.addressof(wait)), 0)
    open_gates.append(wait)
    return gate.set


open_gates = []
"""Functions that the driver may still call."""
