"""The HIP backend through the shim, above the software CUDA driver: the lane on a GPU, without one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lanes import LANES, lack
from processes import execute
from simulators.cuda.build import environment as driver_environment
from simulators.hip_on_cuda.build import build, environment, missing

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.starts("hip_on_cuda"), pytest.mark.needs("no_gpu")]

TESTS = (*LANES["hip_on_cuda"].folders, "simulators/hip_on_cuda/itself.py")


def test_the_tests_of_the_backend_pass(
    software_driver: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    lack(missing())
    report = tmp_path / "report.xml"
    done = execute(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no"),
            f"--junitxml={report}",
            *(f"tests/{name}" for name in TESTS),
        ],
        cwd=ROOT,
        env=environment(build(), driver_environment(software_driver)),
        timeout=500,
        merged=True,
    )
    assert done.returncode == 0, done.stdout
    assert "test_the_same_graph" in report.read_text(encoding="utf-8")
    passed = int(done.stdout.rpartition(" passed")[0].split()[-1])
    record_property("tests", passed)
    assert passed > 270, done.stdout
