"""The page with what the other pages promise, and the test that holds each promise; and the same for the kit.

A promise is a sentence, or the cell of a table, with ``<!-- promise: its-name -->`` behind it. A test that
holds it has the marker ``@pytest.mark.promise("its-name")``; for rules of the conformance kit, which need no
pytest, `HELD` in ``tests/kit/promises.py`` says it. What a rule is held by are the faults in
``tests/kit/planted`` that it catches.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

INTRODUCTION = """# Promises, and the tests that hold them

<!-- Written by docs/tools/generate.py from the pages and the tests: change those. -->

What these pages promise, sentence by sentence, and for each the tests that fail if it is broken. What the
[conformance kit](testing.md) asks of a backend comes last.
"""
KIT = """
## The conformance kit

Each rule, and the faults that it was seen to catch: backends with one bug each, in
[`tests/kit/planted`](../../tests/kit/planted).

| rule | faults |
| --- | --- |
"""
PAGE = "reference/promises.md"

_MARK = re.compile(r"\s*<!-- promise: (?P<name>[a-z0-9-]+) -->")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_BLOCK = re.compile(r"\n\s*\n|^ *(?:[-*]|\d+\.) |^#+ .*\n|^\|", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])(?:\*\*)?\s+(?=[A-Z`*\"])")


class Promise(NamedTuple):
    """A promise of a page, relative to ``docs``."""

    page: str
    name: str
    sentence: str


class Test(NamedTuple):
    """A test, or a rule of the kit, by its path from the root."""

    path: str
    name: str

    def __str__(self) -> str:
        return f"[`{self.path.removeprefix('tests/')}::{self.name}`](../../{self.path})"


def page(root: Path) -> str:
    """Return the page."""
    held, lines = tests(root), []
    for path in pages(root):
        if found := [*promises(root, path)]:
            title = (root / "docs" / path).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            link = f"../{path}".replace("../reference/", "")
            lines += ["", f"## [{title}]({link})", "", "| promise | tests |", "| --- | --- |"]
            lines += [
                f"| {each.sentence} | {'<br>'.join(map(str, sorted(held[each.name])))} |" for each in found
            ]
    faults = caught(root)
    rules = dict.fromkeys((*rules_of_the_kit(root), *sorted(faults)))  # those of the table of states are made
    rows = [f"| `{rule}` | {', '.join(faults[rule]) or 'none yet'} |" for rule in rules]
    return INTRODUCTION + "\n".join(lines) + "\n" + KIT + "\n".join(rows) + "\n"


def pages(root: Path) -> list[str]:
    """Return the pages that may promise something: all but this one and what programs have recorded."""
    found = [path.relative_to(root / "docs").as_posix() for path in (root / "docs").rglob("*.md")]
    return sorted(name for name in found if name != PAGE and not name.startswith("verified/"))


def promises(root: Path, path: str) -> Iterator[Promise]:
    """Yield the promises of a page."""
    text = (root / "docs" / path).read_text(encoding="utf-8")
    for mark in _MARK.finditer(text):
        yield Promise(path, mark["name"], sentence(text[: mark.start()]))


def sentence(text: str) -> str:
    """Return the last sentence of a text, without links; a cell of a table with the first of its row."""
    blocks = [*_BLOCK.finditer(text)]
    block = _MARK.sub("", text[blocks[-1].end() if blocks else 0 :])
    if blocks and blocks[-1][0] == "|":
        cells = [cell.strip() for cell in block.split("|")]
        last = cells[-1] if len(cells) == 1 else f"{cells[0]}: {cells[-1]}"
    else:
        last = _SENTENCE.split(" ".join(block.split()))[-1]
    return _LINK.sub(r"\1", last).replace("|", "\\|")


def tests(root: Path) -> defaultdict[str, set[Test]]:
    """Return the tests that hold the promise of a name."""
    found: defaultdict[str, set[Test]] = defaultdict(set)
    for folder in (root / "tests", *(root / "plugins").glob("*/tests")):
        for path in folder.rglob("*.py"):
            code = "" if "__pycache__" in path.parts else path.read_text(encoding="utf-8")
            if "mark.promise(" in code:
                for name, test in marked(ast.parse(code)):
                    found[name].add(Test(path.relative_to(root).as_posix(), test))
    rules = rules_of_the_kit(root)
    table = ast.parse((root / "tests/kit/promises.py").read_text(encoding="utf-8")).body[-1]
    assert isinstance(table, ast.Assign)
    for name, held in ast.literal_eval(table.value).items():
        found[name] |= {Test(rules[rule], rule) for rule in held}
    return found


def marked(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the promises that the marks of a module name, each with the test that has it."""
    for statement in tree.body:
        test = getattr(statement, "name", "")
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.promise":
                for name in node.args:
                    yield ast.literal_eval(name), test


def rules_of_the_kit(root: Path) -> dict[str, str]:
    """Return the modules of the kit's rules, by their names."""
    return {
        node.name: path.relative_to(root).as_posix()
        for path in sorted((root / "accelerator_graph/testing/rules").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def caught(root: Path) -> defaultdict[str, list[str]]:
    """Return the planted faults that a rule of the kit catches."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((root / "tests/kit/planted").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for mark in getattr(node, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "caught_by":
                    for rule in mark.args:
                        found[ast.literal_eval(rule)].append(f"`{getattr(node, 'name', '')}`")
    return found
