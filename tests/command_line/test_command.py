"""What all commands have in common: how they are called, what they refuse, how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import accelerator_graph as ag
from command_line.calls import HOOKS, ROOT, command_line, refused
from processes import execute


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
    assert message in refused(2, *arguments, **plugin(None, hooks))


@pytest.mark.parametrize("command", ["info", "doctor", "demo", "conformance"])
def test_unknown_backend_is_refused_in_the_words_of_the_library(command: str) -> None:
    assert "there is no backend 'cpuu'; did you mean 'cpu'?" in refused(2, command, "cpuu")


@pytest.mark.parametrize("variables", [{}, {"ACCELERATOR_GRAPH_BACKEND": "cpu"}])
def test_unavailable_backend_is_refused_with_its_reason(variables: dict[str, str]) -> None:
    facts = json.loads(command_line("info", "--json").stdout)
    missing = [backend for backend in facts["backends"] if not backend["usable"]]
    if not missing:
        pytest.skip("every backend is usable here")
    assert missing[0]["reason"] in refused(2, "demo", missing[0]["name"], **variables)


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("info", "cpu", "extra"),
        ("demo", "--size", "3"),
        ("demo", "--size", "many"),
        ("demo", "--steps", "0"),
        ("demo", "--steps", "21"),
        ("demo", "--size"),
        ("demo", "-o", "x.gif"),
        ("show", "x.json", "-o", "x.gif"),
    ],
)
def test_bad_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    assert "usage:" in refused(2, *arguments)


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_version(option: str) -> None:
    done = command_line(option)
    assert (done.returncode, done.stdout) == (0, f"accelerator_graph {ag.__version__}\n")


def test_without_a_command_there_is_the_help() -> None:
    done = command_line()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == command_line("--help").stdout
    for command in ("info", "demo", "conformance"):
        assert f"\n    {command}" in done.stdout


def test_module_and_script_name_themselves(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"accelerator-graph": "accelerator_graph.__main__:main"}
    script = tmp_path / "accelerator-graph"  # as installers write it
    script.write_text("import sys\nfrom accelerator_graph.__main__ import main\nsys.exit(main())\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    named = execute([sys.executable, str(script), "info", "--jason"], env=environment)
    assert named.stderr.startswith("usage: accelerator-graph info ")
    assert command_line("info", "--jason").stderr.startswith("usage: python -m accelerator_graph info ")


def ended(*arguments: str, output: int, buffered: bool = True) -> tuple[int, str]:
    """Run a command on an output that can't be written; return its status and what it says about that."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "" if buffered else "1"}
    command = [sys.executable, "-m", "accelerator_graph", *arguments]
    done = subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, env=variables, text=True, timeout=300, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(
    "arguments", [("info",), ("info", "--json"), ("demo", "cpu", "--size", "8", "--steps", "20")]
)
def test_closed_pipe_is_silent(arguments: tuple[str, ...], buffered: bool) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert ended(*arguments, output=writing, buffered=buffered) == (141, "")
    finally:
        os.close(writing)


def test_closed_pipe_is_silent_for_the_help() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert ended(output=writing) == (141, "")
    finally:
        os.close(writing)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_full_disk_is_said_once() -> None:
    with open("/dev/full", "wb") as full:
        status, said = ended("info", output=full.fileno())
    assert (status, said) == (2, "python -m accelerator_graph: error: No space left on device\n")


def test_characters_that_the_encoding_lacks_are_escaped() -> None:
    done = command_line("info", PYTHONIOENCODING="ascii", ACCELERATOR_GRAPH_BACKEND="\N{SNOWMAN}")
    assert done.stderr == ""
    assert r"ACCELERATOR_GRAPH_BACKEND is '\u2603'" in done.stdout
