"""The conformance kit, for every backend that can run here."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import SkipTest

import pytest
from works.host import HostWork

import accelerator_graph as ag
from accelerator_graph.backends.cuda import CudaBackend
from accelerator_graph.testing import BackendConformance, Work

PLUGIN = Path(__file__).parent / "plugins" / "good"


class TestCpu(BackendConformance):
    def work(self) -> Work:
        return HostWork("cpu")


class TestCuda(BackendConformance):
    def work(self) -> Work:
        there = CudaBackend.probe()
        if not there.usable:
            raise SkipTest(f"backend 'cuda' is not available: {there.reason}")
        from works.cuda import CudaWork

        return CudaWork()


class TestTape(BackendConformance):
    """The example of a plug-in: a runtime that records explicitly."""

    @pytest.fixture(autouse=True)
    def plugin(self, monkeypatch: pytest.MonkeyPatch) -> object:
        monkeypatch.syspath_prepend(PLUGIN)
        ag.backends.register("tape_in_the_kit", "accelerator_graph_tape:TapeBackend")
        yield
        ag.backends.unregister("tape_in_the_kit")
        sys.modules.pop("accelerator_graph_tape", None)

    def work(self) -> Work:
        return HostWork("tape_in_the_kit")
