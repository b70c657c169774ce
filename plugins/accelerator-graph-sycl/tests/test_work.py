"""`Stream.launch`, `Stream.fill` and `Stream.copy`: what they take, and what they refuse."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ctypes import c_double, c_int, c_uint32, c_uint64
from itertools import pairwise
from typing import Any

import dpctl
import numpy as np
import pytest
from accelerator_graph_sycl._memory import memory_of
from accelerator_graph_sycl.conformance import SyclWork
from dpctl.memory import MemoryUSMDevice, MemoryUSMHost, MemoryUSMShared
from dpctl.program import create_program_from_source, create_program_from_spirv

import accelerator_graph as ag

KERNELS = """
kernel void where(global int *out)
{
    size_t i = get_global_id(1) * get_global_size(0) + get_global_id(0);
    out[4 * i] = get_global_id(0);
    out[4 * i + 1] = get_global_id(1);
    out[4 * i + 2] = get_local_size(0);
    out[4 * i + 3] = get_local_size(1);
}
kernel void add(global int *out, int summand) { out[0] += summand; }
"""


@pytest.fixture
def kernel(stream: ag.Stream) -> Callable[[str], Any]:
    program = create_program_from_source(stream.native, KERNELS)
    return lambda name: program.get_sycl_kernel(name)


def shared(count: int) -> tuple[Any, Any]:
    """Return shared memory for ints, and an array over it."""
    memory = MemoryUSMShared(4 * count)
    array = np.frombuffer(memoryview(memory), np.int32)
    array[:] = 0
    return memory, array


def test_a_kernel_runs_or_is_recorded(stream: ag.Stream, kernel: Any) -> None:
    memory, found = shared(1)
    stream.launch(kernel("add"), memory, c_int(2))
    stream.synchronize()
    assert found[0] == 2
    with ag.Graph(stream=stream, keep_graph=True) as graph:
        stream.launch(kernel("add"), memory, c_int(3))
    assert (found[0], graph.num_nodes) == (2, 1)
    graph.replay()
    graph.replay()
    stream.synchronize()
    assert found[0] == 8


def test_the_last_size_is_dimension_0_of_opencl_c(stream: ag.Stream, kernel: Any) -> None:
    memory, found = shared(4 * 6)
    for local, groups in ((None, None), ((1, 3), (3, 1)), ((2, 1), (1, 2))):
        stream.launch(kernel("where"), memory, global_size=(2, 3), local_size=local)
        stream.synchronize()
        rows = found.reshape(6, 4)
        assert [tuple(row[:2]) for row in rows] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
        if groups:
            assert {tuple(row[2:]) for row in rows} == {groups}


def test_sizes_may_be_any_integers(stream: ag.Stream, kernel: Any) -> None:
    memory, found = shared(4 * 6)
    stream.launch(kernel("where"), memory, global_size=np.int64(6), local_size=[np.int32(2)])
    stream.synchronize()
    assert list(found.reshape(6, 4)[:, 0]) == [0, 1, 2, 3, 4, 5]


def spirv() -> bytes:
    """Return a kernel ``add_seven(global uint *out)`` that adds 7, in SPIR-V."""
    name = struct.unpack("<3I", b"add_seven".ljust(12, b"\0"))
    void, uint, pointer, function, seven, kernel, out, label, before, after = range(1, 11)
    instructions: list[tuple[int, ...]] = [
        (17, 4),  # OpCapability Addresses
        (17, 6),  # OpCapability Kernel
        (14, 2, 2),  # OpMemoryModel Physical64 OpenCL
        (15, 6, kernel, *name),  # OpEntryPoint Kernel
        (19, void),  # OpTypeVoid
        (21, uint, 32, 0),  # OpTypeInt
        (32, pointer, 5, uint),  # OpTypePointer CrossWorkgroup
        (33, function, void, pointer),  # OpTypeFunction
        (43, uint, seven, 7),  # OpConstant
        (54, void, kernel, 0, function),  # OpFunction
        (55, pointer, out),  # OpFunctionParameter
        (248, label),  # OpLabel
        (61, uint, before, out, 2, 4),  # OpLoad Aligned 4
        (128, uint, after, before, seven),  # OpIAdd
        (62, out, after, 2, 4),  # OpStore Aligned 4
        (253,),  # OpReturn
        (56,),  # OpFunctionEnd
    ]
    words = [0x07230203, 0x00010000, 0, after + 1, 0]
    for code, *operands in instructions:
        words += [(1 + len(operands)) << 16 | code, *operands]
    return struct.pack(f"<{len(words)}I", *words)


def test_a_kernel_from_spirv(stream: ag.Stream) -> None:
    memory, found = shared(1)
    found[0] = 1
    kernel = create_program_from_spirv(stream.native, spirv()).get_sycl_kernel("add_seven")
    with ag.Graph(stream=stream) as graph:
        stream.launch(kernel, memory)
    graph.replay()
    graph.replay()
    stream.synchronize()
    assert found[0] == 15


@pytest.mark.parametrize(
    ("error", "match", "how"),
    [
        (ValueError, "does not divide", {"global_size": 8, "local_size": 3}),
        (ValueError, "does not divide", {"global_size": (8, 8), "local_size": 4}),
        (ValueError, "the kernel allows", {"global_size": 1 << 20, "local_size": 1 << 20}),
        (ValueError, "one to three", {"global_size": 0}),
        (ValueError, "one to three", {"global_size": (1, 1, 1, 1)}),
        (ValueError, "one to three", {"global_size": ()}),
        (ValueError, "one to three", {"global_size": 4, "local_size": 0}),
        (TypeError, "integer", {"global_size": 1.5}),
        (TypeError, "grid", {"grid": 1}),
    ],
)
def test_wrong_sizes_leave_a_capture_as_it_was(
    stream: ag.Stream, kernel: Any, error: type[Exception], match: str, how: dict[str, Any]
) -> None:
    memory, found = shared(1)
    with ag.Graph(stream=stream, keep_graph=True) as graph:
        with pytest.raises(error, match=match):
            stream.launch(kernel("add"), memory, c_int(1), **how)
        stream.launch(kernel("add"), memory, c_int(1))
    assert graph.num_nodes == 1
    graph.replay()
    stream.synchronize()
    assert found[0] == 1


def test_wrong_arguments_leave_a_capture_as_it_was(stream: ag.Stream, kernel: Any) -> None:
    memory, found = shared(1)
    wrong: list[tuple[str, tuple[Any, ...]]] = [
        ("takes 2 arguments, not 1", (memory,)),
        ("takes 2 arguments, not 3", (memory, c_int(1), c_int(1))),
        ("kernel argument", (memory, 1)),
        ("kernel argument", (np.zeros(1, np.int32), c_int(1))),
    ]
    with ag.Graph(stream=stream, keep_graph=True) as graph:
        for match, arguments in wrong:
            with pytest.raises(TypeError, match=match):
                stream.launch(kernel("add"), *arguments)
        with pytest.raises(TypeError, match=r"not a dpctl\.program\.SyclKernel"):
            stream.launch(print)
        stream.launch(kernel("add"), memory, c_int(1))
    assert graph.num_nodes == 1
    graph.replay()
    stream.synchronize()
    assert found[0] == 1


def test_an_argument_of_a_wrong_size_is_an_error(stream: ag.Stream, kernel: Any) -> None:
    """The runtime finds it when the kernel runs or, in a capture, when the graph is finalized."""
    memory, found = shared(1)
    with pytest.raises(ag.DriverError, match=r"submit returned SyclKernelSubmitError: kernel 'add' .* types"):
        stream.launch(kernel("add"), memory, c_double(1))
    graph = ag.Graph(stream=stream)
    with pytest.raises(ag.DriverError, match=r"finalize returned runtime .*ARGUMENT_SIZE"), graph:
        stream.launch(kernel("add"), memory, c_uint64(1))
    assert graph.state == "empty"
    stream.launch(kernel("add"), memory, c_uint32(1))
    stream.synchronize()
    assert found[0] == 1


def test_copies_between_all_kinds_of_memory(stream: ag.Stream) -> None:
    """A graph copies host memory as it is at each replay."""
    source, target = np.arange(8, dtype=np.uint8), np.zeros(8, np.uint8)
    between = [kind(8) for kind in (MemoryUSMDevice, MemoryUSMHost, MemoryUSMShared)]
    with ag.Graph(stream=stream) as graph:
        stream.copy(between[0], source)
        for before, after in pairwise(between):
            stream.copy(after, before)
        stream.copy(target, between[-1])
    for start in (0, 10):
        source[:] = np.arange(start, start + 8)
        graph.replay()
        stream.synchronize()
        assert list(target) == list(source)


def test_only_usm_memory_can_be_filled(stream: ag.Stream) -> None:
    """The runtime crashes if it is given host memory to fill."""
    with pytest.raises(TypeError, match="not USM memory"):
        stream.fill(bytearray(4), 1)


def test_memory_of_another_context_is_refused(stream: ag.Stream) -> None:
    device = dpctl.SyclDevice()
    other = dpctl.SyclQueue(dpctl.SyclContext([device]), device)
    foreign, own = MemoryUSMDevice(4, queue=other), MemoryUSMDevice(4)
    host = np.zeros(4, np.uint8)
    wrong: list[Callable[[], None]] = [
        lambda: stream.fill(foreign, 1),
        lambda: stream.copy(foreign, own),
        lambda: stream.copy(own, foreign),
        lambda: stream.fill(host.ctypes.data, 1, 4),
    ]
    with ag.Graph(stream=stream, keep_graph=True) as graph:
        for call in wrong:
            with pytest.raises(ValueError, match="no USM memory of the stream's context"):
                call()
        stream.fill(own, 1)
    assert graph.num_nodes == 1


class Array:
    """An array in USM memory, as dpnp and others describe theirs."""

    def __init__(self, memory: Any, **changes: Any) -> None:
        self.__sycl_usm_array_interface__ = {
            "data": (memory._pointer, False),
            "shape": (2, 2),
            "strides": None,
            "typestr": "<u4",
            "version": 1,
            "syclobj": memory.sycl_queue,
            **changes,
        }


def test_arrays_in_usm_memory(stream: ag.Stream) -> None:
    memory, found = shared(8)
    stream.fill(Array(memory), 1)
    stream.fill(Array(memory, offset=4, strides=(2, 1), shape=(1, 2)), 2)
    stream.fill(Array(memory, offset=6, strides=(9, 1), shape=(1, 2)), 3, 4)
    stream.synchronize()
    assert [int(value) & 0xFF for value in found] == [1, 1, 1, 1, 2, 2, 3, 0]
    pointer = memory._pointer
    assert memory_of(Array(memory), None, writable=True, host=False) == (pointer, 16)
    assert memory_of(Array(memory, strides=(2, 1)), None, writable=True, host=False) == (pointer, 16)
    assert memory_of(pointer, 3, writable=True, host=False) == (pointer, 3)
    assert memory_of(b"", None, writable=False, host=True).nbytes == 0
    assert memory_of(b"abc", 2, writable=False, host=True).nbytes == 2


@pytest.mark.parametrize(
    ("error", "match", "changes"),
    [
        (ValueError, "not contiguous", {"strides": (1, 2)}),
        (ValueError, "not contiguous", {"strides": (4, 1)}),
        (ValueError, "read-only", {"data": (4096, True)}),
    ],
)
def test_arrays_that_can_not_be_written(
    stream: ag.Stream, error: type[Exception], match: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(error, match=match):
        stream.fill(Array(shared(4)[0], **changes), 1)


@pytest.mark.parametrize(
    ("error", "match", "memory", "nbytes"),
    [
        (ValueError, "read-only", b"abcd", None),
        (ValueError, "not contiguous", np.zeros((4, 4))[:, 1], None),
        (ValueError, "pass nbytes", 4096, None),
        (ValueError, "has 4 bytes, not 5", bytearray(4), 5),
        (ValueError, "there are no", 0, 4),
        (TypeError, "no memory", object(), None),
    ],
)
def test_memory_that_can_not_be_written(
    error: type[Exception], match: str, memory: Any, nbytes: int | None
) -> None:
    with pytest.raises(error, match=match):
        memory_of(memory, nbytes, writable=True, host=True)


def test_memory_that_a_graph_copies_lives_as_long_as_it(stream: ag.Stream, work: SyclWork) -> None:
    target = work.buffer(1 << 16)
    with ag.Graph(stream=stream) as graph:
        stream.copy(target, np.full(1 << 16, 7, np.uint8))
        stream.copy(target, bytes([8]) * 10)
    others = [np.full(1 << 16, 9, np.uint8) for _ in range(10)]
    graph.replay()
    stream.synchronize()
    assert work.read_bytes(target) == bytes([8]) * 10 + bytes([7]) * ((1 << 16) - 10)
    del others


@pytest.mark.filterwarnings("ignore::accelerator_graph.EmptyGraphWarning")
def test_an_empty_graph_in_a_graph_changes_no_order(stream: ag.Stream) -> None:
    work, empty = SyclWork(), ag.Graph(stream=stream)
    with empty:
        pass
    for _ in range(20):
        cell, graph = work.new(), ag.Graph(stream=stream)
        with graph:
            work.enqueue(stream, cell, 3, 0)
            empty.replay(stream)
            work.enqueue(stream, cell, 1, 1)
        graph.replay()
        stream.synchronize()
        assert work.read(cell) == 1
