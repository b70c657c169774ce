"""The suite of faults, on the software driver: what it found, and what it covered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from faults import parts
from simulators.cuda.build import environment

CALLED = frozenset(
    (
        *("cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxGetId", "cuCtxGetStreamPriorityRange"),
        "cuCtxSetCurrent",
        *("cuDeviceGet", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain", "cuDriverGetVersion"),
        *("cuEventCreate", "cuEventDestroy", "cuEventRecord", "cuFuncGetName"),
        *("cuGraphDebugDotPrint", "cuGraphDestroy", "cuGraphExecDestroy", "cuGraphGetEdges"),
        *("cuGraphGetNodes", "cuGraphGetRootNodes", "cuGraphInstantiate", "cuGraphKernelNodeGetParams"),
        *("cuGraphLaunch", "cuGraphNodeGetType", "cuGraphUpload", "cuInit", "cuLaunchKernel"),
        *("cuMemcpyAsync", "cuMemsetD8Async", "cuStreamBeginCapture", "cuStreamCreateWithPriority"),
        *("cuStreamDestroy", "cuStreamEndCapture", "cuStreamGetCaptureInfo", "cuStreamGetCtx"),
        *("cuStreamIsCapturing", "cuStreamQuery", "cuStreamSynchronize", "cuStreamWaitEvent"),
        "cuThreadExchangeStreamCaptureMode",
    )
)
"""The functions that the library calls; `cuKernelGetName` is for kernels that have no function."""


@pytest.fixture(scope="module")
def reports(software_driver: Path, tmp_path_factory: pytest.TempPathFactory):
    """What all parts of the suite wrote down."""
    folder: Path = tmp_path_factory.mktemp("faults")
    env = environment(software_driver, SOFTWARE_CUDA_UNKNOWN=str(folder / "unknown"))
    return parts.run([sys.executable], env, folder)


@pytest.mark.parametrize("part", parts.PARTS)
def test_every_fault_leaves_no_trace(reports, part):
    parts.check(reports[part])


def test_figures(reports, capsys):
    with capsys.disabled():
        calls, injected, states_checked = parts.figures(reports, "cu")
    assert calls == CALLED
    assert injected > 8000
    assert states_checked > 10000
