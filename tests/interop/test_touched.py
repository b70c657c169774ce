"""The frameworks themselves have what the library and its stand-ins for frameworks rely on."""

import importlib.util
import sys

import pytest

from processes import execute

TOUCHED = {
    "cupy": """
        cuda.Stream.from_external cuda.Stream.use cuda.get_current_stream cuda.using_allocator
        cuda.runtime.getDevice cuda.runtime.setDevice cuda.runtime.getDeviceCount cuda.runtime.is_hip
        cuda.runtime.CUDARuntimeError cuda.driver.ctxGetCurrent cuda.driver.CUDADriverError
        cuda.memory.OutOfMemoryError cuda.Memory.device_id cuda.MemoryPointer cuda.Device.__enter__
        get_default_memory_pool
        cuda.MemoryPool.malloc cuda.MemoryPool.used_bytes cuda.MemoryPool.total_bytes
        cuda.MemoryPool.free_all_blocks
    """,
    "numba.cuda.cudadrv.driver": "Stream.__int__ driver.is_initialized driver.initialization_error",
    "warp": """
        Stream ScopedDevice.__enter__ get_device Device.is_cuda Device.has_stream Device.stream
        Device.set_stream _src.context.runtime
    """,
    "cuda.core": "Stream.handle graph.GraphBuilder.stream",
    "torch": """
        cuda.is_initialized version.hip Stream.device cuda.Stream cuda.ExternalStream cuda.set_stream
        cuda.current_stream cuda.current_device cuda.set_device cuda.device cuda.stream cuda.empty_cache
        cuda.default_generators Generator.get_offset Generator.device cuda.CUDAGraph.capture_begin
        cuda.CUDAGraph.capture_end cuda.CUDAGraph.instantiate cuda.CUDAGraph.replay cuda.CUDAGraph.reset
        cuda.CUDAGraph.raw_cuda_graph cuda.CUDAGraph.raw_cuda_graph_exec cuda.MemPool.id
        _C._cuda_endAllocateToPool _C._cuda_releasePool distributed.distributed_c10d._world._default_pg
    """,
}


NEEDS = {
    "torch": ("gpu", "torch"),
    "cupy": ("cupy",),
    "numba.cuda.cudadrv.driver": ("gpu",),
    "warp": ("gpu",),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.needs(*NEEDS.get(name, ()))) for name in TOUCHED]
)
def test_the_real_ones_have_what_is_touched(name):
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed")
    code = """
import importlib, operator, sys
name, *paths = sys.argv[1:]
found = importlib.import_module(name)
for path in paths:
    operator.attrgetter(path)(found)
"""
    done = execute([sys.executable, "-c", code, name, *TOUCHED[name].split()])
    assert done.returncode == 0, done.stderr
