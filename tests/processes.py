"""Programs that tests run in processes of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

VARIABLES = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # none is needed, and Hypothesis' takes half a second to import
    "OMPI_ALLOW_RUN_AS_ROOT": "1",  # Open MPI refuses to start processes for root, as whom containers run
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
"""The variables that every process is given."""


def execute(
    command: Sequence[str | Path],
    *,
    timeout: float = 300,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    merged: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its status and output, as text; `merged` with the error output."""
    return subprocess.run(
        command,
        env={**(os.environ if env is None else env), **VARIABLES},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )
