"""Run an example, and check what it prints."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

import accelerator_graph as ag
from processes import execute

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LINES = ["problem", "backend", "eager", "as a graph", "gain", "results"]


def run(*command: str, program: str = sys.executable) -> tuple[int, str, str]:
    """Run an example in a process of its own; return the status, the output and the errors."""
    done = execute(
        [program, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), *sys.path)))},
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


def run_here(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: str) -> int:
    """Run an example in this process; return its status."""
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert isinstance(ended.value.code, int), ended.value.code
    return ended.value.code


def check(printed: str) -> None:
    """Check that an example found equal results, and says what the graph gained."""
    rows = [(line[:12].strip(), line[12:]) for line in printed.splitlines()]
    assert [name for name, _ in rows] == LINES, printed
    assert "DIFFERENT" not in printed
    found = dict(rows)
    eager, replayed, gain = (float(found[name].split()[0]) for name in LINES[2:5])
    assert gain == pytest.approx(eager / replayed, rel=0.2, abs=0.01)


def without_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let replays do nothing, so that the results of a graph are wrong."""
    monkeypatch.setattr(ag.Graph, "replay", lambda graph, stream=None: None)
    monkeypatch.setattr(ag.Graph, "bind", lambda graph, stream=None: lambda: None)


def sentence(text: str) -> bool:
    """Return True if a text is one plain sentence, and no traceback."""
    return text.startswith("This example ") and text.count("\n") == 1 and text.endswith(".\n")
