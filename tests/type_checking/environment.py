"""A folder with pyright and its JavaScript engine, filled once by pip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from simulators.debian import digest, locked, unfinished_for

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT, *sorted(path.parents[1] for path in ROOT.glob("plugins/*/*/py.typed")))
"""The folders that contain the package and those of the plug-ins."""
CACHE = Path(__file__).resolve().parent / "__pycache__"
PYRIGHT = "pyright[nodejs]==1.1.414"
PIP = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
TIMEOUT = 600


def make() -> dict[str, str]:
    """Return an environment in which pyright is found, and the packages to check."""
    folder = CACHE / f"pyright-{digest(sys.version, PYRIGHT)}"
    with locked(folder):
        if not folder.exists():
            with unfinished_for(folder) as unfinished:
                subprocess.run(
                    [sys.executable, *PIP, "--target", str(unfinished), PYRIGHT],
                    timeout=TIMEOUT,
                    stdin=subprocess.DEVNULL,
                    check=True,
                )
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (*SOURCES, folder))),
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
    }
