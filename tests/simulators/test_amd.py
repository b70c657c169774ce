"""The tests that want an AMD GPU, on AMD's own runtime above a GPU in software."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from lanes import LANES
from processes import execute
from simulators.amd.runtime import command, environment

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.starts("amd")

TIMEOUT = 500
VERSIONS = ("7.2", "6.4")
SEED = "1"
HARSHLY = ("kit", "rules")
"""The parts that run in harsh mode, where everything happens that the packets permit."""

FILES = {
    "kit": ["backends/test_conformance.py"],
    "programs": ["backends/test_programs.py"],
    "rules": ["simulators/amd/harshly.py", "driver_rules"],
}
FILES["backend"] = sorted({*LANES["amd"].folders} - {"driver_rules"})
"""All that is in no other part."""
IGNORED = [f"--ignore=tests/{name}" for part in ("kit", "programs") for name in FILES[part]]
ONE_QUEUE = {"DEBUG_HIP_FORCE_GRAPH_QUEUES": "1"}
"""Without it, 6.4.3 crashes in the random programs and in `BRANCHES`: docs/hip.md."""
BRANCHES = """
import accelerator_graph as ag
from hip import hip

memory = int(hip.hipMalloc(4096)[1])
with ag.Stream(backend="hip") as main:
    sides = [ag.Stream(like=main) for _ in range(3)]
    others = [ag.Stream(like=main) for _ in range(12)]
    for stream in (main, *sides, *others):
        stream.fill(memory, 1, 64)  # a stream has a queue from its first work on
    launching = others[8]
    others[0].close()
    others[4].close()  # the four queues take turns: now that of `launching` has the fewest streams
    with ag.Graph(stream=launching) as graph:
        for number, side in enumerate(sides):
            side.wait(launching)
            side.fill(memory + 64 * number, 1, 64)
        launching.fill(memory + 1024, 1, 64)
        for side in sides:
            launching.wait(side)
    graph.replay()
    launching.synchronize()
"""
LEAST_PASSED = {
    "backends/test_conformance.py": 240,
    "backends": 180,
    "diagnosis": 35,
    "driver_rules": 900,
    "graphed": 10,
    "simulators/amd/harshly.py": 20,
}
MAY_SKIP = (  # rules of the kit about capabilities, and what upstream breaks
    "backend 'hip' has ",
    "backend 'hip' lets the library serialise replays",
    "backend 'hip' does not change ",
    "backend 'hip' does not report all parameters of nodes",
    "progress(): backend 'hip' has no memory of the host that a graph can write",  # 6.4
    "expected to fail: AMD's runtime",
    *(f"{how}HIP {version} answers" for how in ("", "that is how ") for version in VERSIONS),
    "it needs two devices",  # they are run in a process that has two
    "there is no extension",  # in the lane without it
    "Python 3.12 itself crashes",
    "this Python can't make its allocations fail",
    "could not import 'cuda",  # in the lanes of one hip-python, nothing else is installed
)


Record = Callable[[str, object], None]


@pytest.fixture(scope="module", params=["7.2", pytest.param("6.4", marks=pytest.mark.needs("rest"))])
def runtime(request: pytest.FixtureRequest, amd_runtime: Callable[[str], Path]) -> Path:
    return amd_runtime(request.param)


def version_of(request: pytest.FixtureRequest) -> str:
    """Return the version of the runtime that the test is run on."""
    version: str = request.node.callspec.params["runtime"]
    return version


def run(runtime: Path, tmp_path: Path, *arguments: str, **variables: str) -> str:
    """Run Python on the runtime, which must lack nothing below it; return what it printed."""
    unknown = tmp_path / "unknown"
    done = execute(
        [*command(runtime), *arguments],
        cwd=ROOT,
        env=environment(runtime, SOFTWARE_HSA_UNKNOWN=str(unknown), **variables),
        timeout=TIMEOUT,
        merged=True,
    )
    assert done.returncode == 0, done.stdout
    assert not unknown.exists(), (
        f"the library below the runtime lacks {sorted(set(unknown.read_text().splitlines()))}"
    )
    return done.stdout


def outcome(
    runtime: Path, tmp_path: Path, *files: str, tests: str = "", options: Sequence[str] = (), **variables: str
) -> SimpleNamespace:
    """Run tests on the runtime and return what was counted."""
    report = tmp_path / "report.json"
    how = ("-q", "-p", "no:cacheprovider", "--color=no", *options, *(("-k", tests) if tests else ()))
    paths = (f"tests/{name}" for name in files)
    run(runtime, tmp_path, "-m", "simulators.report", str(report), *how, *paths, **variables)
    return SimpleNamespace(**json.loads(report.read_text(encoding="utf-8")))


@pytest.mark.parametrize("part", FILES)
def test_the_tests_of_the_backend_pass(
    request: pytest.FixtureRequest, runtime: Path, tmp_path: Path, record_property: Record, part: str
) -> None:
    harsh = {"SOFTWARE_HSA_HARSH": SEED} if part in HARSHLY else {}
    queues = ONE_QUEUE if (version_of(request), part) == ("6.4", "programs") else {}
    devices = {"SOFTWARE_HSA_DEVICES": "2"} if part == "programs" else {}
    options = IGNORED if part == "backend" else []
    found = outcome(runtime, tmp_path, *FILES[part], options=options, **harsh, **queues, **devices)
    record_property("tests", sum(found.passed.values()))
    passed = {
        name: sum(count for path, count in found.passed.items() if f"{path}/".startswith(f"{name}/"))
        for name in FILES[part]
    }
    assert {name: count for name, count in passed.items() if count < LEAST_PASSED.get(name, 1)} == {}
    assert [reason for reason in found.skipped if not reason.startswith(MAY_SKIP)] == []
    assert found.launches > 300
    assert (found.unknown_kernels, found.unknown_calls) == (0, 0)


def test_branches_that_share_the_queue_of_the_launch(
    request: pytest.FixtureRequest, runtime: Path, tmp_path: Path
) -> None:
    run(runtime, tmp_path, "-c", BRANCHES, **ONE_QUEUE)
    done = execute([*command(runtime), "-c", BRANCHES], cwd=ROOT, env=environment(runtime))
    assert done.returncode == {"6.4": -signal.SIGSEGV, "7.2": 0}[version_of(request)], done.stderr


def test_the_rules_about_devices_on_two(runtime: Path, tmp_path: Path, record_property: Record) -> None:
    kit = "backends/test_conformance.py"
    found = outcome(runtime, tmp_path, kit, tests="TestHip and device", SOFTWARE_HSA_DEVICES="2")
    record_property("tests", found.passed[kit])
    assert found.passed[kit] > 5
    assert found.skipped == {}


def test_the_library_below_the_runtime_is_what_it_says(
    runtime: Path, tmp_path: Path, record_property: Record
) -> None:
    least = {"simulators/amd/itself.py": 80, "simulators/amd/harshly.py": 20}
    found = outcome(runtime, tmp_path, *least)
    record_property("tests", sum(found.passed.values()))
    assert {name: found.passed[name] for name in least if found.passed[name] < least[name]} == {}
    assert found.skipped == {}


def test_the_demo(runtime: Path, tmp_path: Path) -> None:
    printed = run(
        runtime,
        tmp_path,
        *("-m", "accelerator_graph", "demo", "hip", "--size", "64", "--steps", "100"),
        *("--output", str(tmp_path / "demo.dot")),
    )
    assert "hip, device 0" in printed
    assert "identical, bit for bit" in printed
    assert (tmp_path / "demo.dot").read_text().startswith("digraph")
