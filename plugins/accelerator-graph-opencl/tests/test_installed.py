"""The plug-in as users have it: installed, found by its entry points, never chosen automatically."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import accelerator_graph_opencl
import pyopencl as cl
import pytest
from accelerator_graph_opencl import OpenclBackend
from accelerator_graph_opencl._devices import Devices

import accelerator_graph as ag
from conftest import VERSIONS


def test_the_installed_package_is_tested(lane: str) -> None:
    for module in (ag, accelerator_graph_opencl):
        assert "site-packages" in str(module.__file__)


def test_the_lane_has_the_command_buffers_that_it_is_for(lane: str) -> None:
    backend = ag.backends.get("opencl")
    devices = range(backend.device_count)
    assert {backend.command_buffer_version(each) for each in devices} == VERSIONS[lane]  # type: ignore[attr-defined]


@pytest.mark.parametrize("group", ["backends", "conformance", "demo"])
def test_entry_points_name_classes(group: str) -> None:
    (found,) = entry_points(group=f"accelerator_graph.{group}", name="opencl")
    assert isinstance(found.load(), type)


def test_it_is_found_by_name_and_never_chosen_automatically() -> None:
    assert "opencl" in ag.backends.names()
    code = "import accelerator_graph as ag; print(ag.Stream().backend)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() != "opencl"


def test_looking_for_it_imports_no_pyopencl() -> None:
    code = (
        "import sys, accelerator_graph as ag; ag.backends.report(); "
        "from accelerator_graph_opencl import OpenclBackend; assert OpenclBackend.probe().usable; "
        "assert 'pyopencl' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_machine_without_a_runtime_is_told_what_to_do(tmp_path: os.PathLike[str]) -> None:
    code = (
        "import accelerator_graph as ag\n"
        "try: ag.Stream(backend='opencl')\n"
        "except ag.errors.BackendUnavailableError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OCL_ICD_VENDORS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "PLATFORM_NOT_FOUND" in done.stdout
    assert "Install a runtime" in done.stdout


def test_every_device_is_one_of_opencls() -> None:
    devices = {device for platform in cl.get_platforms() for device in platform.get_devices()}
    assert ag.backends.get("opencl").device_count == len(devices)
    assert OpenclBackend.priority is None


def test_a_runtime_that_is_listed_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    platforms = cl.get_platforms()
    monkeypatch.setattr(cl, "get_platforms", lambda: platforms * 2)
    assert len(Devices().all) == ag.backends.get("opencl").device_count
