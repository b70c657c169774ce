"""An environment with torch's CPU build, made once by pip."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path

from simulators.debian import locked

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(__file__).resolve().parent / "__pycache__"
TORCH = "torch==2.13.0+cpu"
PACKAGES = (TORCH, "numpy>=1.26", "pytest>=8")
TIMEOUT = 900
NOT_FOUND = "No matching distribution found for torch"


def make() -> Path:
    """Return the Python of an environment with torch, made first if there is none.

    Raises
    ------
    LookupError
        It can't be had here: why, and what would help.
    RuntimeError
        pip fails in another way.
    """
    if sys.platform != "linux":
        raise LookupError("torch's CPU build is tried on Linux only")
    digest = hashlib.sha256("\0".join((sys.version, sys.executable, *PACKAGES)).encode()).hexdigest()[:16]
    folder = CACHE / f"torch-{digest}"
    python, complete = folder / "bin" / "python", folder / "complete"
    CACHE.mkdir(exist_ok=True)
    with locked(folder):
        if not complete.exists():
            _run(sys.executable, "-m", "venv", "--clear", str(folder))
            pip = (
                str(python),
                "-m",
                "pip",
                "--disable-pip-version-check",
                "install",
                "--quiet",
                "--no-compile",
            )
            try:
                _run(*pip, *PACKAGES)
            except RuntimeError as error:
                if NOT_FOUND not in str(error):
                    raise
                raise LookupError(
                    f"pip finds no {TORCH} for Python {platform.python_version()}; name an index or a folder "
                    "that has it, for example in PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS"
                ) from error
            complete.touch()  # last, so that a half-made environment has none
    return python


SERVER: dict[str, str] = {}
"""The variable that names the server of `forks`, if there is one."""


def environment() -> dict[str, str]:
    """Return an environment for that Python, in which the project and its tests are found."""
    others = ("ACCELERATOR_GRAPH_BACKEND", "ACCELERATOR_GRAPH_REQUIRE_LANES")  # no other lane can run there
    env = {name: value for name, value in os.environ.items() if name not in others}
    return {
        **env,
        **SERVER,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
        "ACCELERATOR_GRAPH_TEST_SIMULATOR": "torch_cpu",
        "OMP_NUM_THREADS": "1",  # threads that wait for each other use as much of the CPU as those that work
    }


def _run(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} fails:\n{done.stderr[-4000:]}")
