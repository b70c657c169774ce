"""The suite of faults, on the software driver: what it found, and what it covered."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from driver.build import ROOT, environment

TIMEOUT = 280
PARTS = {
    "calls": ("every_call", "opening", "lost"),
    "rest": ("threads", "replays", "collection", "processes", "interrupts"),
}

CALLED = frozenset(
    (
        *("cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxGetStreamPriorityRange", "cuCtxSetCurrent"),
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
def reports(software_driver: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """Run all parts of the suite at once and return what they wrote down."""
    folder: Path = tmp_path_factory.mktemp("faults")
    env = environment(software_driver, SOFTWARE_CUDA_UNKNOWN=str(folder / "unknown"))
    running = {}
    for part, modules in PARTS.items():
        command = [sys.executable, "-m", "faults", str(folder / f"{part}.json"), *modules]
        with open(folder / f"{part}.txt", "wb") as output:
            running[part] = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT
            )
    found = {}
    try:
        for part, process in running.items():
            process.wait(TIMEOUT)
            report = folder / f"{part}.json"
            found[part] = json.loads(report.read_text()) if report.exists() else {}
            found[part]["output"] = (folder / f"{part}.txt").read_text(errors="replace")
            found[part]["ended"] = process.returncode
    finally:
        for process in running.values():
            process.kill()
    return found


@pytest.mark.parametrize("part", PARTS)
def test_every_fault_leaves_no_trace(reports, part):
    report = reports[part]
    assert report["ended"] == 0, report["output"][-8000:]
    assert report["leaks"] == 0
    assert report["stale_handles"] == 0
    assert report["unknown_calls"] == 0


def test_figures(reports, capsys):
    injected = sum((Counter(report["injected"]) for report in reports.values()), Counter())
    outcomes = sum((Counter(report["outcomes"]) for report in reports.values()), Counter())
    total = {
        key: sum(report[key] for report in reports.values())
        for key in ("states_checked", "leaks", "left_by_destruction", "left_by_interrupts")
    }
    calls = {name for name in injected if name.startswith("cu")}
    with capsys.disabled():
        print(
            f"\nfaults: {len(calls)} driver calls covered, {sum(injected.values())} faults injected, "
            f"{total['states_checked']} states checked, leaks: {total['leaks']}"
            f"\n        ({total['left_by_destruction']} objects whose own destruction was made to fail, "
            f"{total['left_by_interrupts']} interrupted on their way to an owner; {dict(outcomes)})"
        )
    assert calls == CALLED
    assert sum(injected.values()) > 8000
    assert total["states_checked"] > 10000
