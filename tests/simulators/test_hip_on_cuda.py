"""The HIP backend through the shim, above the software CUDA driver: the lane on a GPU, without one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import inner
from lanes import LANES, lack
from simulators.cuda.build import environment as driver_environment
from simulators.hip_on_cuda.build import build, environment, missing

pytestmark = [pytest.mark.starts("hip_on_cuda"), pytest.mark.needs("no_gpu")]

SAME_GRAPHS = "backends/both/test_same_graphs.py"
LEAST_PASSED = {"backends/test_conformance.py": 260, SAME_GRAPHS: 3, "simulators/hip_on_cuda/itself.py": 5}


def test_the_tests_of_the_backend_pass(
    software_driver: Path, run_inner: Callable[..., inner.Outcome]
) -> None:
    lack(missing())
    assert {*LANES["hip_on_cuda"].folders} <= {*LEAST_PASSED}
    tests = (f"tests/{name}" for name in LEAST_PASSED)
    found = run_inner([sys.executable], *tests, env=environment(build(), driver_environment(software_driver)))
    assert found.fewer(LEAST_PASSED) == {}
