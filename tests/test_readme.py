"""The README's code runs, and the links of all pages lead somewhere."""

import os
import re
import sys

import pytest

from processes import execute

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

PAGES = ["README.md", *sorted(f"docs/{name}" for name in os.listdir(f"{ROOT}/docs") if name.endswith(".md"))]

with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
    README = file.read()

RUNNABLE = re.findall(r"\n\n```python\n(.*?)```", README, re.DOTALL)
FOR_A_GPU = re.findall(r"<!-- lane: gpu -->\n```python\n(.*?)```", README, re.DOTALL)


def test_there_is_code_to_run():
    assert len(RUNNABLE) == 1
    assert len(FOR_A_GPU) == 1


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
@pytest.mark.parametrize("block", FOR_A_GPU)
def test_the_code_for_a_gpu_runs(block, tmp_path):
    for name in ("torch", "cupy", "triton"):
        pytest.importorskip(name)
    (tmp_path / "block.py").write_text(block)
    done = execute(
        [sys.executable, "block.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": ROOT}, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split())) == 3, done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_the_links_lead_somewhere(page):
    path = os.path.join(ROOT, page)
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"```.*?```", "", file.read(), flags=re.DOTALL)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "//" not in link]
    assert links or page != "README.md"
    missing = [link for link in links if not os.path.exists(os.path.join(os.path.dirname(path), link))]
    assert missing == []


def test_the_two_commands_are_there():
    commands = re.findall(r"^python3 dev\.py (\w+)", README, re.MULTILINE)
    assert commands == ["demo", "test"]
