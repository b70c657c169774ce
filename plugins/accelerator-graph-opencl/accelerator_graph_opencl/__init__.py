"""OpenCL's command buffers as a backend of `accelerator_graph`: ``accelerator_graph.Stream(backend="opencl")``."""

from __future__ import annotations

from .backend import OpenclBackend

__all__ = ["OpenclBackend"]
