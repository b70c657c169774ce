"""The tests that want a GPU, on the software CUDA driver: wherever there is a C compiler."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from processes import execute
from simulators.compiling import compiler
from simulators.cuda.build import build, environment

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.starts("cuda"), pytest.mark.needs("no_gpu")]

TIMEOUT = 500
LEAST_PASSED = {
    "backends/test_conformance.py": 200,
    "backends/test_programs.py": 1,
    "backends/both/test_captures.py": 10,
    "backends/both/test_errors.py": 10,
    "backends/both/test_graphs.py": 4,
    "backends/both/test_probe.py": 5,
    "backends/both/test_streams.py": 10,
    "backends/both/test_work.py": 10,
    "backends/cuda/test_captures.py": 5,
    "backends/cuda/test_conditional_nodes.py": 4,
    "backends/cuda/test_contexts.py": 4,
    "backends/cuda/test_memory_nodes.py": 3,
    "diagnosis/test_device.py": 20,
    "diagnosis/test_broken_captures_cuda.py": 25,  # without the extension; 53 with it
    "graphed/test_second_capture.py": 10,
    "driver_rules/test_cuda_captures.py": 1000,
    "driver_rules/test_cuda_graphs.py": 50,
}
OF_THE_DRIVER = tuple(f"simulators/cuda/{name}.py" for name in ("itself", "lifetimes", "calls"))
MAY_SKIP = (  # rules of the kit about capabilities, and numpy
    "backend 'cuda' has ",
    "backend 'cuda' lets the library serialise replays",
    "backend 'cuda': single nodes are timed by CUPTI",
    "could not import 'numpy'",
    "the interpreter does not tell of calls that Cython has made",  # before Python 3.12
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


def outcome(libraries, tmp_path, *files, **variables):
    """Run tests on the software driver and return what was counted."""
    report = tmp_path / "report.json"
    choice = (f"tests/{name}" for name in files)
    run(
        libraries,
        tmp_path,
        *("-m", "simulators.report", str(report), "-q", "-p", "no:cacheprovider", "--color=no", *choice),
        **variables,
    )
    return SimpleNamespace(**json.loads(report.read_text(encoding="utf-8")))


def test_the_tests_of_the_backend_pass_and_leave_nothing(software_driver, tmp_path, record_property):
    found = outcome(software_driver, tmp_path, *LEAST_PASSED)
    record_property("tests", sum(found.passed.values()))
    assert {
        name: found.passed[name] for name, least in LEAST_PASSED.items() if found.passed[name] < least
    } == {}
    assert [reason for reason in found.skipped if not reason.startswith(MAY_SKIP)] == []
    assert {name: count for name, count in found.live.items() if count > MAY_LIVE.get(name, 0)} == {}
    assert found.stale_handles == 0


def test_a_newer_driver_tells_what_is_inside_conditional_nodes(software_driver, tmp_path, record_property):
    name = "backends/cuda/test_conditional_nodes.py"
    found = outcome(software_driver, tmp_path, name, SOFTWARE_CUDA_VERSION="13020")
    record_property("tests", sum(found.passed.values()))
    assert found.passed[name] >= LEAST_PASSED[name]
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
    assert found.passed[kit] >= LEAST_PASSED[kit]


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
    assert found.passed["backends/test_conformance.py"] >= LEAST_PASSED["backends/test_conformance.py"]


def test_the_demo(software_driver, tmp_path):
    printed = run(
        software_driver,
        tmp_path,
        *("-m", "accelerator_graph", "demo", "--backend", "cuda", "--size", "64", "--steps", "100"),
        *("--output", str(tmp_path / "demo.dot")),
    )
    assert "cuda, device 0" in printed
    assert "identical, bit for bit" in printed
    assert (tmp_path / "demo.dot").read_text().startswith("digraph")
