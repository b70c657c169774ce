"""The examples with torch, on torch's CPU build; tests/torch_cpu runs this."""

import runpy
import sys

import pytest

import accelerator_graph as ag
from examples.running import EXAMPLES, check, run_here, sentence, without_replays
from torch_cpu.framework import taking_part

pytestmark = pytest.mark.needs("torch")

SMALL = {
    "decode_loop": ("--device", "cpu", "--tokens", "5"),
    "graph_per_gpu": ("--devices", "cpu"),
    "training_step": ("--device", "cpu", "--steps", "8"),
}


@pytest.fixture(autouse=True)
def _torch_takes_part():
    with taking_part(), ag.use_backend("cpu"):
        yield


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name, monkeypatch, capsys):
    assert run_here(monkeypatch, name, *SMALL[name]) == 0
    check(capsys.readouterr().out)


@pytest.mark.parametrize("name", SMALL)
def test_wrong_results_are_seen(name, monkeypatch, capsys):
    without_replays(monkeypatch)
    assert run_here(monkeypatch, name, *SMALL[name]) == 1
    assert "DIFFERENT" in capsys.readouterr().out


@pytest.mark.parametrize("name", SMALL)
def test_without_a_gpu_it_says_so(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert sentence(f"{ended.value.code}\n"), ended.value.code
    assert "needs a GPU that torch can use" in ended.value.code
    assert capsys.readouterr() == ("", "")
