"""A stand-in for torch 2.11, and for 2.15: what `accelerator_graph.interop.torch` and its recorder touch."""

import contextlib
import os
import threading
import warnings
from collections import Counter
from copy import copy
from types import SimpleNamespace

from cuda.bindings import driver

from interop.fakes import call, calls, fill, get_device, module, set_device


class _Current(threading.local):
    """By device: this thread's current stream, if it is not the default one."""

    def __init__(self):
        self.streams = {}


_current = _Current()
_capturing = {}
"""By device: the CUDAGraph that records."""
_pools = [0]
_routed = []
_pinned = []  # the pools of the allocator for pinned memory, which stays if a capture fails
"""The pools that allocations go to."""
pool_uses = Counter()
_ended = set()
"""Pools whose last graph is gone: torch's allocator refuses them until it has freed their memory."""
MODES = {"global": 0, "thread_local": 1, "relaxed": 2}


class AcceleratorError(RuntimeError):
    def __init__(self, message, error_code):
        super().__init__(message)
        self.error_code = error_code


def checked(function, *arguments):
    code, *answer = function(*arguments)
    if int(code):
        raise AcceleratorError(f"CUDA error: {code.name}\nMore.", int(code))
    return answer[0] if answer else None


class Generic:
    """``torch.Stream``."""

    def __init__(self, stream_id, device_index, device_type=1, kind="cuda"):
        self.stream_id, self.device_index, self.device_type = stream_id, device_index, device_type
        self.device = SimpleNamespace(type=kind, index=device_index)


class Stream(Generic):
    def __new__(cls, device=None, priority=0, **kwargs):
        with _device(get_device() if device is None else device):
            self = object.__new__(cls)
            if "stream_id" in kwargs:
                Generic.__init__(self, kwargs["stream_id"], kwargs["device_index"], kwargs["device_type"])
                self.cuda_stream = kwargs["stream_id"] & ~1
            else:
                made = kwargs.get("stream_ptr")  # 0 makes a new stream, as in torch
                self.cuda_stream = made or int(call(driver.cuStreamCreate, 1))
                number = (
                    self.cuda_stream if made else self.cuda_stream | 1
                )  # odd if torch made it, as in torch
                Generic.__init__(self, number, get_device())
        return self

    def __init__(self, *args, **kwargs):
        pass


class ExternalStream(Stream):
    def __new__(cls, stream_ptr, device=None, **kwargs):
        with _device(get_device() if device is None else device):
            return super().__new__(cls, stream_ptr=stream_ptr, **kwargs)


@contextlib.contextmanager
def _device(device):
    before = get_device()
    set_device(device)
    try:
        yield
    finally:
        set_device(before)


def current_stream(device=None):
    calls["torch.cuda.current_stream"] += 1
    index = get_device() if device is None else device
    return _current.streams.get(index) or default_stream(index)


def default_stream(device=None):
    return Stream(stream_id=0, device_index=get_device() if device is None else device, device_type=1)


def set_stream(stream):
    set_device(stream.device_index)
    _current.streams[stream.device_index] = stream


def _get_current_stream(device):
    stream = _current.streams.get(device) or default_stream(device)
    return stream.stream_id, stream.device_index, stream.device_type


@contextlib.contextmanager
def _stream(stream):
    device, before = get_device(), current_stream(stream.device_index)
    set_stream(stream)
    try:
        yield
    finally:
        set_stream(before)
        set_device(device)


class Generator:
    def __init__(self, device="cuda"):
        if _capturing and int(checked(driver.cuStreamIsCapturing, current_stream().cuda_stream)):
            raise RuntimeError("Cannot construct a new CUDAGeneratorImpl during CUDA graph capture.")
        # capturing stays if the capture fails, up to 2.13
        self.state = SimpleNamespace(offset=0, capturing=False)
        self.device = SimpleNamespace(type=str(device).partition(":")[0])

    @property
    def offset(self):
        return self.state.offset

    def get_offset(self):
        if current_stream().device_index in _capturing:
            raise RuntimeError("Cannot call CUDAGeneratorImpl::get_offset during CUDA graph capture.")
        return self.state.offset

    def graphsafe_get_state(self):
        same = copy(self)
        assert same.state is self.state
        return same

    def graphsafe_set_state(self, other):
        self.state = other.state


class MemPool:
    def __init__(self):
        self.id = (0, _pools.append(0) or len(_pools))
        pool_uses[self.id] += 1
        self.memory = int(call(driver.cuMemAlloc, 64))

    def __del__(self):
        if pool_uses[self.id] != 1:
            os.abort()  # as older ones of torch did; the newer ones free memory in use
        if _capturing:
            os.abort()  # as 2.11 does
        end_of_use(0, self.id)
        driver.cuMemFree(self.memory)


def end_of_use(device, pool):
    pool_uses[pool] -= 1
    if not pool_uses[pool]:
        del pool_uses[pool]
        _ended.add(pool)


def begin_allocate(device, pool):
    if pool in _routed:
        raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
    pool_uses[pool] += 1
    _routed.append(pool)


def end_allocate(device, pool):
    if pool not in _routed:
        raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
    _routed.remove(pool)


class CUDAGraph:
    def __init__(self, keep_graph=False):
        assert keep_graph
        self._draws, self._generators, self._graph, self._exec = {}, [], None, None
        self._pool = None
        self.replays = 0

    def takes(self, generator):
        return generator.state.capturing

    def register_generator_state(self, generator):
        if not isinstance(generator, Generator):
            raise TypeError("register_generator_state(): argument 'generator' must be torch._C.Generator")
        self._generators.append(generator)

    def capture_begin(self, pool=None, capture_error_mode="global"):
        stream = current_stream()
        self._thread = threading.get_ident()
        if stream.device_index in _capturing or self._thread in [
            each._thread for each in _capturing.values()
        ]:
            os.abort()
        if not stream.cuda_stream:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
        self._generators.append(_default[stream.device_index])
        pool = tuple(pool) if pool else (_pools.append(0) or len(_pools), 0)
        if pool in _ended:
            raise RuntimeError("it->second->use_count > 0 INTERNAL ASSERT FAILED")
        pool_uses[pool] += 1
        if pool in _routed or pool in _pinned:
            raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
        _routed.append(pool)
        _pinned.append(pool)
        self._pool = pool
        self._stream = stream.cuda_stream
        self._device = stream.device_index
        checked(
            driver.cuStreamBeginCapture, self._stream, driver.CUstreamCaptureMode(MODES[capture_error_mode])
        )
        _capturing[self._device] = self
        for generator in self._generators:
            generator.state.capturing = True

    def capture_end(self):
        if _capturing.get(self._device) is not self:
            raise AcceleratorError("CUDA error: the operation cannot be performed in the present state", 401)
        if current_stream(self._device).cuda_stream != self._stream:
            raise RuntimeError("Capture must end on the same stream it began on.")
        del _capturing[self._device]
        self._graph = checked(driver.cuStreamEndCapture, self._stream)
        for generator in self._generators:
            generator.state.capturing = False
        end_allocate(self._device, self._pool)
        _pinned.remove(self._pool)
        if not checked_nodes(self._graph):
            warnings.warn("The CUDA Graph is empty. This usually means ...", stacklevel=2)

    def instantiate(self):
        if self._exec is not None:
            checked(driver.cuGraphExecDestroy, self._exec)
        self._exec = None
        self._exec = checked(driver.cuGraphInstantiate, self._graph, 0)

    def raw_cuda_graph(self):
        return int(self._graph)

    def raw_cuda_graph_exec(self):
        return int(self._exec)

    def replay(self):
        self.replays += 1
        for generator, count in self._draws.items():
            generator.state.offset += count
        checked(driver.cuGraphLaunch, self._exec, current_stream(self._device).cuda_stream)

    def reset(self):
        if self._graph is not None:
            end_of_use(self._device, self._pool)
        for destroy, handle in (
            (driver.cuGraphExecDestroy, self._exec),
            (driver.cuGraphDestroy, self._graph),
        ):
            if handle is not None:
                checked(destroy, handle)
        self._exec = self._graph = None

    def pool(self):
        return self._pool


class CUDAGraphOf215(CUDAGraph):
    def __init__(self, keep_graph=False):
        super().__init__(keep_graph)
        self._hooks = []

    def takes(self, generator):
        return True

    def register_generator_state(self, generator):
        warnings.warn("CUDAGraph.register_generator_state() is deprecated ...", stacklevel=2)

    def register_replay_start_hook(self, hook):
        self._hooks.append(hook)

    def replay(self):
        for hook in self._hooks:
            hook(self)
        super().replay()

    def reset(self):
        if self._graph is None and self._pool in _routed:
            end_allocate(self._device, self._pool)
            _pinned.remove(self._pool)
            end_of_use(self._device, self._pool)
        super().reset()


def checked_nodes(graph):
    return int(driver.cuGraphGetNodes(graph)[2])


_default = []
segments = []
"""What the allocator has got from the driver: tests put in what they need."""


def torch(initialized=True, devices=2, graph=CUDAGraph):
    """Return the module."""
    _current.streams.clear()
    _capturing.clear()
    _routed.clear()
    _pinned.clear()
    call(driver.cuInit, 0)
    _default[:] = generators = tuple(Generator() for _ in range(devices))

    def rand(array, generator=None):
        """Draw random numbers into an array: allowed in a capture of torch's own only."""
        where = current_stream()
        recording = _capturing.get(where.device_index)
        generator = generator or generators[where.device_index]
        if recording is None:
            if generator.state.capturing:
                raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
            generator.state.offset += 4
        elif not recording.takes(generator):
            raise RuntimeError("Attempt to increase offset for a CUDA generator not in capture mode.")
        else:
            recording._draws[generator] = recording._draws.get(generator, 0) + 4
        fill(array, 7, where.cuda_stream)

    cuda = module(
        "torch.cuda",
        is_initialized=lambda: initialized,
        current_device=get_device,
        set_device=set_device,
        device=_device,
        stream=_stream,
        default_generators=generators,
        get_allocator_backend=lambda: "native",
        memory_snapshot=lambda mempool_id=None, include_traces=True: list(segments),
        graph_pool_handle=lambda: (0, _pools.append(0) or len(_pools)),
        empty_cache=lambda: calls.update(["torch.cuda.empty_cache"]),
        CUDAGraph=graph,
        **{
            each.__name__: each
            for each in (
                Stream,
                ExternalStream,
                MemPool,
                current_stream,
                default_stream,
                set_stream,
            )
        },
    )
    return module(
        "torch",
        cuda=cuda,
        _C=SimpleNamespace(
            _cuda_beginAllocateCurrentThreadToPool=begin_allocate,
            _cuda_endAllocateToPool=end_allocate,
            _cuda_releasePool=end_of_use,
            _cuda_getDevice=get_device,
            _cuda_getCurrentStream=_get_current_stream,
            _cuda_setStream=lambda **stream: set_stream(Stream(**stream)),
        ),
        Stream=Generic,
        Generator=Generator,
        AcceleratorError=AcceleratorError,
        clear_autocast_cache=lambda: None,
        version=SimpleNamespace(hip=None, cuda="12.8"),
        fill=lambda array, value: fill(array, value, current_stream().cuda_stream),
        rand=rand,
    )
