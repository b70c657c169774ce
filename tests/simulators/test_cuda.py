"""The tests that want a GPU, on the software CUDA driver: wherever there is a C compiler."""

import json
import os
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from lanes import LANES
from processes import execute
from simulators.compiling import compiler
from simulators.cuda.build import build, environment

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.starts("cuda"), pytest.mark.needs("no_gpu")]

TIMEOUT = 500
LEAST_PASSED = {
    "backend": {
        "backends": 500,
        "diagnosis": 45,
        "driver_rules": 1400,
    },
    "others": {"compat": 30, "graphed": 90, "interop": 130},
}
"""How many tests pass at least, by folder and without the extension; a process for each part."""
LEAVING = ("backends/both/test_leaks.py", "backends/both/test_progress.py")
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
# For as long as the process lives: primary contexts, what works/cuda.py of the kit has on a device, and the
# memory for progress markers.
MAY_LIVE = {"contexts": 2, "modules": 2, "allocations": 4}


def run(libraries, tmp_path, *arguments, **variables):
    """Run Python on the software driver, which must lack nothing for it; return what it printed."""
    unknown = tmp_path / "unknown"
    done = execute(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment(libraries, SOFTWARE_CUDA_UNKNOWN=str(unknown), **variables),
        timeout=TIMEOUT,
        merged=True,
    )
    assert done.returncode == 0, done.stdout
    assert not unknown.exists(), f"the software driver lacks {sorted(set(unknown.read_text().split()))}"
    return done.stdout


def outcome(libraries, tmp_path, *files, options=(), **variables):
    """Run tests on the software driver and return what was counted."""
    report = tmp_path / "report.json"
    choice = (f"tests/{name}" for name in files)
    run(
        libraries,
        tmp_path,
        *(
            "-m",
            "simulators.report",
            str(report),
            "-q",
            "-p",
            "no:cacheprovider",
            "--color=no",
            *options,
            *choice,
        ),
        **variables,
    )
    return SimpleNamespace(**json.loads(report.read_text(encoding="utf-8")))


def test_every_folder_of_the_lane_is_run():
    folders = [folder for part in LEAST_PASSED.values() for folder in part]
    assert sorted(folders) == sorted(LANES["cuda"].folders)


@pytest.mark.parametrize("part", LEAST_PASSED)
def test_the_tests_pass_and_those_of_the_backend_leave_nothing(
    software_driver, tmp_path, record_property, part
):
    without = [f"--ignore=tests/{name}" for name in LEAVING]
    found = outcome(
        software_driver,
        tmp_path,
        *LEAST_PASSED[part],
        *(LEAVING if part == "others" else ()),
        options=without if part == "backend" else (),
    )
    record_property("tests", sum(found.passed.values()))
    passed = Counter()
    for name, count in found.passed.items():
        passed[name.partition("/")[0]] += count
    assert {name: passed[name] for name, least in LEAST_PASSED[part].items() if passed[name] < least} == {}
    assert [reason for reason in found.skipped if not reason.startswith(MAY_SKIP)] == []
    assert found.stale_handles == 0
    if part == "backend":
        assert {name: count for name, count in found.live.items() if count > MAY_LIVE.get(name, 0)} == {}


def test_a_newer_driver_tells_more(software_driver, tmp_path, record_property):
    """What is inside conditional nodes, and the ids that profilers know."""
    names = {"backends/cuda/test_conditional_nodes.py": 4, "backends/both/test_stacks.py": 3}
    found = outcome(software_driver, tmp_path, *names, SOFTWARE_CUDA_VERSION="13020")
    record_property("tests", sum(found.passed.values()))
    assert [name for name, least in names.items() if found.passed[name] < least] == []
    assert {name: count for name, count in found.live.items() if count > MAY_LIVE.get(name, 0)} == {}
    assert found.stale_handles == 0


def test_the_software_driver_is_what_it_says(software_driver, tmp_path, record_property):
    found = outcome(software_driver, tmp_path, *OF_THE_DRIVER)
    record_property("tests", sum(found.passed.values()))
    assert [name for name in OF_THE_DRIVER if found.passed[name] < 5] == []
    assert found.skipped == {}


@pytest.mark.needs("rest")
def test_right_programs_are_not_accused_under_diagnosis(software_driver, tmp_path, record_property):
    kit = "backends/test_conformance.py"
    found = outcome(
        software_driver, tmp_path, kit, "backends/test_programs.py", ACCELERATOR_GRAPH_DIAGNOSE="1"
    )
    record_property("tests", sum(found.passed.values()))
    assert found.passed[kit] >= 200


@pytest.mark.needs("rest")
def test_no_memory_is_used_that_is_gone(tmp_path, record_property):
    """The conformance kit once more, with every access of the driver and its work checked."""
    library = execute([compiler(), "-print-file-name=libasan.so"]).stdout.strip()
    if not os.path.isabs(library):
        pytest.skip("the compiler has no address sanitizer that can be preloaded")
    checked = build("-fsanitize=address", "-fno-omit-frame-pointer")
    log = tmp_path / "log"
    variables = {
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": f"detect_leaks=0:abort_on_error=1:log_path={log}",
        "PYTHONMALLOC": "malloc",
    }
    try:
        found = outcome(checked, tmp_path, "backends/test_conformance.py", **variables)
    except AssertionError:
        raise AssertionError("\n".join(path.read_text() for path in tmp_path.glob("log*"))) from None
    record_property("tests", sum(found.passed.values()))
    assert found.passed["backends/test_conformance.py"] >= 200


def test_the_demo(software_driver, tmp_path):
    printed = run(
        software_driver,
        tmp_path,
        *("-m", "accelerator_graph", "demo", "cuda", "--size", "64", "--steps", "100"),
        *("--output", str(tmp_path / "demo.dot")),
    )
    assert "cuda, device 0" in printed
    assert "identical, bit for bit" in printed
    assert (tmp_path / "demo.dot").read_text().startswith("digraph")
