"""Fixtures for the tests that are the same for the CUDA and the HIP backend."""

from importlib import import_module

import pytest

from backends.fixtures import backend, block, no_error_left, other, stream

__all__ = ["backend", "block", "no_error_left", "other", "stream"]

BACKENDS = ("cuda", "hip")
DEVICES = [pytest.param(name, marks=pytest.mark.needs(name)) for name in BACKENDS]


@pytest.fixture(scope="module", params=DEVICES)
def bench(request):
    """The vendor's own functions, memory and kernels: `backends.cuda.bench` or `backends.hip.bench`."""
    return import_module(f"backends.{request.param}.bench")


@pytest.fixture
def kernels(bench, backend):
    with bench.kernels() as kernels:
        yield kernels


@pytest.fixture(params=BACKENDS)
def fakes(request):
    """A driver or runtime of a few lines: `backends.cuda.fakes` or `backends.hip.fakes`."""
    return import_module(f"backends.{request.param}.fakes")


@pytest.fixture
def fake(fakes, monkeypatch):
    """A backend, and the driver or runtime of a few lines that it calls."""
    return fakes.faked(monkeypatch)
