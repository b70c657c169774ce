"""The tests that want a GPU, on the software CUDA driver: wherever there is a C compiler."""

import os
import sys
from pathlib import Path

import pytest

from lanes import LANES
from processes import execute
from simulators.compiling import compiler
from simulators.conftest import lacking
from simulators.cuda.build import build, environment

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.starts("cuda"), pytest.mark.needs("no_gpu")]

PYTHON = [sys.executable]
KIT = "backends/test_conformance.py"
LEAST_PASSED = {
    "backend": {
        "backends": 500,
        "diagnosis": 45,
        "driver_rules": 1400,
    },
    "others": {"compat": 30, "graphed": 90, "interop": 130},
}
"""How many tests pass at least, by folder and without the extension; a process for each part."""
LEAVING = (
    *("backends/both/test_leaks.py", "backends/both/test_progress.py"),
    "backends/cuda/test_conditions.py",  # graphs of which a body was broken
)
"""Tests that leave something in the driver, as stand-ins for frameworks do: they run with the others."""
OF_THE_DRIVER = tuple(f"simulators/cuda/{name}.py" for name in ("itself", "lifetimes", "calls"))
MAY_SKIP = (  # rules of the kit about capabilities, and numpy
    "backend 'cuda' has ",
    "backend 'cuda' lets the library serialise replays",
    "backend 'cuda': single nodes are timed by CUPTI",
    "could not import 'numpy'",
    "the interpreter does not report calls that Cython makes",  # before Python 3.12
    "there is no extension",  # in the lane without it
    "could not import 'hip'",  # with the oldest cuda-python, nothing else is installed
)
# For as long as the process lives: primary contexts, what works/cuda.py of the kit has on a device, memory
# for progress markers and to read flags into, the kernel that tests flags, with memory for its counts, and
# streams for bodies and branches.
MAY_LIVE = {"contexts": 2, "modules": 3, "allocations": 6, "streams": 4}


def test_every_folder_of_the_lane_is_run():
    folders = [folder for part in LEAST_PASSED.values() for folder in part]
    assert sorted(folders) == sorted(LANES["cuda"].folders)


@pytest.mark.parametrize("part", LEAST_PASSED)
def test_the_tests_pass_and_those_of_the_backend_leave_nothing(software_driver, on_simulator, part):
    found = on_simulator(
        PYTHON,
        environment(software_driver),
        *LEAST_PASSED[part],
        *(LEAVING if part == "others" else ()),
        least=LEAST_PASSED[part],
        may_skip=MAY_SKIP,
        options=[f"--ignore=tests/{name}" for name in LEAVING] if part == "backend" else (),
    )
    assert found.accounts["stale_handles"] == 0
    if part == "backend":
        assert left(found) == {}


def test_a_newer_driver_tells_more(software_driver, on_simulator):
    """What is inside conditional nodes, and the ids that profilers know."""
    least = {"backends/cuda/test_conditional_nodes.py": 4, "backends/both/test_stacks.py": 3}
    found = on_simulator(
        PYTHON, environment(software_driver, SOFTWARE_CUDA_VERSION="13020"), *least, least=least
    )
    assert left(found) == {}
    assert found.accounts["stale_handles"] == 0


def test_the_software_driver_is_what_it_says(software_driver, on_simulator):
    on_simulator(PYTHON, environment(software_driver), *OF_THE_DRIVER, least=dict.fromkeys(OF_THE_DRIVER, 5))


@pytest.mark.needs("rest")
def test_right_programs_are_not_accused_under_diagnosis(software_driver, on_simulator):
    on_simulator(
        PYTHON,
        environment(software_driver, ACCELERATOR_GRAPH_DIAGNOSE="1"),
        *(KIT, "backends/test_programs.py"),
        least={KIT: 200},
        may_skip=MAY_SKIP,
    )


@pytest.mark.needs("rest")
def test_no_memory_is_used_that_is_gone(tmp_path, on_simulator):
    """The conformance kit once more, with every access of the driver and its work checked."""
    library = execute([compiler(), "-print-file-name=libasan.so"]).stdout.strip()
    if not os.path.isabs(library):
        pytest.skip("the compiler has no address sanitizer that can be preloaded")
    checked = build("-fsanitize=address", "-fno-omit-frame-pointer")
    variables = {
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "PYTHONMALLOC": "malloc",
    }
    env = environment(checked, **variables)
    on_simulator(
        PYTHON, env, KIT, least={KIT: 200}, may_skip=MAY_SKIP, options=["-s"]
    )  # what it finds, it says


def test_the_demo(software_driver, tmp_path):
    unknown = tmp_path / "unknown"
    arguments = ("--size", "64", "--steps", "100", "--output", str(tmp_path / "demo.dot"))
    done = execute(
        [*PYTHON, "-m", "accelerator_graph", "demo", "cuda", *arguments],
        cwd=ROOT,
        env=environment(software_driver, SOFTWARE_CUDA_UNKNOWN=str(unknown)),
    )
    assert done.returncode == 0, done.stderr
    assert lacking(unknown) == []
    assert "cuda, device 0" in done.stdout
    assert "identical, bit for bit" in done.stdout
    assert (tmp_path / "demo.dot").read_text().startswith("digraph")


def left(found):
    """Return what lives in the driver, and how much, beyond what may."""
    return {name: count for name, count in found.accounts["live"].items() if count > MAY_LIVE.get(name, 0)}
