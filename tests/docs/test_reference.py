"""The pages of the reference say what the code says."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from accelerator_graph._cli import info
from docs.pages import ROOT
from lanes import LANES

REFERENCE = ROOT / "docs" / "reference"
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
READS = re.compile(r"os\.environ|os\.getenv|import .*\bvariable\b|(?m:^_?[A-Z]+ = .ACCELERATOR_)")


@pytest.fixture(scope="module")
def generate() -> Iterator[object]:
    before = [*sys.path]
    sys.path.insert(0, str(ROOT / "docs" / "tools"))
    import generate

    yield generate
    sys.path[:] = before


GENERATED = [
    *("reference/states.md", "reference/capture-rules.md", "reference/command-line.md"),
    *("reference/promises.md", "inside.md"),
]


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_page_is_up_to_date(generate, name: str) -> None:
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == generate.PAGES[name](ROOT), "run `python docs/tools/generate.py`"


def test_all_generated_pages_are_compared(generate) -> None:
    assert set(generate.PAGES) == {*GENERATED}


def test_every_function_on_the_page_of_calls_has_a_job() -> None:
    lines = (ROOT / "docs" / "inside.md").read_text(encoding="utf-8").splitlines()
    calls = [line for line in lines if line.lstrip().startswith("- `")]
    assert len(calls) > 60
    assert [line for line in calls if not line.endswith(".") or line.endswith(": .")] == []


def test_all_environment_variables_are_on_their_page() -> None:
    named = re.findall(
        r"^\| `(\w+)` \|", (REFERENCE / "environment.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(named) == len(set(named))
    modules = [ROOT / "setup.py", *(ROOT / "accelerator_graph").rglob("*.py")]
    read = variables_of(modules) - {*info.VARIABLES}  # a table of names without prefix
    assert set(named) == read


def variables_of(modules: Iterable[Path]) -> set[str]:
    """Return what looks like an environment variable in the modules that read the environment."""
    found = set()
    for path in modules:
        code = path.read_text(encoding="utf-8")
        if READS.search(code):
            found |= {
                node.value
                for node in ast.walk(ast.parse(code))
                if isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and VARIABLE.fullmatch(node.value)
            }
    return found


def test_no_code_in_c_reads_the_environment() -> None:
    """If it does, the test above has to look there as well."""
    sources = [*(ROOT / "accelerator_graph").rglob("*.[ch]")]
    assert sources
    assert [path.name for path in sources if "getenv" in path.read_text(encoding="utf-8")] == []


def test_all_lanes_are_on_their_page() -> None:
    rows = re.findall(
        r"^\| (.+?) \| (.+?) \| `", (ROOT / "docs/testing.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert rows == [(lane.title, lane.proves) for lane in LANES.values()]
