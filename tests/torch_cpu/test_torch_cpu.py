"""Captures of torch's own functions, modules and autograd, by torch's CPU build, without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import inner
from lanes import LANES
from processes import execute
from torch_cpu import environment
from torch_cpu.forks import Fork

pytestmark = pytest.mark.starts("torch_cpu")

PARTS = {
    "callables": {"graphed/test_callables.py": 96},
    "refused": {
        "graphed/test_callables_refused.py": 57,
        "diagnosis/broken_captures_on_torch_cpu.py": 20,
    },
    "others": {
        "compat": 3,
        "core": 12,
        "diagnosis": 26,
        "graphed": 31,
        "torch_cpu/breaks.py": 19,
        "torch_cpu/itself.py": 13,
        "torch_cpu/labels.py": 9,
        "torch_cpu/loops.py": 19,
        "torch_cpu/programs.py": 29,
    },
    "examples": {"examples/on_torch_cpu.py": 9},
    "ranks": {"torch_cpu/ranks.py": 34},
}
"""How many tests pass at least, by folder or module; a process for each part."""
ALONE = [f"--ignore=tests/{name}" for part in ("callables", "refused") for name in PARTS[part]]


@pytest.mark.parametrize("part", PARTS)
def test_the_tests_that_want_torch_pass(
    torch_python: Path, run_inner: Callable[..., inner.Outcome], part: str
) -> None:
    assert {*LANES["torch_cpu"].folders} <= {*PARTS["others"]}
    tests = (f"tests/{name}" for name in PARTS[part])
    options = ALONE if part == "others" else ()
    found = run_inner([torch_python], *tests, *options, env=environment.environment(), start=Fork)
    assert found.fewer(PARTS[part]) == {}
    assert found.skipped == {}


def test_without_torch() -> None:
    code = """
import sys
import accelerator_graph as ag
make = ag.make_graphed_callables
assert "torch" not in sys.modules
try:
    make(print, ())
except TypeError as error:
    assert "torch has not been imported" in str(error), error
else:
    raise AssertionError
assert "torch" not in sys.modules
"""
    done = execute([sys.executable, "-W", "error", "-c", code], env=environment.environment())
    assert done.returncode == 0, done.stderr
