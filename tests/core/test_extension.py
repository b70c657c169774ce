"""The C extension is used if it was built from this version of the library."""

import os
import re
import sys
from pathlib import Path

import pytest

from accelerator_graph._core.extension import SWITCH, VERSION
from core.fast_bench import FAST_C
from processes import execute

pytest_plugins = ["core.fast_fixtures"]

ROOT = Path(__file__).resolve().parents[2]

REPLAYS = """
import sys, types
old = types.ModuleType("accelerator_graph._core._fast")
old.Lock = old.Launch = old.Launcher = old.Follower = old.Method = old.Watch = None
{version}
sys.modules[old.__name__] = old
import accelerator_graph as ag
log, stream = [], ag.Stream(backend="cpu")
with ag.Graph(stream=stream) as graph:
    stream.launch(log.append, 1)
replay = graph.bind()
replay()
graph.replay()
stream.synchronize()
print(log)
with ag.diagnose(), ag.Graph(stream=stream) as graph:
    stream.launch(log.append, 2)
print(graph.state)
"""


def test_the_two_versions_agree(fast):
    assert re.findall(r"^#define VERSION (\d+)$", FAST_C.read_text(encoding="utf-8"), re.M) == [str(VERSION)]
    assert fast.version == VERSION


@pytest.mark.parametrize("version", ["", f"old.version = {VERSION - 1}", f"old.version = {VERSION + 1}"])
def test_another_version_is_not_used(version):
    variables = {**os.environ, "PYTHONPATH": str(ROOT), SWITCH: ""}
    command = [sys.executable, "-W", "default", "-c", REPLAYS.format(version=version)]
    done = execute(command, env=variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1, 1]\nready\n"
    (line,) = [each for each in done.stderr.splitlines() if "Warning" in each]
    assert line.endswith(
        "RuntimeWarning: accelerator_graph: the C extension was built from another version of the library "
        "and is not used, so replays go through Python; build it again by installing the library again."
    )


def test_nothing_is_said_if_it_is_switched_off():
    variables = {**os.environ, "PYTHONPATH": str(ROOT), SWITCH: "1"}
    done = execute([sys.executable, "-W", "default", "-c", REPLAYS.format(version="")], env=variables)
    assert (done.returncode, done.stderr) == (0, "")
