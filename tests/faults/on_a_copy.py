"""Parts of the suite on a copy of the library, with or without a bug that is planted in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from faults.planted_cuda import Bug
from simulators.cuda.build import ROOT

TIMEOUT = 60
PACKAGE = "accelerator_graph"
FAILED = 1
"""What pytest answers if tests fail: not if it is used wrongly, finds no test or can't collect them."""


class Copy:
    """A copy of the library, and how to start Python where the suite can run.

    Parameters
    ----------
    folder : Path
        Where the copy is made.
    python : sequence of str
        The interpreter.
    env : mapping
        Its environment.
    """

    def __init__(self, folder: Path, python: Sequence[str], env: Mapping[str, str]) -> None:
        self.folder, self.python = folder, python
        self.env = {
            **env,
            "PYTHONPATH": f"{folder}:{ROOT / 'tests'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "ACCELERATOR_GRAPH_PURE_PYTHON": "1",  # the bugs are
        }
        shutil.copytree(ROOT / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))

    def run(self, *part: str) -> tuple[int, str]:
        """Run a part of the suite; return how it ended, and its words."""
        report = self.folder / "report.json"
        done = subprocess.run(
            [*self.python, "-m", "faults", str(report), *part],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert report.exists(), done.stdout
        found = json.loads(report.read_text(encoding="utf-8"))
        assert found["library"] == str(self.folder / PACKAGE / "__init__.py")
        return done.returncode, done.stdout

    def find(self, bug: Bug) -> None:
        """Plant a bug, and see it found."""
        file = self.folder / PACKAGE / bug.file
        text = file.read_text(encoding="utf-8")
        assert text.count(bug.right) == 1, f"{bug.file} has changed: plant this bug anew"
        file.write_text(text.replace(bug.right, bug.wrong), encoding="utf-8")
        ended, said = self.run(*bug.part)
        assert ended == FAILED, said
        explained = re.sub("^E +", "", said, flags=re.MULTILINE)
        assert re.search(bug.says, explained), said
