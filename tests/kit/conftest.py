"""What the tests of the kit share: a name for the backend that a test plants."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership
from accelerator_graph.backends.base import Backend
from kit.planted.collection import NAME


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[type[Backend]], None]]:
    """Registers a backend for the test, under `NAME`."""
    # what a fault leaves behind is destroyed here, and complained of nowhere
    monkeypatch.setattr(threading, "excepthook", lambda error: None)
    yield lambda backend: ag.backends.register(NAME, backend, replace=True)
    ag.backends.unregister(NAME)
    gc.collect()
    monkeypatch.setattr(sys, "excepthook", lambda *error: None)
    ownership.drain()
