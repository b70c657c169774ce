from accelerator_graph_opencl.conformance import OpenclWork

from accelerator_graph.testing import BackendConformance, Work


class TestOpencl(BackendConformance):
    def work(self) -> Work:
        return OpenclWork()
