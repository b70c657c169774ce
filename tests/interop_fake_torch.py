"""A stand-in for torch 2.11: what `accelerator_graph.interop.torch` and its recorder touch of it."""

from __future__ import annotations

import contextlib
import os
import warnings
from types import SimpleNamespace

from cuda.bindings import driver
from interop_fakes import call, calls, fill, get_device, module, set_device

_streams = {}
_capturing = {}
"""By device: the CUDAGraph that records."""
_pools = [0]
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
                made = kwargs.get("stream_ptr")
                self.cuda_stream = int(call(driver.cuStreamCreate, 1)) if made is None else made
                Generic.__init__(self, self.cuda_stream | 1, get_device())
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
    return _streams.get(index) or ExternalStream(0, index)


def set_stream(stream):
    set_device(stream.device_index)
    _streams[stream.device_index] = stream


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
    def __init__(self):
        self.offset = 0

    def get_offset(self):
        return self.offset


class CUDAGraph:
    def __init__(self, keep_graph=False):
        assert keep_graph
        self._draws, self._generators, self._graph, self._exec = {}, [], None, None
        self.replays = 0

    def register_generator_state(self, generator):
        if not isinstance(generator, Generator):
            raise TypeError("register_generator_state(): argument 'generator' must be torch._C.Generator")
        self._generators.append(generator)

    def capture_begin(self, pool=None, capture_error_mode="global"):
        stream = current_stream()
        if stream.device_index in _capturing:
            os.abort()
        if not stream.cuda_stream:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
        self._pool = pool or (_pools.append(0) or len(_pools), 0)
        self._stream = stream.cuda_stream
        self._device = stream.device_index
        checked(
            driver.cuStreamBeginCapture, self._stream, driver.CUstreamCaptureMode(MODES[capture_error_mode])
        )
        _capturing[self._device] = self

    def capture_end(self):
        if _capturing.get(self._device) is not self:
            raise AcceleratorError("CUDA error: the operation cannot be performed in the present state", 401)
        del _capturing[self._device]
        self._graph = checked(driver.cuStreamEndCapture, self._stream)
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
            generator.offset += count
        checked(driver.cuGraphLaunch, self._exec, current_stream(self._device).cuda_stream)

    def reset(self):
        for destroy, handle in (
            (driver.cuGraphExecDestroy, self._exec),
            (driver.cuGraphDestroy, self._graph),
        ):
            if handle is not None:
                checked(destroy, handle)
        self._exec = self._graph = None

    def pool(self):
        return self._pool


def checked_nodes(graph):
    return int(driver.cuGraphGetNodes(graph)[2])


def torch(initialized=True, devices=2):
    """Return the module."""
    _streams.clear()
    _capturing.clear()
    call(driver.cuInit, 0)
    generators = tuple(Generator() for _ in range(devices))

    def rand(array, generator=None):
        """Draw random numbers into an array: allowed in a capture of torch's own only."""
        where = current_stream()
        recording = _capturing.get(where.device_index)
        generator = generator or generators[where.device_index]
        if recording is None:
            generator.offset += 4
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
        empty_cache=lambda: calls.update(["torch.cuda.empty_cache"]),
        cudart=lambda: SimpleNamespace(cudaGetLastError=lambda: calls.update(["cudaGetLastError"])),
        **{each.__name__: each for each in (Stream, ExternalStream, CUDAGraph, current_stream, set_stream)},
    )
    return module(
        "torch",
        cuda=cuda,
        Stream=Generic,
        Generator=Generator,
        version=SimpleNamespace(hip=None, cuda="12.8"),
        fill=lambda array, value: fill(array, value, current_stream().cuda_stream),
        rand=rand,
    )
