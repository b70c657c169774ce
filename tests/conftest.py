"""The machines without a GPU that the backends of GPUs are tested on."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from simulators.amd import runtime as amd
from simulators.cuda.build import build, compiler

REQUIRED = "ACCELERATOR_GRAPH_REQUIRE_LANES"
"""Set where it is a failure if a lane that needs no GPU can't be had, such as in CI."""


def lack(missing: str) -> None:
    """Skip the test if something is missing, or fail it where nothing may be."""
    if missing:
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(missing)


@pytest.fixture(scope="session")
def software_driver() -> Path:
    """The folder with the libraries of the software driver."""
    missing = (
        "the software driver is for Linux"
        if sys.platform != "linux"
        else "there is no C compiler to build the software driver with"
        if compiler() is None
        else "cuda-python is not installed"
        if importlib.util.find_spec("cuda") is None
        else ""
    )
    lack(missing)
    return build()


@pytest.fixture(scope="session")
def amd_runtime() -> Callable[[str], Path]:
    """Returns the folder with a version of AMD's runtime that runs on the CPU."""
    if importlib.util.find_spec("hip") is None:
        lack("hip-python is not installed")

    def folder(version: str) -> Path:
        lack(amd.missing(version))
        return amd.build(version)

    return folder
