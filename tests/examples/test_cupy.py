"""The examples with CuPy, at a small size: on a GPU of either vendor, and on AMD's runtime on the CPU."""

from __future__ import annotations

import pytest

import lanes
from accelerator_graph import backends
from examples.running import check, run_here, without_replays

pytestmark = lanes.require("cupy")

SMALL = {
    "conjugate_gradient": ("--size", "12"),
    "heat_equation": ("--size", "16", "--frames", "3"),
    "particles": ("--particles", "64", "--steps", "3"),
}


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(monkeypatch, name, *SMALL[name]) == 0
    printed = capsys.readouterr().out
    check(printed)
    assert f"{backends.resolve().name}, device 0" in printed


@pytest.mark.parametrize("name", SMALL)
def test_wrong_results_are_seen(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_replays(monkeypatch)
    assert run_here(monkeypatch, name, *SMALL[name]) == 1
    assert "DIFFERENT" in capsys.readouterr().out
