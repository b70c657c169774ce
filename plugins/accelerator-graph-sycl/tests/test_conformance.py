"""The conformance kit, and its random programs."""

from __future__ import annotations

from accelerator_graph_sycl.conformance import SyclWork

from accelerator_graph.testing import BackendConformance, Work
from accelerator_graph.testing.programs import RandomPrograms


class TestSycl(BackendConformance):
    def work(self) -> Work:
        return SyclWork()


class TestPrograms(RandomPrograms):
    examples = 1000

    def work(self) -> Work:
        return SyclWork()
