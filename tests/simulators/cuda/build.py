"""Compile the software driver, and start processes on it."""

from __future__ import annotations

import os
from pathlib import Path

from simulators.compiling import ROOT, compiled

SOURCES = Path(__file__).resolve().parent
FREED = {"PYTHONMALLOC": "debug", "MALLOC_PERTURB_": "165"}
"""Python and the C library overwrite the memory that they release, so that a test that reads it fails."""

LIBRARIES = {"libcuda.so.1": SOURCES, "libnvrtc.so.13": SOURCES / "nvrtc"}


def build(*flags: str) -> Path:
    """Return a folder with the driver and a compiler of kernels for it; `flags` go to the C compiler."""

    def finish(folder: Path) -> None:
        (folder / "libnvrtc.so.12").symlink_to("libnvrtc.so.13")

    return compiled("software-cuda", LIBRARIES, *flags, finish=finish)


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return an environment for a Python that is to find the libraries of `folder` first."""
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    paths = (str(folder), *filter(None, [env.get("LD_LIBRARY_PATH")]))
    env["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    env["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    env["ACCELERATOR_GRAPH_TEST_SIMULATOR"] = "cuda"
    return env | FREED | variables
