"""What the driver's own tests share."""

import ctypes
import threading
import time

from cuda.bindings import driver

from accelerator_graph.testing.works.cuda import call

TIMEOUT = 60


class Gate:
    """A host function that keeps a stream waiting until it is opened."""

    def __init__(self):
        self.opened = threading.Event()
        self.reached = threading.Event()
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._wait)

    def _wait(self, _):
        self.reached.set()
        self.opened.wait(TIMEOUT)

    def close(self, stream):
        function = driver.CUhostFn(_ptr=ctypes.addressof(self._function))
        call(driver.cuLaunchHostFunc, stream, function, 0)
        assert self.reached.wait(TIMEOUT)


def read(memory):
    return ctypes.string_at(int(memory), 1)[0]


def wait_until(true):
    end = time.monotonic() + TIMEOUT
    while not true():
        assert time.monotonic() < end, "it never happens"
        time.sleep(0.001)


def captured(stream, *work):
    call(driver.cuStreamBeginCapture, stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    for function, *args in work:
        call(function, *args, stream)
    return call(driver.cuStreamEndCapture, stream)
