"""The conformance kit."""

from __future__ import annotations

from accelerator_graph_sycl.conformance import SyclWork

from accelerator_graph.testing import BackendConformance, Work


class TestSycl(BackendConformance):
    def work(self) -> Work:
        return SyclWork()
