"""The software CUDA driver itself: devices, launches, times, pools and what addresses say.

Run by test_on_software_driver.py.
"""

from __future__ import annotations

import ctypes
import threading

import pytest
from cuda.bindings import driver

from backends.works.cuda import KERNEL, call
from simulators.cuda.tools import TIMEOUT, read, wait_until

ATTRIBUTES = driver.CUpointer_attribute
LIBRARY = ctypes.CDLL("libcuda.so.1")


@pytest.fixture
def stream(live):
    stream = call(driver.cuStreamCreate, 1)
    yield stream
    call(driver.cuStreamDestroy, stream)


@pytest.fixture
def cell(live):
    memory = call(driver.cuMemAlloc, 64)
    call(driver.cuMemsetD8, memory, 0, 64)
    call(driver.cuCtxSynchronize)
    yield int(memory)
    call(driver.cuMemFree, memory)


@pytest.fixture
def step(live):
    module = call(driver.cuModuleLoadData, KERNEL)
    yield int(call(driver.cuModuleGetFunction, module, b"step"))
    call(driver.cuModuleUnload, module)


def word(address):
    return ctypes.c_uint32.from_address(address).value


# ---- devices and kernels -------------------------------------------------------------------------


def test_devices(live):
    names = {call(driver.cuDeviceGetName, 64, number).rstrip(b"\0") for number in range(2)}
    uuids = {bytes(call(driver.cuDeviceGetUuid, number).bytes) for number in range(2)}
    assert (len(names), len(uuids)) == (2, 2)
    assert call(driver.cuDeviceTotalMem, 0) == driver.cuMemGetInfo()[2]
    numbers = driver.CUdevice_attribute
    for attribute, value in (
        (numbers.CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
        (numbers.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9),
        (numbers.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
        (numbers.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1),
        (numbers.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0),
    ):
        assert call(driver.cuDeviceGetAttribute, attribute, 0) == value
    for function, arguments in (
        (driver.cuDeviceGetName, (64,)),
        (driver.cuDeviceGetUuid, ()),
        (driver.cuDeviceTotalMem, ()),
        (driver.cuDeviceGetAttribute, (numbers.CU_DEVICE_ATTRIBUTE_WARP_SIZE,)),
        (driver.cuDeviceGetDefaultMemPool, ()),
    ):
        assert int(function(*arguments, 7)[0]) == 101


class Block(ctypes.Structure):
    """The parameters of the kernel, one after another."""

    _fields_ = (
        *(("cell", ctypes.c_uint64), ("a", ctypes.c_uint32), ("b", ctypes.c_uint32)),
        *(("pause", ctypes.c_uint64),),
    )


def launch(step, stream, *extra, parameters=None):
    """Launch with `extra`, which cuda-python has no way to build."""
    values = (ctypes.c_void_p * (len(extra) + 1))(*extra, None)
    sizes = [ctypes.c_uint(1)] * 6
    where = ctypes.c_uint(0), ctypes.c_void_p(int(stream))
    return LIBRARY.cuLaunchKernel(ctypes.c_void_p(step), *sizes, *where, parameters, values)


def test_parameters_in_one_block(stream, step, cell):
    block = Block(cell, 1, 9, 0)
    address = ctypes.addressof(block)
    nbytes, less = (ctypes.c_size_t(ctypes.sizeof(Block) - missing) for missing in (0, 1))
    assert launch(step, stream, 1, address, 2, ctypes.addressof(nbytes)) == 0
    call(driver.cuStreamSynchronize, stream)
    assert word(cell) == 9
    assert launch(step, stream, 2, ctypes.addressof(nbytes), 1, address) == 0
    assert launch(step, stream, 1, address, 2, ctypes.addressof(less)) == 1
    assert launch(step, stream, 1, address) == 1
    assert launch(step, stream, 3, address, 2, ctypes.addressof(nbytes)) == 1
    both = (ctypes.c_void_p * 4)()
    assert launch(step, stream, 1, address, 2, ctypes.addressof(nbytes), parameters=both) == 1
    call(driver.cuStreamSynchronize, stream)
    assert word(cell) == 18


def test_what_a_function_and_a_module_say(live, step):
    most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    assert call(driver.cuFuncGetAttribute, most, driver.CUfunction(step)) == 1024
    assert LIBRARY.cuFuncGetAttribute(ctypes.byref(ctypes.c_int()), -1, ctypes.c_void_p(step)) == 1
    assert LIBRARY.cuFuncGetAttribute(ctypes.byref(ctypes.c_int()), 0, None) == 400
    module = call(driver.cuModuleLoadData, KERNEL)
    assert int(driver.cuModuleGetGlobal(module, b"nowhere")[0]) == 500
    call(driver.cuModuleUnload, module)
    assert int(driver.cuModuleGetGlobal(0, b"nowhere")[0]) == 400


# ---- fills, times and callbacks ------------------------------------------------------------------


def test_wide_fills(cell):
    call(driver.cuMemsetD16, cell, 0x0102, 2)
    call(driver.cuMemsetD32, cell + 4, 0xFFFFFFFE, 1)
    call(driver.cuCtxSynchronize)
    assert (word(cell), word(cell + 4), word(cell + 8)) == (0x01020102, 0xFFFFFFFE, 0)
    assert int(driver.cuMemsetD16(cell + 1, 0, 1)[0]) == int(driver.cuMemsetD32(cell + 2, 0, 1)[0]) == 1


def test_time_passes_between_events(stream, gate):
    start, end, untimed = (call(driver.cuEventCreate, flags) for flags in (0, 1, 2))
    assert int(driver.cuEventElapsedTime(start, end)[0]) == 400  # not recorded
    call(driver.cuEventRecord, start, stream)
    gate.close(stream)
    call(driver.cuEventRecordWithFlags, end, stream, 0)
    call(driver.cuEventRecord, untimed, stream)
    assert int(driver.cuEventElapsedTime(start, end)[0]) == 600
    gate.opened.set()
    call(driver.cuStreamSynchronize, stream)
    passed = call(driver.cuEventElapsedTime, start, end)
    assert passed > 0
    assert call(driver.cuEventElapsedTime, end, start) == -passed
    assert int(driver.cuEventElapsedTime(start, untimed)[0]) == 400
    for event in (start, end, untimed):
        call(driver.cuEventDestroy, event)


@pytest.mark.parametrize("flags", [8, 4, 1 << 31])
def test_flags_that_no_event_has(live, flags):
    assert LIBRARY.cuEventCreate(ctypes.byref(ctypes.c_void_p()), ctypes.c_uint(flags)) == 1
    assert live() == {}


def test_a_callback_is_told_its_stream(stream):
    told, ready = [], threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    def callback(*arguments):
        told.append(arguments)
        ready.set()

    add, where, data = LIBRARY.cuStreamAddCallback, ctypes.c_void_p(int(stream)), ctypes.c_void_p(77)
    assert add(where, callback, data, 0) == 0
    assert ready.wait(TIMEOUT)
    assert told == [(int(stream), 0, 77)]
    assert add(where, callback, data, 1) == 1
    assert add(where, None, data, 0) == 1


# ---- memory --------------------------------------------------------------------------------------


def asked(address, *names):
    attributes = [getattr(ATTRIBUTES, f"CU_POINTER_ATTRIBUTE_{name}") for name in names]
    return [int(value) for value in call(driver.cuPointerGetAttributes, len(names), attributes, address)]


def test_what_an_address_says(live):
    device = call(driver.cuMemAlloc, 64)
    managed = call(driver.cuMemAllocManaged, 64, 1)
    host = call(driver.cuMemHostAlloc, 64, 7)
    mine = ctypes.create_string_buffer(64)
    names = "MEMORY_TYPE", "DEVICE_POINTER", "HOST_POINTER", "IS_MANAGED", "DEVICE_ORDINAL"
    at = int(device) + 8
    assert asked(at, *names) == [2, at, 0, 0, 0]
    assert asked(at, "RANGE_START_ADDR", "RANGE_SIZE", "MAPPED") == [int(device), 64, 1]
    assert asked(int(managed), *names) == [2, int(managed), int(managed), 1, 0]
    assert asked(int(host), *names) == [1, int(host), int(host), 0, 0]
    assert asked(ctypes.addressof(mine), *names) == [0, 0, 0, 0, -2]
    assert asked(int(device) + 64, "MEMORY_TYPE") == [0]
    kind = ATTRIBUTES.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    assert int(call(driver.cuPointerGetAttribute, kind, at)) == 2
    assert int(driver.cuPointerGetAttribute(kind, ctypes.addressof(mine))[0]) == 1
    call(driver.cuMemFree, device)
    call(driver.cuMemFree, managed)
    call(driver.cuMemFreeHost, host)
    assert live() == {}


def test_memory_is_freed_as_it_was_allocated(live):
    device, host = call(driver.cuMemAlloc, 64), call(driver.cuMemHostAlloc, 64, 0)
    assert int(driver.cuMemFree(host)[0]) == int(driver.cuMemFreeHost(int(device))[0]) == 1
    assert int(driver.cuMemHostAlloc(64, 8)[0]) == int(driver.cuMemAllocManaged(64, 3)[0]) == 1
    call(driver.cuMemFree, device)
    call(driver.cuMemFreeHost, host)
    assert live() == {}


def amounts(pool):
    names = "USED_MEM_CURRENT", "USED_MEM_HIGH", "RESERVED_MEM_CURRENT", "RESERVED_MEM_HIGH"
    kinds = [getattr(driver.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_{name}") for name in names]
    return [int(call(driver.cuMemPoolGetAttribute, pool, kind)) for kind in kinds]


def new_pool(device=0):
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device
    return driver.cuMemPoolCreate(properties)


def test_a_pool(live, stream):
    code, pool = new_pool()
    assert int(code) == 0
    assert live() == {"streams": 1, "pools": 1}
    part = 32 << 20
    memory = call(driver.cuMemAllocFromPoolAsync, 64, pool, stream)
    assert amounts(pool) == [64, 64, part, part]
    call(driver.cuMemFreeAsync, memory, stream)
    call(driver.cuStreamSynchronize, stream)
    assert amounts(pool) == [0, 64, part, part]
    call(driver.cuMemPoolTrimTo, pool, 0)
    assert amounts(pool) == [0, 64, 0, part]
    kind = driver.CUmemPool_attribute
    for mark in (kind.CU_MEMPOOL_ATTR_USED_MEM_HIGH, kind.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH):
        call(driver.cuMemPoolSetAttribute, pool, mark, driver.cuuint64_t(0))
    assert amounts(pool) == [0] * 4
    for name, value in (("RELEASE_THRESHOLD", 1 << 40), ("REUSE_ALLOW_OPPORTUNISTIC", 0)):
        which = getattr(kind, f"CU_MEMPOOL_ATTR_{name}")
        sent = driver.cuuint64_t(value) if value else value
        call(driver.cuMemPoolSetAttribute, pool, which, sent)
        assert int(call(driver.cuMemPoolGetAttribute, pool, which)) == value
    now = kind.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    assert int(driver.cuMemPoolSetAttribute(pool, now, driver.cuuint64_t(0))[0]) == 1
    call(driver.cuMemPoolDestroy, pool)
    assert live() == {"streams": 1}


def test_memory_outlives_its_pool(live, stream):
    _, pool = new_pool()
    memory = call(driver.cuMemAllocFromPoolAsync, 64, pool, stream)
    call(driver.cuMemPoolDestroy, pool)
    assert int(driver.cuMemAllocFromPoolAsync(64, pool, stream)[0]) == 1
    call(driver.cuMemsetD8Async, memory, 7, 64, stream)
    call(driver.cuStreamSynchronize, stream)
    assert read(memory) == 7
    call(driver.cuMemFreeAsync, memory, stream)
    call(driver.cuStreamSynchronize, stream)
    wait_until(lambda: live() == {"streams": 1})


def test_pools_that_there_are_not(live):
    assert int(new_pool(7)[0]) == 101
    default = call(driver.cuDeviceGetDefaultMemPool, 0)
    assert int(default) == int(call(driver.cuDeviceGetDefaultMemPool, 0))
    assert int(driver.cuMemPoolDestroy(default)[0]) == int(driver.cuMemPoolTrimTo(0, 0)[0]) == 1
    assert live() == {}
