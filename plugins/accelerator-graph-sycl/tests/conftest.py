"""What several tests use."""

from __future__ import annotations

from typing import Any

import pytest
from accelerator_graph_sycl.conformance import SyclWork

import accelerator_graph as ag


@pytest.fixture
def work() -> SyclWork:
    return SyclWork()


@pytest.fixture
def stream() -> ag.Stream:
    return ag.Stream(backend="sycl")


@pytest.fixture
def cell(work: SyclWork) -> Any:
    return work.new()
