"""Devices and errors of the shim; it loads where there is no device. Run like itself.py."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from ctypes import byref, c_char_p, c_int, c_size_t

import pytest
from hip import hip

from .calls import LIBRARY, TIMEOUT, call, handle, in_thread, raw, text

NONE_THERE = """
import ctypes, sys
library = ctypes.CDLL("libamdhip64.so")
count, stream = ctypes.c_int(5), ctypes.c_void_p()
assert library.hipRuntimeGetVersion(ctypes.byref(count)) == 0
print(library.hipGetDeviceCount(ctypes.byref(count)), count.value,
      library.hipStreamCreate(ctypes.byref(stream)), library.hipGetLastError())
"""


def properties_of(device):
    try:
        return call(hip.hipGetDeviceProperties, device)
    except TypeError:  # before hip-python 10
        properties = hip.hipDeviceProp_t()
        call(hip.hipGetDeviceProperties, properties, device)
        return properties


def test_versions_and_devices():
    assert call(hip.hipRuntimeGetVersion) // 100000 == 702
    assert call(hip.hipGetDeviceCount) >= 1
    assert call(hip.hipGetDevice) == 0
    properties = properties_of(0)
    assert text(properties.gcnArchName).startswith("sm_")
    assert text(properties.name)


def test_attributes_agree_with_properties():
    numbers = hip.hipDeviceAttribute_t
    properties = properties_of(0)
    warp = call(hip.hipDeviceGetAttribute, numbers.hipDeviceAttributeWarpSize, 0)
    assert properties.warpSize == warp == 32
    threads = call(hip.hipDeviceGetAttribute, numbers.hipDeviceAttributeMaxThreadsPerBlock, 0)
    assert properties.maxThreadsPerBlock == threads >= 1024
    assert properties.totalGlobalMem > 1 << 30
    assert properties.multiProcessorCount > 1
    raw("hipDeviceGetName", name := ctypes.create_string_buffer(256), c_int(256), c_int(0))
    assert text(name.value) == text(properties.name)


def test_errors_have_the_names_that_hip_python_knows():
    found, theirs = {}, {int(error): error.name for error in hip.hipError_t}
    for number in range(2000):
        if LIBRARY.hipDrvGetErrorName(c_int(number), byref(name := c_char_p())) == 0:
            found[number] = name.value.decode()
    assert len(found) > 70
    assert {number: theirs.get(number) for number in found} == found
    raw("hipDrvGetErrorString", c_int(2), byref(meaning := c_char_p()))
    assert meaning.value == b"out of memory"


def test_each_thread_remembers_its_last_error():
    LIBRARY.hipGetLastError()
    assert LIBRARY.hipSetDevice(c_int(999)) == 101
    raw("hipDeviceSynchronize")
    seen = in_thread(LIBRARY.hipGetLastError)
    assert seen == 0
    assert LIBRARY.hipExtGetLastError() == 0
    assert LIBRARY.hipPeekAtLastError() == 101
    assert LIBRARY.hipGetLastError() == 101
    assert LIBRARY.hipGetLastError() == 0


def test_each_thread_has_a_device():
    def elsewhere():
        assert call(hip.hipGetDevice) == 0
        raw("hipFree", handle("hipMalloc", c_size_t(64)))  # with nothing set up
        call(hip.hipSetDevice, last)
        raw("hipFree", handle("hipMalloc", c_size_t(64)))
        assert call(hip.hipGetDevice) == last
        return handle("hipStreamCreate")

    last = call(hip.hipGetDeviceCount) - 1
    made = in_thread(elsewhere)
    assert call(hip.hipGetDevice) == 0
    raw("hipStreamGetDevice", made, byref(device := c_int(-1)))
    assert device.value == last
    mine = handle("hipStreamCreate")  # where it was before the question
    raw("hipStreamGetDevice", mine, byref(device))
    assert device.value == 0
    raw("hipStreamDestroy", mine)
    raw("hipStreamDestroy", made)


@pytest.mark.parametrize("driver", [True, False])
def test_without_a_device(driver):
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "", "SOFTWARE_CUDA_DEVICES": "0"}
    if not driver:
        env["LD_LIBRARY_PATH"] = os.path.join(env["ROCM_PATH"], "lib")
    command = (sys.executable, "-c", NONE_THERE)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.stdout.split() == ["100", "0", "100", "100"], done.stderr
