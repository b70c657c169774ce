"""The command `info`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from accelerator_graph.__main__ import main
from accelerator_graph._cli import info
from accelerator_graph.backends import register, unregister
from accelerator_graph.backends.base import Availability
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import BackendUnavailableError
from command_line.calls import ROOT, command_line
from processes import python


@pytest.mark.promise("unknown-backend-is-told-the-names")
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
    lines = [line.split(maxsplit=2) for line in command_line("info").stdout.splitlines()]
    for name, row in rows.items():
        if row["installed"] is None:
            assert [name, "-", "not installed"] in lines
        else:
            assert [name, row["installed"], "takes part once your program has imported it"] in lines


def test_info_says_which_copy_a_checkout_hides(tmp_path: Path) -> None:
    assert json.loads(command_line("info", "--json").stdout)["hidden"] is None
    copy = tmp_path / "accelerator_graph"
    copy.mkdir()
    (copy / "__init__.py").touch()
    shown = command_line("info", PYTHONPATH=os.pathsep.join((str(ROOT), str(tmp_path)))).stdout
    assert f"hides the copy in {copy}, since Python looks" in " ".join(shown.split())


def test_info_survives_what_is_left_of_a_distribution(tmp_path: Path) -> None:
    (tmp_path / "warp").mkdir()
    (tmp_path / "warp" / "__init__.py").touch()  # files that are not there don't count, from Python 3.12 on
    for name, version in (("warp_left", "0"), ("warp_lang", "1.9")):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "RECORD").write_text("warp/__init__.py,,\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: warp-lang\nVersion: 1.9\n")
    done = command_line("info", PYTHONPATH=os.pathsep.join((str(ROOT), str(tmp_path))))
    assert done.returncode == 0, done.stderr
    assert re.search(r"warp +1\.9 +takes part", done.stdout)


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
        ("cuda", 1, "Backend 'cuda' is not available: "),
    ],
)
def test_info_says_whether_the_backend_that_is_named_can_be_used(name: str, status: int, said: str) -> None:
    done = command_line("info", name, ACCELERATOR_GRAPH_BACKEND="")
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
        assert main(["info", "shy"]) == 1
        shown = capsys.readouterr().out
        assert "  shy   no   its door is locked. Found: python " in shown
        assert "Backend 'shy' is not available: its door is locked." in shown
    finally:
        unregister("shy")


@pytest.mark.promise("bare-stream-uses-cpu")
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


def test_a_value_of_a_variable_stays_on_its_line() -> None:
    done = command_line("info", ACCELERATOR_GRAPH_SOMETHING="a\n\x1b[2Jb")
    shown = re.escape(r"  ACCELERATOR_GRAPH_SOMETHING=a\n\x1b[2Jb")
    assert re.search(rf"^{shown} +is not read by the library$", done.stdout, re.MULTILINE)


def test_info_knows_every_variable_that_the_package_reads() -> None:
    named = set()
    for path in (ROOT / "accelerator_graph").rglob("*.py"):
        named |= set(re.findall(r"ACCELERATOR_GRAPH_([A-Z_]+[A-Z])\b", path.read_text(encoding="utf-8")))
    assert named == set(info.VARIABLES)


@pytest.mark.promise("switches")
@pytest.mark.parametrize(
    ("built", "switch", "said"),
    [
        ("pass", "", "not built in this source tree; an installed copy may"),
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
    found = json.loads(python(code, ACCELERATOR_GRAPH_PURE_PYTHON=switch))["extension"]
    assert found.startswith(said)


def test_info_says_that_the_c_extension_is_of_another_version() -> None:
    code = """
import sys, types, warnings
warnings.simplefilter("ignore")
sys.modules["accelerator_graph._core._fast"] = types.ModuleType("of an earlier version")
from accelerator_graph.__main__ import main
sys.exit(main(["info", "--json"]))
"""
    said = json.loads(python(code, ACCELERATOR_GRAPH_PURE_PYTHON=""))["extension"]
    assert said.startswith("built from another version of the library and not used, so replays go")


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
