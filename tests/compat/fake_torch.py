"""The parts of torch that `accelerator_graph.compat` uses and `interop.fake_torch` lacks."""

from types import SimpleNamespace

from interop import fake_torch as interop_fake_torch
from interop.fakes import calls, get_device, module


class MemPool:
    id = (0, 7_000_077)


class graph:
    """torch's own context manager, as in torch 2.11."""

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        self.cuda_graph, self.mode = cuda_graph, capture_error_mode
        self.pool = () if pool is None else (pool,)
        self.stream_ctx = interop_fake_torch._stream(stream or interop_fake_torch.Stream())

    def __enter__(self):
        calls["torch.cuda.graph"] += 1
        self.stream_ctx.__enter__()
        self.cuda_graph.capture_begin(*self.pool, capture_error_mode=self.mode)

    def __exit__(self, *args):
        self.cuda_graph.capture_end()
        self.stream_ctx.__exit__(*args)


class XpuGraph:
    """`torch.accelerator.Graph`, which torch has for Intel's devices."""

    def __init__(self, keep_graph=False, *, pool=None, capture_error_mode="default"):
        self.given = keep_graph, pool, capture_error_mode


def torch(**how):
    """Return the module."""
    made = interop_fake_torch.torch(**how)
    cuda = made.cuda
    cuda.synchronize = lambda device=None: calls.update(["torch.cuda.synchronize"])
    cuda.graph, cuda.MemPool = graph, MemPool
    cuda.graphs = module("torch.cuda.graphs", CUDAGraph=cuda.CUDAGraph, graph=graph)
    cuda.memory = module("torch.cuda.memory", empty_cache=cuda.empty_cache)
    made._C = SimpleNamespace(_host_emptyCache=lambda: calls.update(["torch._C._host_emptyCache"]))
    made.compiler = SimpleNamespace(config=SimpleNamespace(force_cudagraph_gc=False))
    made.accelerator = module(
        "torch.accelerator",
        current_accelerator=lambda: SimpleNamespace(type="cuda", index=get_device()),
    )
    return made
