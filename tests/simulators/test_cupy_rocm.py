"""CuPy for ROCm taking part in captures, on AMD's own runtime above a GPU in software."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lanes import LANES, lack
from processes import execute
from simulators.amd.cupy_rocm.environment import VERSION, environment, make
from simulators.amd.runtime import command

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.starts("cupy_rocm")

TIMEOUT = 1800  # the first time, when some forty kernels are compiled twice, on a busy machine
LEAST_PASSED = {"diagnosis": 12, "examples": 6, "interop": 18, "simulators/amd/cupy_rocm/itself.py": 5}


@pytest.fixture(scope="module")
def places(amd_runtime: Callable[[str], Path]) -> SimpleNamespace:
    runtime = amd_runtime(VERSION)
    try:
        return SimpleNamespace(runtime=runtime, cupy=make(runtime))
    except LookupError as error:
        lack(str(error))
        raise


def test_the_tests_of_cupy_pass(
    places: SimpleNamespace, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    report, unknown = tmp_path / "report.json", tmp_path / "unknown"
    done = execute(
        [
            *(*command(places.runtime), "-m", "simulators.report", str(report)),
            *("-q", "-p", "no:cacheprovider", "-p", "simulators.amd.cupy_rocm.twins", "--color=no"),
            *(f"tests/{name}" for name in LEAST_PASSED),
        ],
        cwd=ROOT,
        env=environment(places.runtime, places.cupy, SOFTWARE_HSA_UNKNOWN=str(unknown)),
        timeout=TIMEOUT,
        merged=True,
    )
    assert done.returncode == 0, done.stdout
    assert not unknown.exists(), unknown.read_text()
    found = SimpleNamespace(**json.loads(report.read_text(encoding="utf-8")))
    record_property("tests", sum(found.passed.values()))
    assert {*LANES["cupy_rocm"].folders} <= {*LEAST_PASSED}
    passed = {
        name: sum(count for path, count in found.passed.items() if f"{path}/".startswith(f"{name}/"))
        for name in LEAST_PASSED
    }
    assert {name: passed[name] for name, least in LEAST_PASSED.items() if passed[name] < least} == {}
    assert found.skipped == {}
    assert found.launches > 300
    assert (found.unknown_kernels, found.unknown_calls) == (0, 0)
