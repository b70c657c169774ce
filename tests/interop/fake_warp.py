"""A stand-in for Warp 1.19.0: what `accelerator_graph.interop.warp` touches of it; read in its wheel."""

from cuda.bindings import driver

from interop.fakes import call, get_device, module, set_device


class Runtime:
    def __init__(self):
        self.registered = []  # the native side's list of streams
        self.cuda_devices = [Device(self, n) for n in range(int(call(driver.cuDeviceGetCount)))]
        self.cpu = Device(self, -1)
        self.default_device = self.cuda_devices[0]

    def get_device(self, ident=None):
        if isinstance(ident, Device):
            return ident
        if ident is None:
            return self.default_device
        devices = {f"cuda:{each.ordinal}": each for each in self.cuda_devices} | {"cpu": self.cpu}
        if ident not in devices:
            raise ValueError(f"Invalid device identifier: {ident}")
        return devices[ident]


class Device:
    def __init__(self, runtime, ordinal):
        self.runtime, self.ordinal, self._stream = runtime, ordinal, None
        self.is_cuda = ordinal >= 0
        self.syncs = []

    @property
    def has_stream(self):
        return self._stream is not None

    @property
    def stream(self):
        """The first time, it makes the device's own stream."""
        if not self.is_cuda:
            raise RuntimeError("Device cpu is not a CUDA device")
        if self._stream is None:
            self._stream = Stream(self)
        return self._stream

    def set_stream(self, stream, sync=True):
        if stream.device is not self:
            raise RuntimeError(f"Stream from device {stream.device} cannot be used on device {self}")
        self.syncs.append(sync)
        self._stream = stream


class Stream:
    def __init__(self, device=None, priority=0, **kwargs):
        self.device = current.get_device(device)
        self.owner = "cuda_stream" not in kwargs
        if self.owner:
            before = get_device()
            set_device(self.device.ordinal)
            self.cuda_stream = int(call(driver.cuStreamCreate, 0))
            set_device(before)
        else:
            self.cuda_stream = kwargs["cuda_stream"]
        current.registered.append(self.cuda_stream)

    def __del__(self):
        """Make the native side forget the stream, whoever else has an object for it."""
        if self.cuda_stream:
            runtime = self.device.runtime
            runtime.registered = [each for each in runtime.registered if each != self.cuda_stream]
            if self.owner:
                driver.cuStreamDestroy(self.cuda_stream)

    def __cuda_stream__(self):
        return (0, self.cuda_stream or 0)


class ScopedDevice:
    def __init__(self, device):
        self.device = current.get_device(device)

    def __enter__(self):
        self.saved_device = current.default_device
        current.default_device = self.device
        self.saved_context = call(driver.cuCtxGetCurrent)
        set_device(self.device.ordinal)
        return self.device

    def __exit__(self, exc_type, exc_value, traceback):
        call(driver.cuCtxSetCurrent, self.saved_context)
        current.default_device = self.saved_device


class ScopedStream:
    def __init__(self, stream, sync_enter=True, sync_exit=False):
        self.stream = stream

    def __enter__(self):
        self.saved_stream = self.stream.device.stream
        self.stream.device.set_stream(self.stream, False)

    def __exit__(self, exc_type, exc_value, traceback):
        self.stream.device.set_stream(self.saved_stream, False)


def warp(initialized=True):
    """Return the modules of Warp."""
    global current
    call(driver.cuInit, 0)
    current = Runtime()
    public = module(
        "warp",
        Stream=Stream,
        ScopedDevice=ScopedDevice,
        ScopedStream=ScopedStream,
        get_device=lambda ident=None: current.get_device(ident),
        get_stream=lambda device=None: current.get_device(device).stream,
    )
    context = module("warp._src.context", runtime=current if initialized else None)
    return {"warp": public, "warp._src.context": context}
