"""The shim itself, through hip-python: on a GPU, or on the software CUDA driver as far as that goes.

Run by ``python -m simulators.hip_on_cuda``. Kernels, memory, streams and events; devices and errors,
captures and graphs have files of their own.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

from hip import hip, hiprtc

from .calls import (
    LIBRARY,
    SOFTWARE,
    Gate,
    Step,
    answer,
    call,
    checked,
    compiled,
    handle,
    launch,
    raw,
    read,
)

pytest_plugins = ["simulators.hip_on_cuda.fixtures"]


def test_a_kernel_runs(step, cells, stream):
    launch(step, stream, cells, 1, 7)
    launch(step, stream, cells, 10, 1)
    raw("hipStreamSynchronize", stream)
    assert read(cells) == 71


def test_a_kernel_runs_with_its_arguments_in_one_block(step, cells):
    """As hip-python passes them: HIP's mark of the end is not CUDA's."""
    code, *_ = hip.hipModuleLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, None, None, Step(cells, 1, 9).values)
    checked(int(code), "extra")
    raw("hipDeviceSynchronize")
    assert read(cells) == 9


def test_a_compiler_says_what_is_wrong():
    program, code = compiled(b'extern "C" __device__ void step() { this is wrong; }')
    assert code == int(hiprtc.hiprtcResult.HIPRTC_ERROR_COMPILATION)
    log = bytearray(call(hiprtc.hiprtcGetProgramLogSize, program))
    call(hiprtc.hiprtcGetProgramLog, program, log)
    if not SOFTWARE:
        assert b"step.hip(1)" in log
    hiprtc.hiprtcDestroyProgram(program.createRef())


def test_a_function_has_a_name_and_attributes(step):
    LIBRARY.hipKernelNameRef.restype = c_char_p
    assert LIBRARY.hipKernelNameRef(c_void_p(step)) == b"step"
    most = c_int()
    raw("hipFuncGetAttribute", byref(most), c_int(0), step)
    attributes = (c_uint * 14)()
    raw("hipFuncGetAttributes", attributes, step)
    assert most.value == attributes[7] > 0


def test_memory_is_copied_and_filled(cells, stream):
    kinds = hip.hipMemcpyKind
    sent, found = bytes(range(256)), bytearray(256)
    call(hip.hipMemcpy, cells, sent, 256, kinds.hipMemcpyHostToDevice)
    call(hip.hipMemset, cells, 1, 4)
    call(hip.hipMemcpy, cells + 8, cells + 4, 4, kinds.hipMemcpyDeviceToDevice)
    raw("hipMemsetAsync", cells + 12, c_int(2), c_size_t(4), stream)
    raw("hipMemcpyAsync", cells + 16, cells + 4, c_size_t(4), c_int(1024), stream)
    raw("hipStreamSynchronize", stream)
    call(hip.hipMemcpy, found, cells, 256, kinds.hipMemcpyDefault)
    assert found[:20] == b"\1\1\1\1" + bytes(range(4, 8)) * 2 + b"\2\2\2\2" + bytes(range(4, 8))
    assert found[20:] == sent[20:]
    assert answer("hipMemcpy", cells, cells + 4, c_size_t(4), c_int(77)) == 21


def test_memory_is_filled_by_wider_values(cells, stream):
    raw("hipMemsetD16Async", cells, ctypes.c_ushort(0x0102), c_size_t(2), stream)
    raw("hipMemsetD32Async", cells + 4, c_int(-2), c_size_t(1), stream)
    raw("hipStreamSynchronize", stream)
    assert read(cells, 2) == [0x01020102, 0xFFFFFFFE]
    raw("hipMemsetD16", cells, ctypes.c_ushort(3), c_size_t(2))
    raw("hipMemsetD32", cells + 4, c_int(4), c_size_t(1))
    assert read(cells, 2) == [0x00030003, 4]


def test_no_bytes_are_no_memory():
    assert handle("hipMalloc", c_size_t(0)) is None
    raw("hipFree", None)


def test_memory_says_what_it_is(cells):
    raw("hipPointerGetAttributes", found := (c_uint64 * 4)(), cells)
    assert (found[0], found[1]) == (2, cells)  # device memory, of device 0
    host = handle("hipHostMalloc", c_size_t(64), c_uint(0x40000000))
    raw("hipPointerGetAttributes", found, host)
    assert (found[0] & 0xFFFFFFFF, found[2]) == (1, host)
    raw("hipHostFree", host)
    mine = ctypes.create_string_buffer(64)
    raw("hipPointerGetAttributes", found, mine)
    assert found[0] & 0xFFFFFFFF == 0


def test_memory_of_a_pool(stream):
    pool = handle("hipDeviceGetDefaultMemPool", c_int(0))
    raw("hipMemPoolSetAttribute", pool, c_int(4), byref(kept := c_uint64(1 << 20)))
    raw("hipMemPoolGetAttribute", pool, c_int(4), byref(found := c_uint64()))
    assert found.value == kept.value
    memory = handle("hipMallocFromPoolAsync", c_size_t(64), pool, stream)
    raw("hipFreeAsync", memory, stream)
    raw("hipStreamSynchronize", stream)
    raw("hipMemPoolTrimTo", pool, c_size_t(0))


def test_events_order_streams(cells, stream, other, event):
    gate = Gate()
    gate.close(stream)
    try:
        raw("hipMemsetAsync", cells, c_int(1), c_size_t(4), stream)
        raw("hipEventRecord", event, stream)
        raw("hipStreamWaitEvent", other, event, c_uint(0))
        raw("hipMemsetAsync", cells, c_int(2), c_size_t(4), other)
        LIBRARY.hipGetLastError()
        assert answer("hipEventQuery", event) == 600
        assert answer("hipStreamQuery", other) == 600
        assert LIBRARY.hipGetLastError() == 0  # that was no error
    finally:
        gate.opened.set()
    raw("hipStreamSynchronize", other)
    assert answer("hipEventQuery", event) == 0
    assert read(cells) == 0x02020202


def test_streams_have_properties():
    least, greatest = call(hip.hipDeviceGetStreamPriorityRange)
    made = handle("hipStreamCreateWithPriority", c_uint(1), c_int(greatest))
    raw("hipStreamGetPriority", made, byref(priority := c_int(99)))
    raw("hipStreamGetFlags", made, byref(flags := c_uint(99)))
    raw("hipStreamGetId", made, byref(c_uint64()))
    assert (priority.value, flags.value) == (greatest, 1)
    assert greatest <= least
    raw("hipStreamDestroy", made)


def test_events_measure_time(stream):
    start, end = handle("hipEventCreate"), handle("hipEventCreate")
    raw("hipEventRecord", start, stream)
    raw("hipEventRecord", end, stream)
    raw("hipEventSynchronize", end)
    raw("hipEventElapsedTime", byref(elapsed := ctypes.c_float(-1)), start, end)
    assert elapsed.value >= 0
    raw("hipEventDestroy", start)
    raw("hipEventDestroy", end)
