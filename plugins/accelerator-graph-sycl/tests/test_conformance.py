"""The conformance kit."""

from __future__ import annotations

from accelerator_graph.testing import BackendConformance, Work
from accelerator_graph_sycl.conformance import SyclWork


class TestSycl(BackendConformance):
    def work(self) -> Work:
        return SyclWork()
