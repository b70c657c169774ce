"""Every test has a lane that runs it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from lanes import LANES, TESTS, homeless, lanes_of
from processes import execute


@pytest.mark.parametrize(
    ("path", "needs", "expected"),
    [
        ("core/test_new.py", "", ["cpu"]),
        ("core/test_new.py", "cpu", ["cpu"]),
        ("core/test_new.py", "cpu rest monitoring", ["cpu"]),
        ("core/test_new.py", "no_gpu", ["cpu"]),
        ("graphed/deeper/test_new.py", "cuda", ["cuda", "gpu"]),
        ("graphed/test_new.py", "cuda gpus", []),
        ("gpu/test_new.py", "cuda gpus", ["gpus"]),
        ("interop/test_new.py", "software_cuda", ["cuda"]),
        ("interop/test_new.py", "cupy", ["cupy_rocm", "gpu"]),
        ("backends/hip/test_new.py", "hip", ["amd"]),
        ("backends/hip/test_new.py", "hip rest", ["amd"]),
        ("backends/test_conformance.py", "hip", ["amd", "hip_on_cuda", "hip_on_gpu"]),
        ("graphed/test_new.py", "torch no_gpu", ["torch_cpu"]),
        ("gpu/test_new.py", "gpus torch", ["gpus"]),
        ("core/test_new.py", "software_cuda", []),
        ("inspection/test_new.py", "gpu", []),
        ("backends/test_new.py", "cuda amd", []),
        ("backends/test_new.py", "software_cuda gpu", []),
        ("backends/test_new.py", "no_such_need", []),
        ("simulators/cuda/itself.py", "", ["cpu"]),
    ],
)
def test_the_lanes_of_a_test(
    monkeypatch: pytest.MonkeyPatch, path: str, needs: str, expected: list[str]
) -> None:
    monkeypatch.delenv("ACCELERATOR_GRAPH_TEST_SIMULATOR", raising=False)
    assert lanes_of(TESTS / path, needs.split()) == expected


def test_every_folder_of_a_lane_is_there() -> None:
    assert [name for lane in LANES.values() for name in lane.folders if not (TESTS / name).exists()] == []


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("pytest.mark.needs()", "1 passed"),
        ("pytest.mark.needs('no_lock')", "1 deselected"),
        ("pytest.mark.needs('cuda', 'amd')", homeless(["cuda", "amd"])),
        ("pytest.mark.needs('software_cuda')", homeless(["software_cuda"])),
        ("lanes.require('software_cuda', 'gpu')", homeless(["software_cuda", "gpu"])),
    ],
)
def test_a_test_that_nobody_would_run_fails(tmp_path: Path, mark: str, said: str) -> None:
    if "no_lock" in mark and not getattr(sys, "_is_gil_enabled", lambda: True)():
        pytest.skip("this Python has no lock")
    planted = tmp_path / "test_planted.py"
    planted.write_text(f"import lanes, pytest\npytestmark = {mark}\ndef test(): pass\n", encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(TESTS), str(TESTS.parent)))}
    options = ("-p", "conftest", "-p", "no:cacheprovider", "-c", str(TESTS.parent / "pyproject.toml"))
    done = execute([sys.executable, "-m", "pytest", "-q", *options, str(planted)], env=env, merged=True)
    assert said in done.stdout
    assert (done.returncode == 1 or "error" in done.stdout) == ("no lane" in said), done.stdout


def test_no_single_test_leaves_out_its_module() -> None:
    """`require` ends the import of a module, so as the decorator of one test it leaves out all the others."""
    decorated = re.compile(r"^\s*@(lanes\.)?require\(", re.MULTILINE)
    modules = (path for path in TESTS.rglob("*.py") if "__pycache__" not in path.parts)
    found = [path for path in modules if decorated.search(path.read_text(encoding="utf-8"))]
    assert found == []
