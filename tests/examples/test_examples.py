"""What holds for every example, and those that run on the cpu backend."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from examples.running import EXAMPLES, ROOT, check, run, run_here, sentence, without_replays

ALL = sorted(path.stem for path in EXAMPLES.glob("*.py"))
NEEDS = {
    "all_reduce_mpi": ("torch",),
    "all_reduce_torchrun": ("torch",),
    "conjugate_gradient": ("numpy",),
    "decode_loop": ("torch",),
    "graph_per_gpu": ("torch",),
    "heat_equation": ("numpy",),
    "particles": ("cupy",),
    "ragged_attention": ("numpy",),
    "three_frameworks": ("cupy", "torch"),
    "training_step": ("torch",),
}
SMALL = {
    "conjugate_gradient": ("--backend", "cpu", "--size", "12"),
    "heat_equation": ("--backend", "cpu", "--size", "16", "--frames", "3"),
    "ragged_attention": ("--backend", "cpu", "--size", "16"),
}
PICTURES = ("conjugate_gradient", "heat_equation")
BLOCKED = """
import runpy, sys
_, module, *sys.argv = sys.argv
sys.modules[module] = None
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs an example as if a module were not installed."""


def test_all_are_tested() -> None:
    assert sorted(NEEDS) == ALL


@pytest.mark.parametrize("name", ALL)
def test_it_says_what_it_is(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text)) or ""
    first, shows, last = said.split("\n\n")
    needs, how = last.splitlines()
    assert first.endswith(".")
    assert shows.startswith("Shows ")
    assert needs.startswith("Needs ")
    assert how.startswith("Run with: ")
    assert f"examples/{name}.py" in how
    assert len(text.splitlines()) <= 125
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert f"[`{name}.py`](../examples/{name}.py)" in page


@pytest.mark.parametrize(("name", "module"), [(name, each) for name in ALL for each in NEEDS[name]])
def test_without_what_it_needs_it_says_so(name: str, module: str) -> None:
    status, printed, said = run("-c", BLOCKED, module, str(EXAMPLES / f"{name}.py"))
    assert (status, printed) == (1, "")
    assert sentence(said), said
    assert "which is not installed" in said


@pytest.mark.parametrize("name", SMALL)
def test_a_backend_that_can_not_run_is_one_sentence(name: str) -> None:
    pytest.importorskip("numpy")
    status, printed, said = run("-c", BLOCKED, "hip", str(EXAMPLES / f"{name}.py"), "--backend", "hip")
    assert (status, printed) == (1, "")
    assert said.startswith("This example can't run here: backend 'hip'")
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", SMALL)
def test_it_runs_on_the_cpu(name: str) -> None:
    pytest.importorskip("numpy")
    status, printed, said = run("-W", "error", str(EXAMPLES / f"{name}.py"), *SMALL[name])
    assert (status, said) == (0, "")
    check(printed)


@pytest.mark.parametrize("name", SMALL)
def test_wrong_results_are_seen(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numpy")
    without_replays(monkeypatch)
    assert run_here(monkeypatch, name, *SMALL[name]) == 1
    assert "DIFFERENT" in capsys.readouterr().out


@pytest.mark.parametrize("name", PICTURES)
def test_it_draws_a_picture(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.svg"
    status, printed, said = run(str(EXAMPLES / f"{name}.py"), *SMALL[name], "-o", str(picture))
    assert (status, said) == (0, "")
    check(printed)
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize("name", PICTURES)
def test_without_matplotlib_there_is_no_picture_and_nothing_runs(name: str, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    picture = tmp_path / "picture.svg"
    command = ("-c", BLOCKED, "matplotlib", str(EXAMPLES / f"{name}.py"), *SMALL[name], "-o", str(picture))
    status, printed, said = run(*command)
    assert (status, printed) == (1, "")
    assert said == "This example needs matplotlib, which is not installed.\n"
    assert not picture.exists()
