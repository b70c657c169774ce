"""Random programs on every backend that can run here; a thousand of them where CI runs the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accelerator_graph.testing import Work
from accelerator_graph.testing.programs import RandomPrograms
from accelerator_graph.testing.works.host import HostWork
from backends.test_conformance import tape


@pytest.mark.needs("cpu")
class TestCpu(RandomPrograms):
    def work(self) -> Work:
        return HostWork("cpu")


@pytest.mark.needs("rest")
class TestCpuLong(TestCpu):
    examples = 900
    seed = 1


@pytest.mark.needs("cuda")
class TestCuda(RandomPrograms):
    examples = 50

    def work(self) -> Work:
        from accelerator_graph.testing.works.cuda import CudaWork

        return CudaWork()


@pytest.mark.needs("rest")
class TestCudaLong(TestCuda):
    examples = 950
    seed = 1


@pytest.mark.needs("hip")
class TestHip(RandomPrograms):
    examples = 50

    def work(self) -> Work:
        from accelerator_graph.testing.works.hip import HipWork

        return HipWork()


@pytest.mark.needs("rest")
class TestHipLong(TestHip):
    examples = 950
    seed = 1


@pytest.mark.needs("cpu")
class TestTape(RandomPrograms):
    """The example of a plug-in: without events, and without child graphs."""

    examples = 50

    @pytest.fixture(autouse=True)
    def plugin(self) -> Iterator[None]:
        with tape():
            yield

    def work(self) -> Work:
        return HostWork("tape_in_the_kit")
