"""SYCL for accelerator_graph: dpctl's queues are streams, and the runtime's own graphs record them."""

from ._backend import SyclBackend

__all__ = ["SyclBackend"]
