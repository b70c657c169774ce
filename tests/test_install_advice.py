"""What messages and pages tell people to install."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelerator_graph import _install

ROOT = Path(__file__).resolve().parents[1]
NAME = r"""["']?accelerator-graph(?![\w/]*/)"""
ADVICE = re.compile(
    rf"accelerator-graph[\w-]*\[|\b(install|add|run|uvx|pipx|upgrade)\b[^.;|`]*?(?<![\w./\\-]){NAME}"
)
RECORDS = ROOT / "docs" / "verified"  # they quote what was printed
OWN = ROOT / "accelerator_graph" / "_install.py"


def texts(path: Path, source: str) -> Iterator[str]:
    """The texts of a file: the string constants of a module, the paragraphs of a page."""
    if path.suffix != ".py":
        yield from re.split(r"\n\s*\n", source)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def advice(path: Path, source: str) -> list[str]:
    """The texts that tell people to install the name, and don't say that this is for later."""
    return [
        text
        for text in texts(path, source)
        if ADVICE.search(" ".join(text.split())) and "first release" not in " ".join(text.split())
    ]


def files() -> list[Path]:
    """What people read of the project: its messages, its docstrings, its pages."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.py")]
    for folder in ("accelerator_graph", "plugins"):
        found += [path for kind in ("py", "md") for path in (ROOT / folder).rglob(f"*.{kind}")]
    return [path for path in found if path != OWN and RECORDS not in path.parents]


@pytest.mark.skipif(_install.PUBLISHED, reason="the name is ours")
def test_nothing_tells_people_to_install_a_name_that_is_not_ours() -> None:
    found = {
        str(path.relative_to(ROOT)): wrong
        for path in files()
        if (wrong := advice(path, path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.py", """f'Install it with: pip install "accelerator-graph[cuda]"'"""),
        ("a.py", '"Install it with: pip install --no-deps "\n"accelerator-graph-sycl"'.replace("\n", " ")),
        ("a.py", '"upgrade accelerator-graph."'),
        ("a.py", '"""Needs ``accelerator-graph[programs]``."""'),
        ("a.md", "Run\n\n```\npip install accelerator-graph\n```\n"),
        ("a.md", "`pip install -U 'accelerator-graph'`"),
        ("a.md", "`uv add accelerator-graph`"),
        ("a.md", 'It needs Hypothesis: `pip install\n"accelerator-graph[programs]"`.'),
    ],
)
def test_such_advice_is_found(name: str, source: str) -> None:
    assert advice(Path(name), source)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.py", """'pip install "cuda-python>=12.9.1,<14"'"""),
        ("a.py", '"upgrade accelerator_graph"'),
        ("a.md", "`pip install . ./plugins/accelerator-graph-opencl`"),
        ("a.md", "After the first release: `pip install accelerator-graph`"),
        ("a.md", "Run `pip install .`. The command `accelerator-graph info` shows more."),
    ],
)
def test_other_advice_passes(name: str, source: str) -> None:
    assert advice(Path(name), source) == []


def test_requirements_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert {name: extras[name] for name in _install.REQUIREMENTS} == {
        name: [requirement] for name, requirement in _install.REQUIREMENTS.items()
    }


@pytest.mark.promise("oldest-bindings-are-tested")
@pytest.mark.parametrize(("extra", "option"), [("cuda", "--cuda-python"), ("hip", "--hip-python")])
def test_the_oldest_bindings_are_those_that_ci_runs(extra: str, option: str) -> None:
    oldest = re.search(r">=(\d+\.\d+)", _install.REQUIREMENTS[extra])
    assert oldest
    assert f'dev.py test {option} "{oldest[1]}.*"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("extra", ["cuda", "hip"])
def test_readme_names_the_same_bindings(extra: str) -> None:
    assert _install.REQUIREMENTS[extra] in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_release_switches_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _install.command("cuda") == 'pip install "cuda-python>=12.9.1,<14"'
    assert "accelerator-graph" not in _install.with_extension()
    monkeypatch.setattr(_install, "PUBLISHED", True)
    assert _install.command("cuda") == 'pip install "accelerator-graph[cuda]"'
    assert "accelerator-graph" in _install.with_extension()
