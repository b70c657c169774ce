"""Stand-ins for frameworks: what the modules in `accelerator_graph.interop` touch of them, and no more.

Names, signatures and behaviour are those of CuPy 14.2.0, numba-cuda 0.30.4, Warp 1.19.0 and cuda-core 1.2.2,
read in their wheels and, for what is compiled in CuPy, in its repository. Work and memory are the driver's,
through cuda-python: the software driver's in tests.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from types import ModuleType, SimpleNamespace

from cuda.bindings import driver

calls: Counter[str] = Counter()
"""How often the stand-ins' functions were called that tests count."""


def call(function, *arguments):
    """Call the driver; return what it answers."""
    code, *answer = function(*arguments)
    if int(code):
        raise RuntimeError(f"{function.__name__}: {code!r}")
    return answer[0] if len(answer) == 1 else tuple(answer)


def set_device(device):
    call(driver.cuInit, 0)
    call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, device))


def get_device():
    if not int(call(driver.cuCtxGetCurrent)):
        return 0
    return int(call(driver.cuCtxGetDevice))


def fill(array, value, stream):
    """Do on a stream what every framework does here: set bytes."""
    call(driver.cuMemsetD8Async, array.ptr, value, array.nbytes, stream)


def module(name, **attributes):
    made = ModuleType(name)
    made.__dict__.update(attributes)
    return made


# ---- CuPy -------------------------------------------------------------------------------------------------


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        self.status = status
        super().__init__(f"cudaError {status}")


class CUDADriverError(CUDARuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).")


class _Local(threading.local):
    def __init__(self):
        self.streams = {}
        self.allocator = None


_local = _Local()


class BaseStream:
    def __init__(self, ptr, device_id):
        self.ptr, self.device_id = ptr, device_id

    def use(self):
        here = get_device()
        if self.device_id not in (-1, here):
            raise RuntimeError(f"the stream's device {self.device_id} does not match the current one, {here}")
        _local.streams[here] = self
        return self

    def __enter__(self):
        self.before = get_current_stream()
        return self.use()

    def __exit__(self, *args):
        self.before.use()


class Stream(BaseStream):
    def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
        made = 0 if null else call(driver.cuStreamCreate, int(non_blocking))
        super().__init__(int(made), -1 if null else get_device())

    @classmethod
    def from_external(cls, obj):
        version, ptr = obj.__cuda_stream__()
        assert version == 0
        self = cls.__new__(cls)
        BaseStream.__init__(self, ptr, -1)
        return self


class ExternalStream(BaseStream):
    def __init__(self, ptr, device_id=-1):
        super().__init__(ptr, device_id)


def get_current_stream(device_id=-1):
    calls["cupy.cuda.get_current_stream"] += 1
    return _local.streams.get(get_device() if device_id == -1 else device_id) or Stream(null=True)


class Device:
    def __init__(self, device=None):
        self.id = get_device() if device is None else device
        self._before = []

    def __enter__(self):
        self._before.append(get_device())
        set_device(self.id)
        return self

    def __exit__(self, *args):
        set_device(self._before.pop())


class Memory:
    def __init__(self, size):
        self.size, self.device_id, self.ptr = size, get_device(), 0
        code, address = driver.cuMemAlloc(size)
        if int(code):
            raise CUDARuntimeError(int(code))
        self.ptr = int(address)

    def __del__(self):
        if self.ptr:
            calls["cudaFree"] += 1
            self.freed = int(driver.cuMemFree(self.ptr)[0])
            assert not self.freed, f"cudaFree answered {self.freed}"


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id


class _Pooled:
    """A block that goes back to its pool; it does not keep the pool's memory."""

    def __init__(self, pool, key):
        self._pool, self._key = pool, key
        self.ptr, self.device_id = pool.used[key].ptr, pool.used[key].device_id

    def __del__(self):
        self._pool.free[self._key[0]].append(self._pool.used.pop(self._key))


class MemoryPool:
    """Gives out free blocks of just that size, device and stream; the real one splits and joins blocks."""

    def __init__(self, allocator=None):
        self._allocator = allocator or (lambda size: MemoryPointer(Memory(size), 0))
        self._state = SimpleNamespace(free={}, used={})

    def malloc(self, size):
        kind = (get_device(), get_current_stream().ptr, size)
        free = self._state.free.setdefault(kind, [])
        block = free.pop() if free else self._grow(size)
        key = (kind, id(block))
        self._state.used[key] = block
        return MemoryPointer(_Pooled(self._state, key), 0)

    def _grow(self, size):
        for attempt in (1, 2, 3):
            try:
                return self._allocator(size).mem
            except CUDARuntimeError as error:
                if error.status != 2 or attempt == 3:
                    raise
                self.free_all_blocks()
        raise AssertionError

    def free_all_blocks(self, stream=None):
        here = get_device()
        for kind in [kind for kind in self._state.free if kind[0] == here]:
            self._state.free[kind].clear()

    def used_bytes(self):
        return sum(block.size for (kind, _), block in self._state.used.items() if kind[0] == get_device())

    def total_bytes(self):
        return self.used_bytes() + sum(
            block.size for kind, free in self._state.free.items() for block in free if kind[0] == get_device()
        )


class ndarray:
    """An array of bytes, as `cupy.empty` makes them."""

    def __init__(self, nbytes):
        self.data = get_allocator()(nbytes)
        self.ptr, self.nbytes = self.data.ptr, nbytes

    def fill(self, value):
        fill(self, value, get_current_stream().ptr)


@contextlib.contextmanager
def using_allocator(allocator=None):
    before, _local.allocator = _local.allocator, allocator
    try:
        yield
    finally:
        _local.allocator = before


def _ctx_get_current():
    calls["cupy.cuda.driver.ctxGetCurrent"] += 1
    return int(call(driver.cuCtxGetCurrent))


def _get_device_count():
    calls["cupy.cuda.runtime.getDeviceCount"] += 1
    call(driver.cuInit, 0)
    return int(call(driver.cuDeviceGetCount))


_default_pool = MemoryPool()


def get_allocator():
    return _local.allocator or _default_pool.malloc


def cupy():
    _local.__init__()
    runtime = module(
        "cupy.cuda.runtime",
        is_hip=False,
        getDevice=get_device,
        setDevice=set_device,
        getDeviceCount=_get_device_count,
        CUDARuntimeError=CUDARuntimeError,
    )
    cuda = module(
        "cupy.cuda",
        runtime=runtime,
        driver=module("cupy.cuda.driver", ctxGetCurrent=_ctx_get_current, CUDADriverError=CUDADriverError),
        memory=module("cupy.cuda.memory", OutOfMemoryError=OutOfMemoryError),
        **{each.__name__: each for each in (Stream, ExternalStream, Device, Memory, MemoryPointer)},
        **{each.__name__: each for each in (MemoryPool, get_current_stream, get_allocator, using_allocator)},
    )
    return module("cupy", cuda=cuda, empty=ndarray, get_default_memory_pool=lambda: _default_pool)


# ---- numba-cuda and cuda.core -----------------------------------------------------------------------------


class NumbaStream:
    def __init__(self, handle, finalizer=None, external=False):
        self.handle, self.external = handle, external

    def __int__(self):
        return int(self.handle)


def numba(initialized=True, error=None):
    state = SimpleNamespace(is_initialized=initialized, initialization_error=error)
    return {
        "numba.cuda": module("numba.cuda", external_stream=lambda ptr: NumbaStream(ptr, external=True)),
        "numba.cuda.cudadrv.driver": module("numba.cuda.cudadrv.driver", Stream=NumbaStream, driver=state),
    }


class CoreStream:
    @property
    def handle(self):
        return driver.CUstream(self._handle)

    def __cuda_stream__(self):
        return (0, self._handle)

    @staticmethod
    def from_handle(handle):
        made = CoreStream()
        made._handle = handle
        return made


class GraphBuilder:
    def __init__(self, stream):
        self.stream = stream

    def __cuda_stream__(self):
        return self.stream.__cuda_stream__()


def cuda_core(name="cuda.core"):
    CoreStream.__name__ = "Stream"
    return module(name, Stream=CoreStream, graph=module(f"{name}.graph", GraphBuilder=GraphBuilder))


def install(monkeypatch, name, *parts):
    """Put a stand-in into `sys.modules`: a module, or several by name."""
    for each in parts:
        for full, what in ({name: each} if isinstance(each, ModuleType) else each).items():
            monkeypatch.setitem(sys.modules, full, what)
    return sys.modules[name]
