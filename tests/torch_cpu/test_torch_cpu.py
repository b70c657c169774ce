"""Captures of torch's own functions, modules and autograd, by torch's build for the CPU, without a GPU."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lanes import lack
from processes import execute
from torch_cpu import environment

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 300
pytestmark = pytest.mark.starts("torch_cpu")

LEAST_PASSED = {
    "graphed/test_callables.py": 43,
    "graphed/test_callables_refused.py": 55,
    "torch_cpu/itself.py": 10,
    "core/test_liveness.py": 12,
    "compat/test_compat.py": 3,
}


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return environment.make()
    except LookupError as error:
        lack(str(error))
        raise


@pytest.mark.parametrize("name", LEAST_PASSED)
def test_the_tests_that_want_torch_pass(
    python: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    done = execute(
        [
            *(str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no"),
            *("-m", "needs", f"tests/{name}"),
        ],
        cwd=ROOT,
        env=environment.environment(),
        timeout=TIMEOUT,
        merged=True,
    )
    assert done.returncode == 0, done.stdout
    [passed] = re.findall(r"^(\d+) passed", done.stdout, re.MULTILINE)
    record_property("tests", passed)
    assert int(passed) >= LEAST_PASSED[name]
    assert "skipped" not in done.stdout


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
