"""The command `demo`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line.calls import HOOKS, ROOT, command_line, refused
from processes import execute


def solved(*arguments: str) -> str:
    done = command_line("demo", "cpu", "--size", "16", "--steps", "40", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_demo_gets_the_same_bits_and_draws_the_graph(tmp_path: Path) -> None:
    drawing = tmp_path / "a step.dot"
    output = solved("-o", str(drawing))
    assert "identical" in output
    assert str(drawing) in output
    text = drawing.read_text(encoding="utf-8")
    assert text.startswith("digraph")
    assert text.count('label="host diffuse_rows"') == 40
    assert "->" in text


def test_demo_leaves_no_file(tmp_path: Path) -> None:
    arguments = ("demo", "cpu", "--size", "16", "--steps", "20")
    command = [sys.executable, "-m", "accelerator_graph", *arguments]
    places = {name: str(tmp_path) for name in ("HOME", "TMPDIR", "TEMP", "TMP")}
    done = execute(command, env={**os.environ, "PYTHONPATH": str(ROOT), **places}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_demo_says_that_cpu_graphs_are_for_testing(plugin: Callable[..., dict[str, str]]) -> None:
    assert "cpu graphs are for testing" in solved()
    arguments = ("demo", "plug", "--size", "16", "--steps", "20")
    done = command_line(*arguments, **plugin(None, HOOKS))
    assert done.returncode == 0, done.stderr
    assert "for testing" not in done.stdout


def test_demo_takes_the_best_that_is_usable_when_none_is_named() -> None:
    done = command_line("demo", "--size", "16", "--steps", "20")
    assert done.returncode == 0, done.stderr
    assert "identical" in done.stdout


def test_demo_takes_no_other_backend_than_the_named_one() -> None:
    assert "there is no backend ''" in refused(2, "demo", "", "--size", "16", "--steps", "20")


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
        command_line(*arguments, "plug", **variables),
        command_line(*arguments, ACCELERATOR_GRAPH_BACKEND="plug", **variables),
    ):
        assert named.returncode == 2
        assert "backend 'plug' has no kernel for the demo" in named.stderr
        assert '[project.entry-points."accelerator_graph.demo"] plug = "module:Class"' in named.stderr


def test_demo_runs_on_a_plug_in_that_has_a_kernel_for_it(plugin: Callable[..., dict[str, str]]) -> None:
    variables = plugin(None, HOOKS)
    arguments = ("demo", "plug", "--size", "16", "--steps", "20")
    done = command_line(*arguments, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("backend   plug, ")
    assert "identical" in done.stdout


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
sys.exit(main(["demo", "cpu", "--size", "16", "--steps", "40"]))
"""
    done = execute([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 1, done.stderr
    assert "DIFFERENT" in done.stdout


def test_demo_refuses_a_kernel_that_does_nothing() -> None:
    code = """
import sys
import accelerator_graph._demo.cpu as cpu
from accelerator_graph.__main__ import main

cpu.diffuse_rows = lambda *arguments: None
sys.exit(main(["demo", "cpu", "--size", "16", "--steps", "40"]))
"""
    done = execute([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 2, done.stderr
    assert "the demo's kernel for backend 'cpu' has left the plate as it was; let `diffuse`" in done.stderr
    assert "identical" not in done.stdout


@pytest.mark.parametrize(
    ("place", "problem"), [("missing/x.dot", "the folder {} does not exist"), ("a.dot", "is a folder")]
)
def test_drawing_that_cannot_be_written_is_refused_at_once(tmp_path: Path, place: str, problem: str) -> None:
    path = tmp_path / place
    (tmp_path / "a.dot").mkdir()
    message = refused(2, "demo", "no_such_backend", "-o", str(path))
    assert str(path) in message
    assert problem.format(path.parent) in message
