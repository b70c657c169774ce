"""The tests that want an AMD GPU, on AMD's own runtime above a GPU in software."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from lanes import LANES
from processes import execute
from simulators.amd.runtime import command, environment
from simulators.conftest import Run, lacking

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.starts("amd")

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


@pytest.fixture(scope="module", params=["7.2", pytest.param("6.4", marks=pytest.mark.needs("rest"))])
def runtime(request: pytest.FixtureRequest, amd_runtime: Callable[[str], Path]) -> Path:
    return amd_runtime(request.param)


def version_of(request: pytest.FixtureRequest) -> str:
    """Return the version of the runtime that the test is run on."""
    version: str = request.node.callspec.params["runtime"]
    return version


@pytest.mark.parametrize("part", FILES)
def test_the_tests_of_the_backend_pass(
    request: pytest.FixtureRequest, runtime: Path, on_simulator: Run, part: str
) -> None:
    harsh = {"SOFTWARE_HSA_HARSH": SEED} if part in HARSHLY else {}
    queues = ONE_QUEUE if (version_of(request), part) == ("6.4", "programs") else {}
    devices = {"SOFTWARE_HSA_DEVICES": "2"} if part == "programs" else {}
    found = on_simulator(
        command(runtime),
        environment(runtime, **harsh, **queues, **devices),
        *FILES[part],
        least={name: least for name, least in LEAST_PASSED.items() if name in FILES[part]},
        may_skip=MAY_SKIP,
        options=IGNORED if part == "backend" else (),
    )
    assert found.accounts["launches"] > 300
    assert (found.accounts["unknown_kernels"], found.accounts["unknown_calls"]) == (0, 0)


def test_branches_that_share_the_queue_of_the_launch(request: pytest.FixtureRequest, runtime: Path) -> None:
    for queues, ended in ((ONE_QUEUE, {}), ({}, {"6.4": -signal.SIGSEGV})):
        done = execute([*command(runtime), "-c", BRANCHES], cwd=ROOT, env=environment(runtime, **queues))
        assert done.returncode == ended.get(version_of(request), 0), done.stderr


def test_the_rules_about_devices_on_two(runtime: Path, on_simulator: Run) -> None:
    kit = "backends/test_conformance.py"
    on_simulator(
        command(runtime),
        environment(runtime, SOFTWARE_HSA_DEVICES="2"),
        kit,
        least={kit: 6},
        options=("-k", "TestHip and device"),
    )


def test_the_library_below_the_runtime_is_what_it_says(runtime: Path, on_simulator: Run) -> None:
    least = {"simulators/amd/itself.py": 80, "simulators/amd/harshly.py": 20}
    on_simulator(command(runtime), environment(runtime), *least, least=least)


def test_the_demo(runtime: Path, tmp_path: Path) -> None:
    unknown = tmp_path / "unknown"
    arguments = ("--size", "64", "--steps", "100", "--output", str(tmp_path / "demo.dot"))
    done = execute(
        [*command(runtime), "-m", "accelerator_graph", "demo", "hip", *arguments],
        cwd=ROOT,
        env=environment(runtime, SOFTWARE_HSA_UNKNOWN=str(unknown)),
    )
    assert done.returncode == 0, done.stderr
    assert lacking(unknown) == []
    assert "hip, device 0" in done.stdout
    assert "identical, bit for bit" in done.stdout
    assert (tmp_path / "demo.dot").read_text().startswith("digraph")
