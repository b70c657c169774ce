"""dev.py, where it has to refuse; what it does otherwise is seen whenever these tests are run by it."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from processes import execute

DEV = Path(__file__).resolve().parents[1] / "dev.py"


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return execute([sys.executable, *command], env={**os.environ, **variables}, timeout=300)


def test_old_python_can_read_it() -> None:
    ast.parse(DEV.read_text(encoding="utf-8"), feature_version=(3, 7))


def test_old_python_is_refused_in_one_sentence() -> None:
    code = (
        "import runpy, sys; sys.version_info = (3, 10, 0); sys.argv = ['dev.py', 'demo'];"
        f"runpy.run_path({str(DEV)!r}, run_name='__main__')"
    )
    done = run("-c", code)
    assert done.returncode == 2
    assert done.stdout == ""
    [sentence] = done.stderr.splitlines()
    assert "3.11 or newer" in sentence


@pytest.mark.parametrize("arguments", [(), ("nonsense",)])
def test_unknown_command_shows_the_usage(arguments: tuple[str, ...]) -> None:
    done = run(str(DEV), *arguments)
    assert done.returncode == 2
    assert "dev.py test" in done.stderr


def test_failed_set_up_is_shown_and_leaves_nothing(tmp_path: Path) -> None:
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    shutil.copy(DEV, checkout)
    (checkout / "pyproject.toml").write_text("[project]\nname = 'broken'\nversion = 'no version'\n")
    done = run(str(checkout / "dev.py"), "demo", PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert done.returncode == 1
    assert "ERROR" in done.stderr
    assert "set-up failed" in done.stderr
    assert sorted(path.name for path in checkout.iterdir()) == ["dev.py", "pyproject.toml"]
