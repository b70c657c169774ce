"""Streams, memory, a kernel: what the tests of the shim start from."""

from __future__ import annotations

from ctypes import c_int, c_size_t, c_uint

import pytest
from hip import hip, hiprtc

from .calls import call, compiled, handle, raw

SOURCE = b"""
extern "C" __global__ void step(unsigned *cell, unsigned a, unsigned b, unsigned long long pause)
{
    volatile unsigned *place = cell;
    unsigned value = *place;
    long long start = wall_clock64();
    while ((wall_clock64() - start) * 10 < (long long)pause) {
    }
    *place = value * a + b;
}
"""


@pytest.fixture
def stream():
    made = handle("hipStreamCreateWithFlags", c_uint(1))
    yield made
    raw("hipStreamDestroy", made)


@pytest.fixture
def other():
    made = handle("hipStreamCreateWithFlags", c_uint(1))
    yield made
    raw("hipStreamDestroy", made)


@pytest.fixture
def event():
    made = handle("hipEventCreateWithFlags", c_uint(2 | 0x40000000))  # with a flag that CUDA doesn't have
    yield made
    raw("hipEventDestroy", made)


@pytest.fixture
def cells():
    """Address of 64 zeros on the device, four bytes each."""
    made = handle("hipMalloc", c_size_t(256))
    raw("hipMemset", made, c_int(0), c_size_t(256))
    raw("hipDeviceSynchronize")
    yield made
    raw("hipFree", made)


@pytest.fixture
def graph():
    made = handle("hipGraphCreate", c_uint(0))
    yield made
    raw("hipGraphDestroy", made)


@pytest.fixture(scope="module")
def module():
    program, code = compiled(SOURCE)
    assert code == 0
    image = bytearray(call(hiprtc.hiprtcGetCodeSize, program))
    call(hiprtc.hiprtcGetCode, program, image)
    hiprtc.hiprtcDestroyProgram(program.createRef())
    made = call(hip.hipModuleLoadData, bytes(image))
    yield made
    call(hip.hipModuleUnload, made)


@pytest.fixture
def step(module):
    return int(call(hip.hipModuleGetFunction, module, b"step"))
