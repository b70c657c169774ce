"""`accelerator-graph` and `python -m accelerator_graph`, as their users call them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from accelerator_graph.__main__ import main
from accelerator_graph._cli import environment
from accelerator_graph.backends import register, unregister
from accelerator_graph.backends.base import Availability
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import BackendUnavailableError
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
            assert backend["reason"][1:] in done.stdout


def test_info_shows_every_framework_and_why_it_is_not_usable() -> None:
    facts = json.loads(command_line("info", "--json").stdout)
    rows = {row["name"]: row for row in facts["frameworks"]}
    assert {"torch", "cupy", "warp", "numba.cuda", "cuda.core"} <= set(rows)
    lines = [line.split(maxsplit=2) for line in command_line("info").stdout.splitlines()]
    for name, row in rows.items():
        if row["installed"] is None:
            assert [name, "-", "not installed"] in lines
        else:
            assert [name, row["installed"], "takes part once your program has imported it"] in lines


def test_info_shows_a_known_defect_of_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Availability(True, devices=1, warning="Its tapes tear. Use tapes of 1981.")
    monkeypatch.setattr(CpuBackend, "probe", lambda: found)
    assert main(["info"]) == 0
    assert "  cpu   yes  1 device. Its tapes tear. Use tapes of 1981." in capsys.readouterr().out.splitlines()
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["warning"] for row in facts["backends"]}["cpu"] == found.warning


def test_info_for_programs_says_that_cpu_is_usable() -> None:
    done = command_line("info", "--json", ACCELERATOR_GRAPH_BACKEND="cpu")
    facts = json.loads(done.stdout)
    cpu = next(backend for backend in facts["backends"] if backend["name"] == "cpu")
    assert cpu["usable"] is True
    assert facts["chosen"] == "cpu"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "nonsense",
            "A bare Stream() raises an error: ACCELERATOR_GRAPH_BACKEND is set, but there is no backend",
        ),
        ("No Name", "'No Name', which can't be the name of a backend"),
        ("cuda", "A bare Stream() raises an error: backend 'cuda' is not available: "),
    ],
)
def test_info_reports_a_wrong_choice_in_the_environment(name: str, problem: str) -> None:
    done = command_line("info", ACCELERATOR_GRAPH_BACKEND=name)
    assert done.returncode == 1
    assert done.stderr == ""
    assert problem in done.stdout


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("cpu", 0, "Backend 'cpu' can be used."),
        ("cpuu", 1, "There is no backend 'cpuu'; did you mean 'cpu'?"),
        ("cuda", 1, "Backend 'cuda' is not available: "),
    ],
)
def test_info_says_whether_the_backend_that_is_named_can_be_used(name: str, status: int, said: str) -> None:
    done = command_line("info", "--backend", name, ACCELERATOR_GRAPH_BACKEND="")
    assert done.returncode == status
    assert said in done.stdout
    assert "A bare Stream() takes backend " in done.stdout


def test_info_names_the_backend_that_fails_to_open(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Shy(CpuBackend):
        def open(self) -> None:
            raise BackendUnavailableError("its door is locked")

    register("shy", Shy)
    try:
        assert main(["info", "--backend", "shy"]) == 1
        shown = capsys.readouterr().out
        assert "  shy   no   Its door is locked. Found: python " in shown
        assert "Backend 'shy' is not available: its door is locked." in shown
    finally:
        unregister("shy")


def test_info_says_why_a_bare_stream_takes_its_backend(plugin: Callable[..., dict[str, str]]) -> None:
    variables = plugin(5)
    said = "A bare Stream() takes backend "
    assert f"{said}'plug', because no built-in accelerator" in command_line("info", **variables).stdout
    named = command_line("info", ACCELERATOR_GRAPH_BACKEND="cpu", **variables)
    assert f"{said}'cpu', because ACCELERATOR_GRAPH_BACKEND names it." in named.stdout


def test_info_shows_the_variables_that_are_set(plugin: Callable[..., dict[str, str]]) -> None:
    variables = {
        "ACCELERATOR_GRAPH_BACKEND": "",
        "ACCELERATOR_GRAPH_CHECK_INPUT_LIVENESS": "yes",
        "ACCELERATOR_GRAPH_DISABLE_PLUGINS": "0",
        "ACCELERATOR_GRAPH_PURE_PYTHON": "false",
        "ACCELERATOR_GRAPH_BAKEND": "cuda",
        "ACCELERATORGRAPH_PURE_PYTHN": "1",
        "ACCELERATOR_GRAPH_SOMETHING": "1",
        "ACCELERATOR_GRAPH_PLUG_SPEED": "9",
    }
    found = json.loads(command_line("info", "--json", **variables, **plugin(None)).stdout)["environment"]
    rows = {row["name"]: row for row in found if row["name"] in variables}
    assert {name: row["value"] for name, row in rows.items()} == variables
    said = {name.removeprefix("ACCELERATOR_GRAPH_"): row["effect"] for name, row in rows.items()}
    assert said["BACKEND"] == "counts as unset, since it is empty"
    assert said["CHECK_INPUT_LIVENESS"].startswith("Graph() raises ValueError: ")
    assert said["DISABLE_PLUGINS"] == "0 is the default"
    assert said["PURE_PYTHON"] == "the C extension is not used"
    assert said["BAKEND"].endswith("not read by the library; did you mean ACCELERATOR_GRAPH_BACKEND?")
    assert said["ACCELERATORGRAPH_PURE_PYTHN"].endswith("did you mean ACCELERATOR_GRAPH_PURE_PYTHON?")
    assert said["SOMETHING"] == "is not read by the library"
    assert said["PLUG_SPEED"] == "for backend 'plug'"
    assert [name for name, row in rows.items() if not row["read"]] == [
        "ACCELERATORGRAPH_PURE_PYTHN",
        "ACCELERATOR_GRAPH_BAKEND",
        "ACCELERATOR_GRAPH_SOMETHING",
    ]


def test_info_knows_every_variable_that_the_package_reads() -> None:
    named = set()
    for path in (ROOT / "accelerator_graph").rglob("*.py"):
        named |= set(re.findall(r"ACCELERATOR_GRAPH_([A-Z_]+[A-Z])\b", path.read_text(encoding="utf-8")))
    assert named == set(environment.VARIABLES)


@pytest.mark.parametrize(
    ("built", "switch", "said"),
    [
        ("pass", "", "not built, so replays go through Python"),
        ("raise ImportError('wrong ABI')", "", "can't be loaded (wrong ABI)"),
        ("", "1", "not used, since ACCELERATOR_GRAPH_PURE_PYTHON is set"),
        ("", "", "used"),
    ],
)
def test_info_says_whether_the_c_extension_is_used(built: str, switch: str, said: str) -> None:
    pytest.importorskip("accelerator_graph._core._fast", reason="the C extension was not built")
    code = f"""
import sys
class Loader:
    def find_spec(name, path, target=None):
        if name.endswith("._core._fast"):
            {built or "return None"}
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Loader)
from accelerator_graph.__main__ import main
sys.exit(main(["info", "--json"]))
"""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "ACCELERATOR_GRAPH_PURE_PYTHON": switch}
    done = execute([sys.executable, "-c", code], env=variables)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["extension"].startswith(said)


def test_demo_gets_the_same_bits_and_draws_the_graph(tmp_path: Path) -> None:
    drawing = tmp_path / "a step.dot"
    output = solved("-o", str(drawing))
    assert "identical" in output
    assert str(drawing) in output
    text = drawing.read_text(encoding="utf-8")
    assert text.startswith("digraph")
    assert text.count("diffuse_rows") == 40
    assert "->" in text


def test_demo_leaves_no_file(tmp_path: Path) -> None:
    arguments = ("demo", "--backend", "cpu", "--size", "16", "--steps", "20")
    command = [sys.executable, "-m", "accelerator_graph", *arguments]
    places = {name: str(tmp_path) for name in ("HOME", "TMPDIR", "TEMP", "TMP")}
    done = execute(command, env={**os.environ, "PYTHONPATH": str(ROOT), **places}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_demo_says_that_cpu_graphs_are_for_testing(plugin: Callable[..., dict[str, str]]) -> None:
    assert "cpu graphs are for testing" in solved()
    arguments = ("demo", "--backend", "plug", "--size", "16", "--steps", "20")
    done = command_line(*arguments, **plugin(None, HOOKS))
    assert done.returncode == 0, done.stderr
    assert "for testing" not in done.stdout


def test_demo_takes_the_best_that_is_usable_when_none_is_named() -> None:
    done = command_line("demo", "--size", "16", "--steps", "20")
    assert done.returncode == 0, done.stderr
    assert "identical" in done.stdout


PLUGIN = """
from accelerator_graph._demo.cpu import CpuPlate as Plate
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import BackendUnavailableError
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
    plugin: Callable[[object], dict[str, str]], priority: object
) -> None:
    variables = plugin(priority)
    arguments = ("demo", "--size", "16", "--steps", "20")
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


def test_demo_runs_on_a_plug_in_that_has_a_kernel_for_it(plugin: Callable[..., dict[str, str]]) -> None:
    variables = plugin(None, HOOKS)
    arguments = ("demo", "--backend", "plug", "--size", "16", "--steps", "20")
    done = command_line(*arguments, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("backend   plug, ")
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
    shown = command_line("info", **variables).stdout
    assert re.search(r"  plug  yes  1 device, .*from the-plugin 1.0, used only if you name it\n", shown)
    assert "'cpu', because no accelerator can be used unless you name it." in shown


def test_demo_notices_a_replay_that_differs() -> None:
    code = """
import sys
import accelerator_graph._demo.cpu as cpu
from accelerator_graph.__main__ import main

real, calls = cpu.diffuse_rows, 0

def forgetful(*arguments):
    global calls
    calls += 1
    if calls != 240:  # in the replays that are timed
        real(*arguments)

cpu.diffuse_rows = forgetful
sys.exit(main(["demo", "--backend", "cpu", "--size", "16", "--steps", "40"]))
"""
    done = execute([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)})
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


@pytest.mark.parametrize(
    ("place", "problem"), [("missing/x.dot", "the folder {} does not exist"), ("missing/..", "is a folder")]
)
def test_drawing_that_cannot_be_written_is_refused_at_once(tmp_path: Path, place: str, problem: str) -> None:
    path = tmp_path / place if "x.dot" in place else tmp_path
    message = refused(1, "demo", "--backend", "no_such_backend", "-o", str(path))
    assert str(path) in message
    assert problem.format(path.parent) in message


@pytest.mark.parametrize(
    "arguments",
    [
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
