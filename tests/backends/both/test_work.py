"""What the CUDA and the HIP backend enqueue: fills, copies and kernels."""

import ctypes
from ctypes import c_float, c_int

import pytest

from accelerator_graph import errors
from backends.tools import diamond, replayed

pytestmark = pytest.mark.usefixtures("no_error_left")


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int8), ("b", ctypes.c_double))


EXPECTED = [i * 0.5 + 3 + 0.25 for i in range(128)]


def test_copy_and_fill(backend, stream, block):
    host = bytearray(b"abcdefgh" * 128)
    backend.copy(stream, block, host, None)
    backend.synchronize(stream)
    assert block.read() == host
    backend.fill(stream, block.pointer, 0, 4)
    backend.fill(stream, block.pointer + 4, 255, 2)
    backend.fill(stream, block, 1, 0)
    back = bytearray(8)
    backend.copy(stream, back, block, 8)
    backend.synchronize(stream)
    assert back == b"\0\0\0\0\xff\xffgh"
    backend.copy(stream, back, block, 0)
    with pytest.raises(ValueError, match="1024"):
        backend.copy(stream, back, block, None)
    with pytest.raises(ValueError, match="read-only"):
        backend.copy(stream, bytes(8), block, 8)
    with pytest.raises(ValueError, match="does not say how large its memory is"):
        backend.fill(stream, block.pointer, 1, None)
    for nothing in (None, "x", object()):
        with pytest.raises(TypeError, match="has no memory that can be found"):
            backend.fill(stream, nothing, 1, None)


def test_refused_work_leaves_a_capture_unhurt(backend, stream, block):
    token = backend.capture_begin(stream, "global")
    with pytest.raises(ValueError, match="bytes, not "):
        backend.fill(stream, block, 1, block.nbytes + 1)
    with pytest.raises(TypeError):
        backend.copy(stream, block, 1.5, None)
    with pytest.raises(TypeError):
        backend.launch(stream, None, grid=1, block=1)
    backend.fill(stream, block, 2, None)
    replayed(backend, backend.capture_end(token), stream)
    assert block.read() == bytes([2] * block.nbytes)


# ---- kernels -------------------------------------------------------------------------------------


def test_a_kernel_gets_its_arguments(bench, backend, stream, block, kernels):
    for kernel in kernels.same:
        for out in bench.pointers(block):
            backend.fill(stream, block, 0, None)
            backend.launch(stream, kernel, out, c_int(128), c_float(0.5), Pair(3, 0.25), grid=2, block=64)
            backend.synchronize(stream)
            assert block.doubles() == EXPECTED


def test_a_kernel_gets_numpy_scalars(backend, stream, block, kernels):
    np = pytest.importorskip("numpy")
    pair = np.zeros((), np.dtype([("a", "i1"), ("b", "f8")], align=True))
    pair["a"], pair["b"] = 3, 0.25
    args = (block, np.int32(128), np.float32(0.5), pair)
    backend.launch(stream, kernels.store, *args, grid=(2,), block=[64, 1])
    backend.synchronize(stream)
    assert block.doubles() == EXPECTED


def test_the_geometry_of_a_launch(backend, stream, block, kernels):
    backend.launch(stream, kernels.geometry, block, grid=(2, 3, 4), block=(8, 4, 2), shared_bytes=128)
    backend.synchronize(stream)
    assert block.words()[:7] == [2, 3, 4, 8, 4, 2, 128]
    with pytest.raises(errors.DriverError, match="LaunchKernel returned"):
        backend.launch(stream, kernels.geometry, block, grid=1, block=100_000)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"grid": 0, "block": 1}, ValueError),
        ({"grid": 1, "block": (1, 1, 1, 1)}, ValueError),
        ({"grid": 1.5, "block": 1}, TypeError),
        ({"grid": 1, "block": 1, "shared_bytes": -1}, ValueError),
        ({"grid": 1, "block": 1, "shared_bytes": True}, TypeError),
    ],
)
def test_a_wrong_geometry_is_refused(backend, stream, block, kernels, wrong, error):
    with pytest.raises(error):
        backend.launch(stream, kernels.geometry, block, **wrong)


def test_wrong_arguments_are_refused(backend, stream, block, kernels):
    for wrong in (3, 0.5, "x", None, [block]):
        with pytest.raises(TypeError, match="argument 1 of the kernel is a"):
            backend.launch(stream, kernels.geometry, block, wrong, grid=1, block=1)
    with pytest.raises(ValueError, match="0 is not the handle of a kernel"):
        backend.launch(stream, 0, grid=1, block=1)


def test_a_recorded_kernel_keeps_the_values_of_its_arguments(backend, stream, block, kernels):
    n = c_int(128)
    token = backend.capture_begin(stream, "thread_local")
    backend.launch(stream, kernels.store, block, n, c_float(0.5), Pair(3, 0.25), grid=2, block=64)
    graph = backend.capture_end(token)
    n.value = 0
    backend.fill(stream, block, 0, None)
    replayed(backend, graph, stream)
    assert block.doubles() == EXPECTED


def test_the_names_of_kernels(backend, stream, other, block, kernels):
    def work(stream, n):
        if n == 1:
            backend.launch(stream, kernels.geometry, block, grid=1, block=1, shared_bytes=64)
        else:
            args = (block, c_int(0), c_float(0), Pair(0, 0))
            backend.launch(stream, kernels.same[n % len(kernels.same)], *args, grid=1, block=1)

    graph = diamond(backend, stream, other, work)
    nodes, edges = backend.nodes(graph)
    names = ("geometry", "store", "store", "store")
    assert sorted((node.kind, node.name) for node in nodes) == [("kernel", name) for name in names]
    assert len(edges) == 4
    backend.destroy_graph(graph)
