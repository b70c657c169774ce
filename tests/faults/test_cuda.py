"""The suite of faults, on the software driver: what it found, and what it covered."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import inner
from faults import parts
from lanes import step
from simulators.cuda.build import environment

CALLED = frozenset(
    (
        *("cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxGetId", "cuCtxGetStreamPriorityRange"),
        "cuCtxSetCurrent",
        *("cuDeviceGet", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain", "cuDriverGetVersion"),
        *("cuEventCreate", "cuEventDestroy", "cuEventElapsedTime", "cuEventQuery", "cuEventRecord"),
        *("cuGraphAddChildGraphNode", "cuGraphAddEventWaitNode", "cuStreamUpdateCaptureDependencies"),
        *("cuDeviceGetGraphMemAttribute", "cuEventSynchronize", "cuFuncGetName", "cuFuncGetParamInfo"),
        *("cuGraphAddDependencies", "cuGraphAddEventRecordNode", "cuGraphClone", "cuGraphNodeFindInClone"),
        *("cuGraphExecUpdate", "cuGraphKernelNodeGetAttribute", "cuFuncGetAttribute"),
        "cuGraphRemoveDependencies",
        *("cuGraphDebugDotPrint", "cuGraphDestroy", "cuGraphExecDestroy", "cuGraphGetEdges"),
        *("cuGraphGetNodes", "cuGraphInstantiate", "cuGraphKernelNodeGetParams"),
        *("cuGraphExecKernelNodeSetParams", "cuGraphExecMemcpyNodeSetParams"),
        *("cuGraphExecMemsetNodeSetParams", "cuGraphMemcpyNodeGetParams", "cuGraphMemsetNodeGetParams"),
        *("cuGraphLaunch", "cuGraphNodeGetType", "cuGraphNodeSetEnabled", "cuGraphUpload"),
        *("cuInit", "cuLaunchKernel"),
        *("cuMemHostAlloc", "cuMemcpyAsync", "cuMemsetD8Async", "cuStreamBeginCapture"),
        "cuStreamCreateWithPriority",
        *("cuStreamDestroy", "cuStreamEndCapture", "cuStreamGetCaptureInfo", "cuStreamGetCtx"),
        *("cuStreamIsCapturing", "cuStreamQuery", "cuStreamSynchronize", "cuStreamWaitEvent"),
        *("cuMemGetInfo", "cuPointerGetAttributes", "cuThreadExchangeStreamCaptureMode"),
    )
)
"""The functions that the library calls, without `cuKernelGetName` and `cuKernelGetParamInfo`, which are for
kernels that have no function."""


PARTS = {"every_call": ["every_call"], "interrupts": ["interrupts"], "rest": parts.REST}


@pytest.mark.promise("interrupt-leaves-no-trace")
@pytest.mark.parametrize("part", PARTS)
def test_every_fault_leaves_no_trace(
    software_driver: Path,
    shared_folder: Path,
    record_property: Callable[[str, object], None],
    run_inner: Callable[..., inner.Outcome],
    part: str,
) -> None:
    folder = shared_folder / "faults-cuda"
    folder.mkdir(exist_ok=True)
    env = environment(software_driver, SOFTWARE_CUDA_UNKNOWN=str(folder / "unknown"))
    parts.run(run_inner, [sys.executable], env, folder / f"{part}.json", PARTS[part])
    if reports := parts.together(folder, PARTS):  # whichever part ends last looks at all
        calls, injected, states_checked, said = parts.figures(reports, "cu")
        record_property("note", f"CUDA faults: {said}")
        assert calls == CALLED
        assert injected > 8000 / step("codes")
        assert states_checked > injected + 15000 / step("moments")
