"""The links of all pages lead somewhere, and the comments before their code are of the known ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.names import unknown_names
from docs.pages import PAGES, ROOT, fences_of, name_of


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "//" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_commands_of_dev_py_are_there(page: Path) -> None:
    known = re.findall(r"^python3 dev\.py (\w+)", (ROOT / "dev.py").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"python3 dev\.py (\w+)", page.read_text(encoding="utf-8"))
    assert set(named) <= set(known)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\n1", "does not end"),
        ("```\n1\n```", "nameless fence needs"),
        ("```sh\nls\n```", "sh fence needs"),
        ("<!-- lane: cuba -->\n```python\n```", "not 'cuba'"),
        ("<!-- output -->\n```python\n```", "before a `text` fence"),
        ("<!-- file: ../solver.py -->\n```python\n```", "inside of the folder"),
        ("<!-- file -->\n```python\n```", "inside of the folder"),
        ("<!-- command -->\n```text\n```", "before a `sh` fence"),
        ("<!-- fragment -->\n```python\n```", "not `python`"),
    ],
)
def test_a_fence_that_does_not_fit_is_refused(text: str, message: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("docs.pages.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        fences_of(page)


def test_fences_are_found(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("docs.pages.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```python\na\n```\n\n1. b\n   <!-- lane: cuda -->\n   ```python\n   c\n     d\n   ```\n"
        '<!-- file: e.py -->\n````py title="e.py"\n```\n````\n',
        encoding="utf-8",
    )
    assert [(each.line, each.kind, each.argument, each.text) for each in fences_of(page)] == [
        (2, "lane", "cpu", "a\n"),
        (8, "lane", "cuda", "c\n  d\n"),
        (13, "file", "e.py", "```\n"),
    ]


@pytest.mark.parametrize(
    ("code", "unknown"),
    [
        ("import accelerator_graph as a\na.Graph().reset()\na.errors.CaptureError", []),
        ("import accelerator_graph as a\na.Grap()", ["a.Grap"]),
        ("import accelerator_graph as a\na.Graph.reset_all", ["a.Graph.reset_all"]),
        ("from accelerator_graph.backends.base import Backend\nBackend.probe", []),
        ("from accelerator_graph import Gruph", ["accelerator_graph.Gruph"]),
        (
            "import accelerator_graph.testing\naccelerator_graph.testing.nothing",
            ["accelerator_graph.testing.nothing"],
        ),
        ("with ag.nothing() as it: it.whatever", ["ag.nothing"]),
    ],
)
def test_unknown_names_are_found(code: str, unknown: list[str]) -> None:
    assert unknown_names(code) == unknown
