"""The suite of faults, on AMD's runtime: what it found, and what it covered."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import faults.wrapper
from accelerator_graph.backends._hip import library
from faults import parts
from simulators.amd.runtime import command, environment

PARTS = {
    "7.2": parts.PARTS,
    "6.4": {
        "calls": ("every_call", "-k", "capture-with- or instantiate or replay or reset"),
        "rest": ("lost", "opening", "threads", "replays", "collection", "processes"),
    },
}
"""By version of the runtime. All of the suite takes as long again for each."""

NOT_CALLED = {*("hipGraphExecUpdate", "hipDeviceGetGraphMemAttribute", "hipDeviceGraphMemTrim")}
"""Functions that no public operation reaches."""


@pytest.fixture(scope="module")
def reports(amd_runtime, tmp_path_factory: pytest.TempPathFactory):
    """Returns what the parts of the suite wrote down on a version of the runtime."""

    @cache
    def of_version(version: str):
        amd_runtime(version)
        folder: Path = tmp_path_factory.mktemp("faults")
        runtime = faults.wrapper.build(version)
        env = environment(runtime, FAULTS_BACKEND="hip", SOFTWARE_HSA_DEVICES="2")
        return parts.run(command(runtime), env, folder, PARTS[version])

    return of_version


@pytest.mark.parametrize(
    ("version", "part"), [(version, part) for version in PARTS for part in PARTS[version]]
)
def test_every_fault_leaves_no_trace(reports, version, part):
    parts.check(reports(version)[part])


def test_figures(reports, capsys):
    with capsys.disabled():
        calls, injected, states_checked = parts.figures(reports("7.2"), "hip")
    assert calls == {*library._SIGNATURES} - NOT_CALLED
    assert injected > 8000
    assert states_checked > 10000
