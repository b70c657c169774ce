"""Contexts of the CUDA driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cuda.bindings import driver

from accelerator_graph.testing.works.cuda import call, device


def new_context() -> Any:
    """Make a context on device 0, which is not current afterwards."""
    number = device(0).number
    try:
        context = call(driver.cuCtxCreate, None, 0, number)  # since CUDA 13
    except TypeError:
        context = call(driver.cuCtxCreate, 0, number)
    call(driver.cuCtxPopCurrent)
    return context


@contextmanager
def current(context: Any) -> Iterator[None]:
    """Make a context current for a while."""
    call(driver.cuCtxPushCurrent, context)
    try:
        yield
    finally:
        call(driver.cuCtxPopCurrent)
