"""What the HIP backend enqueues: fills, copies and kernels, with every kind of memory and argument."""

import ctypes
from ctypes import c_float, c_int

import pytest

from accelerator_graph.backends._hip.library import import_hip
from backends.hip.bench import Block, call, made, step
from backends.tools import recorded, replayed

pytest_plugins = ["backends.hip.fixtures"]
pytestmark = pytest.mark.usefixtures("no_error_left")


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int8), ("b", ctypes.c_double))


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "buffer",
    [
        pytest.param(lambda: bytearray(1024), id="bytearray"),
        pytest.param(lambda: memoryview(bytearray(2048))[512:1536], id="memoryview"),
        pytest.param(lambda: (ctypes.c_uint32 * 256)(), id="ctypes"),
        pytest.param(lambda: pytest.importorskip("numpy").zeros((16, 16), "f4"), id="numpy"),
    ],
)
def test_host_memory(backend, stream, block, buffer):
    buffer = buffer()
    backend.fill(stream, block, 0x3C, None)
    backend.copy(stream, buffer, block, None)
    backend.synchronize(stream)
    assert bytes(memoryview(buffer).cast("B")) == b"\x3c" * 1024
    ctypes.memset((ctypes.c_char * 4).from_buffer(buffer), 0x5A, 4)
    backend.copy(stream, block, buffer, None)
    backend.synchronize(stream)
    assert block.read() == b"\x5a" * 4 + b"\x3c" * 1020


def test_pinned_memory(backend, stream, block):
    address = made("hipHostMalloc", 1024, 0)
    backend.fill(stream, address, 7, 1024)
    backend.copy(stream, block, address, 1024)
    backend.synchronize(stream)
    assert block.read() == b"\7" * 1024
    call("hipHostFree", address)


def test_memory_in_a_graph_is_read_at_each_replay(backend, stream, block):
    host = bytearray(1024)
    token = backend.capture_begin(stream, "thread_local")
    backend.copy(stream, block, host, None)
    executable = backend.instantiate(graph := backend.capture_end(token))
    for value in (3, 4):
        host[:] = bytes([value] * 1024)
        backend.replay(executable, stream)
        backend.synchronize(stream)
        assert block.read() == host
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


# ---- the arrays and pointers of hip-python -------------------------------------------------------


@pytest.fixture
def array(backend):
    """Memory of hip-python, whose interface has a type string that nobody understands."""
    code, array = import_hip().hipMalloc(1024)
    assert code == 0
    yield array
    call("hipFree", int(array))


def bytes_of(array):
    found = ctypes.create_string_buffer(1024)
    call("hipMemcpy", found, int(array), 1024, 2)
    return found.raw


def test_arrays_of_hip_python(backend, stream, block, array):
    with pytest.raises((TypeError, ValueError)):
        int(array.__cuda_array_interface__["typestr"][2:])
    backend.fill(stream, array, 1, None)
    backend.fill(stream, array, 2, 16)
    backend.copy(stream, block, array, None)
    backend.synchronize(stream)
    assert block.read() == bytes_of(array) == b"\2" * 16 + b"\1" * 1008
    backend.copy(stream, array, bytes(1024), None)
    backend.synchronize(stream)
    assert bytes_of(array) == bytes(1024)
    with pytest.raises(ValueError, match="has 1024 bytes, not 1025"):
        backend.fill(stream, array, 1, 1025)


def test_arrays_of_hip_python_with_a_shape(backend, stream, array):
    array.configure(typestr="<f4", shape=(16, 16), _force=True)
    backend.fill(stream, array, 9, None)
    backend.synchronize(stream)
    assert bytes_of(array) == b"\t" * 1024


def test_pointers_of_hip_python_are_addresses(backend, stream, array):
    pointer = type(array).__mro__[-2](int(array))
    with pytest.raises(ValueError, match="does not say how large its memory is"):
        backend.fill(stream, pointer, 1, None)
    backend.fill(stream, pointer, 1, 1024)
    backend.copy(stream, pointer, b"xy", None)
    backend.synchronize(stream)
    assert bytes_of(array) == b"xy" + b"\1" * 1022


def test_a_graph_over_hip_python_alone(backend, stream, array):
    replayed(backend, recorded(backend, stream, array, 6), stream)
    assert bytes_of(array) == b"\6" * 1024


# ---- kernels -------------------------------------------------------------------------------------


def test_a_kernel_gets_an_array_of_hip_python(backend, stream, array, kernels):
    backend.launch(stream, kernels.store, array, c_int(128), c_float(0.5), Pair(3, 0.25), grid=2, block=64)
    backend.synchronize(stream)
    assert list(memoryview(bytes_of(array)).cast("d")) == [i * 0.5 + 3 + 0.25 for i in range(128)]


@pytest.mark.parametrize("handle", [0, 2])
def test_work_on_the_default_streams(backend, block, kernels, handle):
    stream = backend.as_stream(handle)
    backend.fill(stream, block, 0, None)
    step(backend, kernels, stream, block, 1, 5)
    other = Block()
    backend.copy(stream, other, block, None)
    backend.synchronize(stream)
    assert other.words()[0] == 5
    other.free()
