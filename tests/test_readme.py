"""The README's code runs."""

import os
import re
import sys

import pytest

from processes import execute

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
    README = file.read()

BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
RUNNABLE = [block for block in BLOCKS if not block.startswith(("# test_", "# on a GPU"))]


def test_there_is_code_to_run():
    assert len(RUNNABLE) == 2
    assert BLOCKS[0] not in RUNNABLE


@pytest.mark.parametrize("block", range(len(RUNNABLE)))
def test_the_code_runs(block, tmp_path):
    code = RUNNABLE[block]
    done = execute(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ROOT, "ACCELERATOR_GRAPH_BACKEND": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.needs("gpu")
@pytest.mark.parametrize("block", [each for each in BLOCKS if each.startswith("# on a GPU")])
def test_the_code_for_a_gpu_runs(block, tmp_path):
    for name in ("torch", "cupy", "triton"):
        pytest.importorskip(name)
    (tmp_path / "block.py").write_text(block)
    done = execute(
        [sys.executable, "block.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": ROOT}, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split())) == 3, done.stdout


def test_the_links_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", re.sub(r"```.*?```", "", README, flags=re.DOTALL))
    assert links
    missing = [link for link in links if "//" not in link and not os.path.exists(os.path.join(ROOT, link))]
    assert missing == []


def test_the_two_commands_are_there():
    commands = re.findall(r"^python3 dev\.py (\w+)", README, re.MULTILINE)
    assert commands == ["demo", "test"]
