"""A plug-in that the commands find."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line.calls import PLUGIN, ROOT


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Installs a plug-in, with further entry points; returns the variables that make it be found."""

    def install(priority: object, hooks: str = "") -> dict[str, str]:
        (tmp_path / "the_plugin.py").write_text(PLUGIN.format(priority=priority))
        info = tmp_path / "the_plugin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: the-plugin\nVersion: 1.0\n")
        points = f"[accelerator_graph.backends]\nplug = the_plugin:Backend\n{hooks}"
        (info / "entry_points.txt").write_text(points)
        return {"PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))}

    return install
