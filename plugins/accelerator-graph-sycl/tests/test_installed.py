"""The distribution as users have it: its entry points, and the example of its README."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("group", ["backends", "conformance", "demo"])
def test_entry_points_name_classes(group: str) -> None:
    (found,) = entry_points(group=f"accelerator_graph.{group}", name="sycl")
    assert isinstance(found.load(), type)


def test_the_example_of_the_readme() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("5.0\n", "")
