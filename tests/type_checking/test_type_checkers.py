"""What mypy and pyright make of the package, and of code that uses it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from processes import execute
from type_checking import environment

HERE = Path(__file__).resolve().parent
PACKAGES = ("accelerator_graph", "accelerator_graph_opencl", "accelerator_graph_sycl")
TIMEOUT = 300

STARTS = pytest.mark.starts("type_checkers")


@pytest.fixture(scope="module")
def env() -> dict[str, str]:
    return environment.make()


@pytest.mark.promise("types-of-users-code")
def test_mypy_finds_the_mistakes_in_code_of_users_and_no_others() -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", HERE / "user_code.py"]
    done = execute(command, cwd=environment.ROOT, timeout=TIMEOUT, merged=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.promise("types-of-users-code")
@STARTS
def test_pyright_finds_the_mistakes_in_code_of_users_and_no_others(env: dict[str, str]) -> None:
    done = execute([sys.executable, "-m", "pyright", "-p", HERE], env=env, timeout=TIMEOUT, merged=True)
    assert done.returncode == 0, done.stdout
    assert "0 errors" in done.stdout


@pytest.mark.promise("everything-has-a-type")
@STARTS
@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_symbol_has_a_declared_type(env: dict[str, str], package: str) -> None:
    command = [sys.executable, "-m", "pyright", "--ignoreexternal", "--verifytypes", package]
    done = execute(command, env=env, timeout=TIMEOUT, merged=True)
    assert "Type completeness score: 100%" in done.stdout, done.stdout
    assert done.returncode == 0, done.stdout
