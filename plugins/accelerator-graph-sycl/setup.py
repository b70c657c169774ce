"""Compiles the shim against the SYCL runtime that is installed where the package is built."""

from __future__ import annotations

import os
from importlib.metadata import distribution
from pathlib import Path

from setuptools import Extension, setup


def sycl_root() -> Path:
    """Return the folder whose ``include`` and ``lib`` have SYCL: ``CMPLR_ROOT``, or the package's."""
    if named := os.environ.get("CMPLR_ROOT"):
        return Path(named)
    for file in distribution("intel-sycl-rt").files or ():
        if file.parts[-2:] == ("sycl", "sycl.hpp"):
            return Path(file.locate()).resolve().parents[2]
    raise SystemExit("the package intel-sycl-rt has no sycl/sycl.hpp; set CMPLR_ROOT to a oneAPI compiler.")


root = sycl_root()
shim = Extension(
    "accelerator_graph_sycl._shim",
    sources=["accelerator_graph_sycl/_shim.cpp"],
    language="c++",
    define_macros=[("SYCL_DISABLE_FSYCL_SYCLHPP_WARNING", None)],
    extra_compile_args=["-std=c++17", "-O2", "-g0", "-fvisibility=default", f"-isystem{root / 'include'}"],
    library_dirs=[str(root / "lib")],
    libraries=["sycl"],
)
setup(ext_modules=[shim])
