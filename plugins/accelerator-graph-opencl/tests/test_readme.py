"""The examples of the README run."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pyopencl as cl


def test_the_examples_run() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        for block in blocks:
            exec(block, names)
    assert names["graph"].state == "ready"
