"""Right programs under diagnosis: none of their captures is accused of anything."""

import os
import sys
from pathlib import Path

import pytest

from accelerator_graph._core.observers import DIAGNOSE
from processes import execute

pytestmark = pytest.mark.needs("cpu", "rest")

ROOT = Path(__file__).resolve().parents[2]
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


def test_right_programs_are_not_accused():
    done = execute(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *(f"tests/{name}" for name in PROGRAMS),
        ],
        cwd=ROOT,
        env={**os.environ, DIAGNOSE: "1"},
        merged=True,
    )
    assert done.returncode == 0, done.stdout
