"""The fixtures of the tests of the CUDA backend."""

from importlib import import_module

import pytest

from backends.cuda.fakes import faked
from backends.fixtures import backend, block, other, stream

__all__ = ["backend", "block", "other", "stream"]


@pytest.fixture(scope="module")
def bench():
    return import_module("backends.cuda.bench")


@pytest.fixture
def fake(monkeypatch):
    """A backend and the driver of a few lines that it calls."""
    return faked(monkeypatch)
