"""The command `doctor` on the software CUDA driver and on AMD's runtime, whole and with planted ills."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from processes import execute
from simulators.amd import runtime as amd
from simulators.compiling import compiled
from simulators.cuda.build import environment

on_cuda = [pytest.mark.starts("cuda"), pytest.mark.needs("no_gpu")]
on_amd = [pytest.mark.starts("amd"), pytest.mark.needs("no_gpu")]

FAULT = """
import ctypes
lib = ctypes.CDLL("libcuda.so.1")
lib.fault_fail.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int, ctypes.c_int)
lib.fault_delay.argtypes = (ctypes.c_char_p, ctypes.c_uint)
{}
"""
CRASHING = """
#include <signal.h>
__attribute__((visibility("default"))) int cuDriverGetVersion(int *version) {
    *version = 0;
    return raise(SIGSEGV);
}
"""


def doctor(
    python: list[str], variables: dict[str, str], *options: str, status: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the doctor; return its trials and its findings, by name."""
    command = [*python, "-m", "accelerator_graph", "doctor", "--json", *options]
    done = execute(command, env={"ACCELERATOR_GRAPH_BACKEND": "", **variables})
    assert done.returncode == status, done
    found = json.loads(done.stdout)
    trials = {each["backend"]: each for each in found["trials"]}
    return trials, {each["about"]: each for each in found["findings"]}


def planted(folder: Path, ill: str) -> dict[str, str]:
    """Let every process that has a folder on its import path begin with a fault in the driver."""
    (folder / "sitecustomize.py").write_text(FAULT.format(ill))
    return {"PYTHONPATH": str(folder)}


def with_path(variables: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    """Return variables, with a folder before the import path."""
    return {**variables, "PYTHONPATH": f"{more['PYTHONPATH']}:{variables['PYTHONPATH']}"}


class TestCuda:
    pytestmark = on_cuda

    def test_both_devices_are_tried(self, software_driver: Path) -> None:
        trials, findings = doctor([sys.executable], environment(software_driver))
        assert trials["cuda"]["outcome"] == "passed"
        assert trials["cuda"]["devices"] == 2
        assert Path(trials["cuda"]["libraries"][0]).parent == software_driver
        assert not findings.keys() & {"cuda", "libcuda.so.1"}

    @pytest.mark.parametrize(
        ("ill", "said"),
        [
            (
                'lib.fault_fail(b"cuGraphLaunch", 1, 1 << 60, 719, 0)',
                "replaying the graph raised DriverError",
            ),
            (
                'lib.fault_delay(b"cuGraphLaunch", 60_000_000)',
                "the process did not end within 15 s while replay",
            ),
            ('lib.fault_fail(b"cuStreamEndCapture", 1, 1, 901, 0)', "capturing raised CaptureError"),
        ],
    )
    def test_a_driver_that_fails(self, software_driver: Path, tmp_path: Path, ill: str, said: str) -> None:
        variables = with_path(environment(software_driver), planted(tmp_path, ill))
        trials, findings = doctor([sys.executable], variables, "--time-limit", "15", status=1)
        assert trials["cuda"]["outcome"] == "failed"
        assert said in trials["cuda"]["detail"]
        assert said in findings["cuda"]["fact"]
        assert trials["cpu"]["outcome"] == "passed"

    def test_a_driver_that_can_not_be_opened(self, software_driver: Path, tmp_path: Path) -> None:
        ill = planted(tmp_path, 'lib.fault_fail(b"cuInit", 1, 1 << 60, 803, 0)')
        trials, _ = doctor([sys.executable], with_path(environment(software_driver), ill))
        assert trials["cuda"]["outcome"] == "unusable"
        assert "803" in trials["cuda"]["detail"]

    def test_a_driver_that_crashes_when_it_is_asked_for_its_version(self, tmp_path: Path) -> None:
        (tmp_path / "crashing.c").write_text(CRASHING)
        variables = environment(compiled("crashing", {"libcuda.so.1": tmp_path}))
        trials, findings = doctor([sys.executable], variables, status=1)
        assert findings["info"]["fact"] == "The process that gathers the facts was ended by SIGSEGV."
        assert trials["cuda"]["detail"] == "the process was ended by SIGSEGV while opening the backend"
        assert trials["cpu"]["outcome"] == "passed"

    def test_two_copies_of_the_driver(self, software_driver: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        shutil.copytree(software_driver, other)
        variables = environment(software_driver)
        variables["LD_LIBRARY_PATH"] += f":{other}"
        _, findings = doctor([sys.executable], variables)
        fact = findings["libcuda.so.1"]["fact"]
        assert "There are 2 different copies of CUDA's driver: " in fact
        assert f"{software_driver / 'libcuda.so.1'} (used here)" in fact
        assert f"{other / 'libcuda.so.1'} (used here)" not in fact


class TestAmd:
    pytestmark = on_amd

    @pytest.mark.parametrize(
        ("version", "variable", "value"),
        [
            ("7.2", "DEBUG_HIP_GRAPH_SEGMENT_SCHEDULING", "2"),
            pytest.param("6.4", "DEBUG_HIP_FORCE_GRAPH_QUEUES", "1", marks=pytest.mark.needs("rest")),
        ],
    )
    def test_a_known_defect_until_it_is_avoided(
        self, amd_runtime: Callable[[str], Path], version: str, variable: str, value: str
    ) -> None:
        folder = amd_runtime(version)
        variables = amd.environment(folder, SOFTWARE_HSA_DEVICES="2")
        trials, findings = doctor(amd.command(folder), variables)
        assert trials["hip"]["outcome"] == "passed"
        assert trials["hip"]["devices"] == 2
        assert f"{variable}={value}" in findings["hip"]["advice"]
        assert "libamdhip64.so" not in findings
        _, findings = doctor(amd.command(folder), {**variables, variable: value})
        assert "hip" not in findings

    def test_two_copies_of_the_runtime(self, amd_runtime: Callable[[str], Path], tmp_path: Path) -> None:
        folder = amd_runtime("7.2")
        (tmp_path / "lib").mkdir()
        shutil.copy((folder / "lib" / "libamdhip64.so").resolve(), tmp_path / "lib")
        variables = amd.environment(folder, ROCM_HOME=str(tmp_path))
        trials, findings = doctor(amd.command(folder), variables)
        assert trials["hip"]["outcome"] == "passed"
        fact = findings["libamdhip64.so"]["fact"]
        assert f"{folder / 'lib' / 'libamdhip64.so'} (used here)" in fact
        assert f"{tmp_path}/lib/libamdhip64.so." in fact
