"""`python -m accelerator_graph`, as its users call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from accelerator_graph.__main__ import main
from accelerator_graph.backends.base import Availability
from accelerator_graph.backends.cpu import CpuBackend
from processes import execute

ROOT = Path(__file__).resolve().parents[1]


def command_line(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **variables}
    return execute([sys.executable, "-W", "error", "-m", "accelerator_graph", *arguments], env=environment)


def solved(*arguments: str) -> str:
    done = command_line("demo", "--backend", "cpu", "--size", "16", "--steps", "40", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def refused(status: int, *arguments: str, **variables: str) -> str:
    done = command_line(*arguments, **variables)
    assert done.returncode == status, done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_info_shows_every_backend_and_why_it_is_not_usable() -> None:
    done = command_line("info")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("accelerator_graph ")
    facts = json.loads(command_line("info", "--json").stdout)
    for backend in facts["backends"]:
        assert backend["name"] in done.stdout
        if not backend["usable"]:
            assert backend["reason"]
            assert backend["reason"] in done.stdout


def test_info_shows_every_framework_and_why_it_is_not_usable() -> None:
    facts = json.loads(command_line("info", "--json").stdout)
    rows = {row["name"]: row for row in facts["frameworks"]}
    assert {"torch", "cupy", "warp", "numba.cuda", "cuda.core"} <= set(rows)
    assert rows["cupy"]["reason"] == "it is not imported"
    lines = [line.split(maxsplit=3) for line in command_line("info").stdout.splitlines()]
    assert ["cupy", "no", "built-in", "it is not imported"] in lines


def test_info_shows_a_known_defect_of_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Availability(True, devices=1, warning="Its tapes tear. Use tapes of 1981.")
    monkeypatch.setattr(CpuBackend, "probe", lambda: found)
    assert main(["info"]) == 0
    assert "cpu: Its tapes tear. Use tapes of 1981." in capsys.readouterr().out.splitlines()
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["warning"] for row in facts["backends"]}["cpu"] == found.warning


def test_info_for_programs_says_that_cpu_is_usable() -> None:
    done = command_line("info", "--json", ACCELERATOR_GRAPH_BACKEND="cpu")
    facts = json.loads(done.stdout)
    cpu = next(backend for backend in facts["backends"] if backend["name"] == "cpu")
    assert cpu["usable"] is True
    assert facts["chosen"] == "cpu"


def test_info_reports_a_wrong_choice_in_the_environment() -> None:
    done = command_line("info", ACCELERATOR_GRAPH_BACKEND="nonsense")
    assert done.returncode == 0, done.stderr
    assert "nonsense" in done.stdout


def test_demo_gets_the_same_bits_and_draws_the_graph(tmp_path: Path) -> None:
    drawing = tmp_path / "a step.dot"
    output = solved("--dump", str(drawing))
    assert "identical" in output
    assert str(drawing) in output
    text = drawing.read_text(encoding="utf-8")
    assert text.startswith("digraph")
    assert text.count("diffuse_rows") == 40
    assert "->" in text


def test_demo_leaves_its_drawing_in_a_temporary_file() -> None:
    [line] = [line for line in solved().splitlines() if line.startswith("drawing")]
    drawing = Path(line.split(maxsplit=1)[1])
    try:
        assert drawing.read_text(encoding="utf-8").startswith("digraph")
    finally:
        drawing.unlink()


def test_demo_takes_the_best_that_is_usable_when_none_is_named(tmp_path: Path) -> None:
    done = command_line("demo", "--size", "16", "--steps", "20", "--dump", str(tmp_path / "x.dot"))
    assert done.returncode == 0, done.stderr
    assert "identical" in done.stdout


PLUGIN = """
from accelerator_graph._demo.cpu import CpuPlate as Plate
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.testing.works.host import HostWork

class Backend(CpuBackend):
    priority = {priority}

class Work(HostWork):
    def __init__(self):
        super().__init__("plug")
"""
HOOKS = """
[accelerator_graph.demo]
plug = the_plugin:Plate
[accelerator_graph.conformance]
plug = the_plugin:Work
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Installs a plug-in, with further entry points; returns the variables that make it be found."""

    def install(priority: object, hooks: str = "") -> dict[str, str]:
        (tmp_path / "the_plugin.py").write_text(PLUGIN.format(priority=priority))
        info = tmp_path / "the_plugin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: the-plugin\nVersion: 1.0\n")
        points = f"[accelerator_graph.backends]\nplug = the_plugin:Backend\n{hooks}"
        (info / "entry_points.txt").write_text(points)
        return {"PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))}

    return install


@pytest.mark.parametrize("priority", [5, None])
def test_demo_takes_the_best_that_it_has_a_kernel_for(
    plugin: Callable[[object], dict[str, str]], priority: object, tmp_path: Path
) -> None:
    variables = plugin(priority)
    arguments = ("demo", "--size", "16", "--steps", "20", "--dump", str(tmp_path / "x.dot"))
    done = command_line(*arguments, **variables)
    assert done.returncode == 0, done.stderr
    assert "identical" in done.stdout
    for named in (
        command_line(*arguments, "--backend", "plug", **variables),
        command_line(*arguments, ACCELERATOR_GRAPH_BACKEND="plug", **variables),
    ):
        assert named.returncode == 1
        assert "backend 'plug' has no kernel for the demo" in named.stderr
        assert '[project.entry-points."accelerator_graph.demo"] plug = "module:Class"' in named.stderr


def test_demo_runs_on_a_plug_in_that_has_a_kernel_for_it(
    plugin: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    variables = plugin(None, HOOKS)
    drawing = str(tmp_path / "x.dot")
    arguments = ("demo", "--backend", "plug", "--size", "16", "--steps", "20", "--dump", drawing)
    done = command_line(*arguments, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("backend    plug, ")
    assert "identical" in done.stdout


@pytest.mark.parametrize(
    ("hooks", "message"),
    [(HOOKS, "there is no test_of_nothing"), ("", "backend 'plug' has no work for the conformance kit")],
)
def test_conformance_of_a_plug_in_uses_the_work_of_its_entry_point(
    plugin: Callable[..., dict[str, str]], hooks: str, message: str, tmp_path: Path
) -> None:
    expected = tmp_path / "expected.toml"
    expected.write_text("test_of_nothing = 'so that no rule is run'\n")
    arguments = ("conformance", "plug", "--expected", str(expected))
    assert message in refused(1, *arguments, **plugin(None, hooks))


def test_info_says_which_backend_has_to_be_named(plugin: Callable[[object], dict[str, str]]) -> None:
    variables = plugin(None)
    facts = json.loads(command_line("info", "--json", **variables).stdout)
    assert {row["name"]: row["only_named"] for row in facts["backends"]} == {
        "cpu": False,
        "cuda": False,
        "hip": False,
        "plug": True,
    }
    assert facts["chosen"] != "plug"
    assert "plug: usable, but used only if you name it." in command_line("info", **variables).stdout


def test_demo_notices_a_replay_that_differs(tmp_path: Path) -> None:
    code = """
import sys
import accelerator_graph._demo.cpu as cpu
from accelerator_graph.__main__ import main

real, calls = cpu.diffuse_rows, 0

def forgetful(*arguments):
    global calls
    calls += 1
    if calls != 200:
        real(*arguments)

cpu.diffuse_rows = forgetful
sys.exit(main(["demo", "--backend", "cpu", "--size", "16", "--steps", "40", "--dump", sys.argv[1]]))
"""
    done = execute(
        [sys.executable, "-c", code, str(tmp_path / "x.dot")], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 1, done.stderr
    assert "DIFFERENT" in done.stdout


def test_unknown_backend_is_refused_in_the_words_of_the_library() -> None:
    message = refused(1, "demo", "--backend", "cpuu")
    assert "'cpuu'" in message
    assert "did you mean 'cpu'?" in message


@pytest.mark.parametrize("variables", [{}, {"ACCELERATOR_GRAPH_BACKEND": "cpu"}])
def test_unavailable_backend_is_refused_with_its_reason(variables: dict[str, str]) -> None:
    facts = json.loads(command_line("info", "--json").stdout)
    missing = [backend for backend in facts["backends"] if not backend["usable"]]
    if not missing:
        pytest.skip("every backend is usable here")
    assert missing[0]["reason"] in refused(1, "demo", "--backend", missing[0]["name"], **variables)


def test_drawing_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "missing" / "x.dot")
    assert path in refused(1, "demo", "--backend", "cpu", "--size", "8", "--steps", "20", "--dump", path)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("info", "extra"),
        ("demo", "--size", "3"),
        ("demo", "--size", "many"),
        ("demo", "--steps", "0"),
        ("demo", "--steps", "21"),
        ("demo", "--backend"),
    ],
)
def test_bad_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    assert "usage:" in refused(2, *arguments)
