"""Calling the commands as users do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lanes import REQUIRED
from processes import execute

ROOT = Path(__file__).resolve().parents[2]


PLUGIN = """
from accelerator_graph._demo.cpu import CpuPlate as Plate
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import BackendUnavailableError
from accelerator_graph.testing.works.host import HostWork

class Backend(CpuBackend):
    priority = {priority}

class Work(HostWork):
    def __init__(self):
        super().__init__("plug")
"""


HOOKS = """
[accelerator_graph.demo]
plug = the_plugin:Plate
[accelerator_graph.conformance]
plug = the_plugin:Work
"""


def command_line(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != REQUIRED}  # the suite's own
    environment = {**inherited, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **variables}
    return execute([sys.executable, "-W", "error", "-m", "accelerator_graph", *arguments], env=environment)


def refused(status: int, *arguments: str, **variables: str) -> str:
    done = command_line(*arguments, **variables)
    assert done.returncode == status, done
    assert "Traceback" not in done.stderr
    return done.stderr
