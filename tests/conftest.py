"""What the tests that run on the software CUDA driver have in common."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from driver.build import build, compiler

REQUIRED = "ACCELERATOR_GRAPH_REQUIRE_SOFTWARE_DRIVER"
"""Set where it is a failure if the software driver can't be built, such as in CI."""


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
    if missing:
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(missing)
    return build()
