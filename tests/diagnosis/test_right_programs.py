"""Right programs under diagnosis: none of their captures is accused of anything."""

import os
import sys

import pytest

from accelerator_graph._core.observers import DIAGNOSE

pytestmark = pytest.mark.needs("cpu", "rest")

PROGRAMS = (
    "backends/test_conformance.py",
    "backends/test_programs.py",
    "core/test_graph.py",
    "examples/test_examples.py",
    "graphed/test_graphed.py",
    "graphed/test_methods.py",
    "inspection/test_labels.py",
)
"""Tests that capture; every warning is an error in them."""


def test_right_programs_are_not_accused(run_inner):
    tests = (f"tests/{name}" for name in PROGRAMS)
    found = run_inner([sys.executable], *tests, env={**os.environ, DIAGNOSE: "1"})
    assert found.fewer(dict.fromkeys(PROGRAMS, 1)) == {}
