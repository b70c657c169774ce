"""What a process of the suite needs beside pytest: python -m inner LOG faults.plugin -p faults.plugin MODULE

--slice=2/3 takes every third test, from the second. The process has to be where the driver can fail: with
the software CUDA driver on its library path (`simulators.cuda.build`), or, if FAULTS_BACKEND is hip, on AMD's
runtime with the library of `faults.wrapper` before it. FAULTS_BUG plants a bug (`faults.planted`).
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from accelerator_graph._core import ownership

from . import figures

pytest.register_assert_rewrite(
    "faults.bench", "faults.operations", "core.random_signals", "core.test_interrupts"
)

if bug := os.environ.get("FAULTS_BUG"):
    from . import planted

    planted.plant(bug)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", default="1/1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first, step = map(int, config.getoption("slice").split("/"))
    items[:] = items[first - 1 :: step]


def accounts() -> dict[str, Any]:
    """Return what the suite has counted, and the driver."""
    ownership.drain()
    from .bench import accounts  # not before pytest, which explains its assertions

    return {
        "injected": figures.injected,
        "states_checked": figures.states_checked,
        "left_by_destruction": figures.left_by_destruction,
        "left_by_interrupts": figures.left_by_interrupts,
        "leaks": figures.leaks,
        "stale_handles": accounts.stale_handles,
        "unknown_calls": accounts.unknown_calls,
    }
