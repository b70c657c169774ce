"""OpenCL's command buffers as the backend ``"opencl"`` of `accelerator_graph`."""

from __future__ import annotations

from .backend import OpenclBackend

__all__ = ["OpenclBackend"]
