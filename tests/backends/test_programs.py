"""Random programs on every backend that can run here."""

from __future__ import annotations

import pytest

from accelerator_graph.testing import Work
from accelerator_graph.testing.programs import RandomPrograms
from backends.works.host import HostWork


@pytest.mark.needs("cpu")
class TestCpu(RandomPrograms):
    def work(self) -> Work:
        return HostWork("cpu")


@pytest.mark.needs("cuda")
class TestCuda(RandomPrograms):
    examples = 50

    def work(self) -> Work:
        from backends.works.cuda import CudaWork

        return CudaWork()


@pytest.mark.needs("hip")
class TestHip(RandomPrograms):
    examples = 50

    def work(self) -> Work:
        from backends.works.hip import HipWork

        return HipWork()
