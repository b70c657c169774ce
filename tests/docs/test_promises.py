"""Each promise of the pages has a test that holds it, and no test holds what no page promises."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

from docs.pages import ROOT


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "docs" / "tools"), *sys.path])
        import promises
    return promises


def test_each_promise_has_a_test_and_each_such_test_a_promise(tool: ModuleType) -> None:
    made = {promise.name for page in tool.pages(ROOT) for promise in tool.promises(ROOT, page)}
    held = tool.tests(ROOT)
    assert len(made) > 100
    assert made == {*held}
    assert [test for tests in held.values() for test in tests if not test.name.startswith("test_")] == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("A first sentence. The second\none is `promised`.", "The second one is `promised`."),
        ("- An item.\n- **It never hangs.** A [link](a.md#b) is text.", "A link is text."),
        ("- One,\n- **two** and\n  three.", "**two** and three."),
        ("| a | b |\n| --- | --- |\n| it raises | an error", "it raises: an error"),
        ("# Heading\nText.", "Text."),
        ("It goes. <!-- promise: it-goes --> It comes.", "It comes."),
        ("`a` does. `b` does (see [it](x.md)).", "`b` does (see it)."),
    ],
)
def test_the_sentence_of_a_promise(tool: ModuleType, text: str, sentence: str) -> None:
    assert tool.sentence(text) == sentence


def test_the_promises_of_a_page_and_of_a_module(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    text = "It holds. <!-- promise: it-holds --> More.\n\n<!-- promise: not here\n"
    (tmp_path / "docs" / "page.md").write_text(text, encoding="utf-8")
    assert [*tool.promises(tmp_path, "page.md")] == [("page.md", "it-holds", "It holds.")]
    code = '@pytest.mark.promise("a", "b")\ndef test_x(): pass\n\npytestmark = pytest.mark.promise("c")'
    assert [*tool.marked(ast.parse(code))] == [("a", "test_x"), ("b", "test_x"), ("c", "")]
