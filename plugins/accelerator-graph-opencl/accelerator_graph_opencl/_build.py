"""Builds the programs of the demo and of the conformance kit's work."""

from __future__ import annotations

import warnings

import pyopencl as cl


def built_kernel(context: cl.Context, source: str, name: str) -> cl.Kernel:
    """Return a kernel of a program in OpenCL C.

    pyopencl warns if the compiler has said anything, and Intel's compiler always does.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        return cl.Kernel(cl.Program(context, source).build(), name)
