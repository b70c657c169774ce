"""torch's tensors on the CPU, taking part in captures of the CPU backend.

A capture records every operation that torch dispatches below autograd. Each is run once on the spot, since
its result's shape and strides are needed; what it has written is put back, and so are the random numbers. A
replay runs them again, and copies what they return into the memory that the capture has returned. torch's
other work on the CPU is done when its call returns, so a replay is waited for.
"""

import contextlib
from functools import partial

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from accelerator_graph.interop._torch.collectives import observe_collectives
from accelerator_graph.interop._torch.observing import observe_operators
from accelerator_graph.interop._torch.verifying import fill_new
from accelerator_graph.interop.base import FrameworkRecorder, Inspectable
from accelerator_graph.interop.torch import Torch

NAME = "torch_cpu"
"""This package, as frameworks are named: beside the built-in ``torch``."""

_aten = torch.ops.aten
_WAITING = {_aten._local_scalar_dense.default, _aten.equal.default, _aten.nonzero.default}
"""What has to wait for a device, and so breaks a capture."""

_UNSAID = {_aten.native_batch_norm.default: (3, 4)}
"""What is written though the schema does not say so."""


class TorchOnCpu(Inspectable):
    api_version = 1

    def backend(self):
        return "cpu"

    def clear_results(self):
        Torch.clear_results(self)

    def recorder(self, backend, pool, device, generators):
        return CpuRecorder(backend, pool)

    def takes_generator(self, obj):
        return isinstance(obj, torch.Generator)

    def random_state(self, device, generators):
        states = [(each, each.get_state()) for each in (torch.default_generator, *generators)]
        return lambda: [generator.set_state(state) for generator, state in states]

    def fill_new(self, which, settle):
        return fill_new(torch, which, settle)

    def waiting(self, beside):
        return observe_operators(torch, lambda *_: None, partial(_around, beside))

    def observe_collectives(self, note):
        if not torch.distributed.is_available() or not torch.distributed.is_initialized():
            return None
        return observe_collectives(torch, note, lambda tensor: True)


class CpuRecorder(FrameworkRecorder):
    """Puts what torch dispatches into the capture of the stream."""

    def capture_begin(self, stream, mode):
        recording = _Recording(self.backend, stream, self.backend.capture_begin(stream, mode))
        recording.__enter__()
        return recording

    def capture_end(self, recording):
        recording.leave()
        return _Made(self.backend.capture_end(recording.token))

    def capture_abandon(self, recording):
        recording.leave()
        self.backend.capture_abandon(recording.token)

    def instantiate(self, graph):
        return _Made(self.backend.instantiate(graph.native))

    def destroy_graph(self, graph):
        self.backend.destroy_graph(graph.native)

    def destroy_executable(self, executable):
        self.backend.destroy_executable(executable.native)

    def replay(self, executable, stream):
        self.backend.replay(executable.native, stream)
        if self.backend.capture_status(stream).value == "none":
            with self.backend.relaxed(stream):
                self.backend.synchronize(stream)


class _Made:
    def __init__(self, native):
        self.native = native


class _Recording(TorchDispatchMode):
    def __init__(self, backend, stream, token):
        super().__init__()
        self._backend = backend
        self._stream = stream
        self.token = token
        self._random = torch.get_rng_state()
        self._left = False

    def leave(self):
        if not self._left:
            self._left = True
            self.__exit__(None, None, None)
            torch.set_rng_state(self._random)

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if operation in _WAITING:
            self._backend.synchronize(self._stream)
        before = [(each, each.clone()) for each in _written(operation, args, kwargs)]
        result = operation(*args, **kwargs)
        for each, contents in before:
            each.copy_(contents)
        if not _is_view(operation):
            self._backend.launch(self._stream, _run, operation, args, kwargs, tree_leaves(result))
        return result


def _around(beside, operation, args, kwargs):
    name = operation._schema.name.partition("::")[2]
    return beside(name) if operation in _WAITING else contextlib.nullcontext()


def _run(operation, args, kwargs, results):
    with torch._C._AutoDispatchBelowAutograd():
        for there, here in zip(results, tree_leaves(operation(*args, **kwargs)), strict=True):
            if isinstance(there, torch.Tensor) and there is not here:
                there.data.copy_(here)  # a device's replays are no writes that count


def _written(operation, args, kwargs):
    """The tensors that an operation writes to, by its schema."""
    for i, argument in enumerate(operation._schema.arguments):
        said = argument.alias_info is not None and argument.alias_info.is_write
        if said or i in _UNSAID.get(operation, ()):
            given = args[i] if i < len(args) else kwargs.get(argument.name)
            yield from (each for each in tree_leaves(given) if isinstance(each, torch.Tensor))


def _is_view(operation):
    aliases = [each.alias_info for each in operation._schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


@contextlib.contextmanager
def taking_part():
    """Have torch's tensors on the CPU take part."""
    from accelerator_graph import interop

    interop.register(NAME, TorchOnCpu)
    try:
        yield
    finally:
        interop.unregister(NAME)
