"""The whole kit, and random programs: as the device can, and with commands enqueued again."""

from __future__ import annotations

import pytest
from accelerator_graph_opencl._devices import Devices
from accelerator_graph_opencl.conformance import OpenclWork

import accelerator_graph as ag
from accelerator_graph.testing import BackendConformance, Work
from accelerator_graph.testing.programs import RandomPrograms


@pytest.fixture
def without_command_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    if ag.backends.get("opencl").command_buffer_version(0) is None:  # type: ignore[attr-defined]
        pytest.skip("the device has no command buffers: the other class is about that")
    monkeypatch.setattr(Devices, "extension", lambda self, ordinal: None)


class TestOpencl(BackendConformance):
    def work(self) -> Work:
        return OpenclWork()


@pytest.mark.usefixtures("without_command_buffers")
class TestWithoutCommandBuffers(BackendConformance):
    def work(self) -> Work:
        return OpenclWork()


class TestPrograms(RandomPrograms):
    def work(self) -> Work:
        return OpenclWork()


@pytest.mark.usefixtures("without_command_buffers")
class TestProgramsWithoutCommandBuffers(RandomPrograms):
    def work(self) -> Work:
        return OpenclWork()
