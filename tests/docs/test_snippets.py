"""The code of README.md and of the pages in docs/ runs, each piece on the lane that it needs."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from docs.names import unknown_names
from docs.pages import PAGES, RECORDS, ROOT, Fence, fences_of, name_of
from docs.player import MARK
from processes import execute
from simulators.amd import runtime as amd
from simulators.cuda import build as cuda
from torch_cpu import environment as torch_cpu
from torch_cpu.forks import Fork

PLAYER = Path(__file__).with_name("player.py")
AMD = "7.2"
TIMEOUT = 300
FENCES = {name_of(page): fences_of(page) for page in PAGES if RECORDS not in page.parents}
MARKS = {
    "cpu": (),
    "torch": (pytest.mark.starts("torch_cpu"),),
    "cuda": (pytest.mark.starts("cuda"), pytest.mark.needs("no_gpu")),
    "hip": (pytest.mark.starts("amd"),),
    "gpu": (pytest.mark.needs("gpu"),),
    "cuda on a GPU": (pytest.mark.needs("gpu"),),
}
"""The marks of a test, by the place where it runs code: its lane; code of the lane cuda runs in two."""


def lane_of(fence: Fence) -> str:
    """Return the lane that runs a fence, or nothing if it is not run."""
    return {"lane": fence.argument, "command": "cpu"}.get(fence.kind, "")


def steps_of(page: str, place: str) -> list[Fence]:
    """Return what is to be done for a page in a place, in order, or nothing if no code belongs there."""
    lane = place.partition(" ")[0]
    steps = [each for each in FENCES[page] if each.kind == "file" or lane_of(each) == lane]
    return steps if any(map(lane_of, steps)) else []


def outputs_of(page: str) -> dict[Fence, Fence]:
    """Return the fences with what code prints, by the fence with that code."""
    pairs = zip([None, *FENCES[page]], FENCES[page], strict=False)
    return {before: fence for before, fence in pairs if before and fence.kind == "output"}


def modules_of(code: str) -> set[str]:
    """Return the packages that code imports."""
    nodes = [*ast.walk(ast.parse(code))]
    imported = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    imported += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.partition(".")[0] for name in imported}


def process(place: str, request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """Return the Python of a place, and the variables of its environment."""
    match place:
        case "torch":
            return str(request.getfixturevalue("torch_python")), torch_cpu.environment()
        case "cuda":
            return sys.executable, cuda.environment(request.getfixturevalue("software_driver"))
        case "hip":
            runtime = request.getfixturevalue("amd_runtime")(AMD)
            return amd.command(runtime)[0], amd.environment(runtime)
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    variables.pop("ACCELERATOR_GRAPH_BACKEND", None)
    return sys.executable, variables | ({"ACCELERATOR_GRAPH_BACKEND": "cpu"} if place == "cpu" else {})


def play(steps: Sequence[Fence], place: str, request: pytest.FixtureRequest, folder: Path) -> list[str]:
    """Run steps in a place and return what each has printed."""
    python, env = process(place, request)
    command = folder / "bin" / "accelerator-graph"  # as installers write it
    command.parent.mkdir()
    command.write_text(
        f"#!{python}\nimport sys\nfrom accelerator_graph.__main__ import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    folders = (str(command.parent), str(Path(python).parent), env.get("PATH", os.defpath))
    env["PATH"] = os.pathsep.join(folders)
    (folder / "page").mkdir()
    file = folder / "steps.json"
    file.write_text(json.dumps([dataclasses.asdict(step) for step in steps]), encoding="utf-8")
    start = Fork if place == "torch" else subprocess.Popen
    done = execute([python, PLAYER, file], cwd=folder / "page", env=env, timeout=TIMEOUT, start=start)
    *printed, rest = done.stdout.split(MARK)
    assert done.returncode == 0, f"{steps[len(printed)]} fails\n{rest}\n{done.stderr}"
    assert done.stderr == ""
    return printed


PLAYED = [
    pytest.param(page, place, marks=marks, id=f"{page}-{place}")
    for page in FENCES
    for place, marks in MARKS.items()
    if steps_of(page, place)
]


@pytest.mark.parametrize(("page", "place"), PLAYED)
def test_the_code_runs(page: str, place: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    steps = steps_of(page, place)
    if place.endswith(("gpu", "GPU")):
        for module in sorted(set.union(*(modules_of(step.text) for step in steps if step.kind == "lane"))):
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"{module} is not installed")
    for step, printed in zip(steps, play(steps, place, request, tmp_path), strict=True):
        if expected := outputs_of(page).get(step):
            assert printed == expected.text, f"{expected} is not what {step} prints"


def test_there_is_code() -> None:
    assert {("README.md", "cpu"), ("README.md", "gpu")} <= {each.values for each in PLAYED}


@pytest.mark.parametrize("page", [page for page in FENCES if FENCES[page]])
def test_the_names_exist(page: str) -> None:
    """Also those that only code for a GPU uses, which most machines can't run, and those in diffs."""
    codes: dict[str, str] = {}
    for fence in FENCES[page]:
        if fence.kind == "lane":
            codes[fence.argument] = codes.get(fence.argument, "") + fence.text
        elif fence.language == "diff":
            codes[str(fence)] = new_lines(fence.text)
    assert {name: unknown for name, code in codes.items() if (unknown := unknown_names(code))} == {}


def new_lines(diff: str) -> str:
    """Return what a diff makes of the code that it changes."""
    return textwrap.dedent("".join(f"{line[1:]}\n" for line in diff.splitlines() if not line.startswith("-")))


@pytest.mark.parametrize("page", [page for page in FENCES if FENCES[page]])
def test_an_output_follows_code(page: str) -> None:
    assert [str(fence) for before, fence in outputs_of(page).items() if not lane_of(before)] == []
    assert sum(fence.kind == "output" for fence in FENCES[page]) == len(outputs_of(page))
