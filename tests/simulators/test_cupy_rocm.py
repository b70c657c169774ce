"""CuPy for ROCm taking part in captures, on AMD's own runtime above a GPU in software."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lanes import LANES, lack
from simulators.amd.cupy_rocm.environment import VERSION, environment, make
from simulators.amd.runtime import command
from simulators.conftest import Run

pytestmark = pytest.mark.starts("cupy_rocm")

LEAST_PASSED = {"diagnosis": 12, "examples": 6, "interop": 18, "simulators/amd/cupy_rocm/itself.py": 5}


@pytest.fixture(scope="module")
def places(amd_runtime: Callable[[str], Path]) -> SimpleNamespace:
    runtime = amd_runtime(VERSION)
    try:
        return SimpleNamespace(runtime=runtime, cupy=make(runtime))
    except LookupError as error:
        lack(str(error))
        raise


def test_the_tests_of_cupy_pass(places: SimpleNamespace, on_simulator: Run) -> None:
    assert {*LANES["cupy_rocm"].folders} <= {*LEAST_PASSED}
    found = on_simulator(
        command(places.runtime),
        environment(places.runtime, places.cupy),
        *LEAST_PASSED,
        least=LEAST_PASSED,
        options=("-p", "simulators.amd.cupy_rocm.twins"),
    )
    assert found.accounts["launches"] > 300
    assert (found.accounts["unknown_kernels"], found.accounts["unknown_calls"]) == (0, 0)
