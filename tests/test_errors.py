"""The errors and their page: every class and every reason has a heading that documents can link."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path
from typing import get_args

import pytest

from accelerator_graph import errors

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "errors.md").read_text(encoding="utf-8")
CLASSES = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
]
REASONS = get_args(errors.Reason)


def sections() -> dict[str, str]:
    """The text under each heading of the third level."""
    parts = re.split(r"^#{2,3} ", PAGE, flags=re.MULTILINE)[1:]
    return {heading: text.strip() for heading, _, text in (part.partition("\n") for part in parts)}


@pytest.mark.promise("headings-of-errors")
def test_every_class_and_every_reason_has_its_heading() -> None:
    headings = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
    assert sorted(headings) == sorted([*(kind.__name__ for kind in CLASSES), *REASONS])


@pytest.mark.promise("errors-are-builtin-exceptions")
@pytest.mark.parametrize("kind", CLASSES)
def test_the_page_names_the_builtin_exceptions(kind: type[Exception]) -> None:
    bases = [base for base in kind.__bases__ if base.__module__ == "builtins" and base is not Exception]
    for base in bases:
        assert f"`{base.__name__}`" in sections()[kind.__name__].partition(".*")[0]


@pytest.mark.promise("same-reason-everywhere")
@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_is_explained_in_messages_and_on_the_page(reason: errors.Reason) -> None:
    assert bool(errors.explain(reason)) == (reason != "other")
    assert len(sections()[reason]) > 50
    error = errors.driver_error(
        backend="x", call="f", code=7, code_name="SEVEN", reason=reason, detail="why."
    )
    fact = errors.explain(reason) or "why"
    assert str(error) == f"backend 'x': f returned SEVEN (7): {fact}."
    assert (type(error) is errors.OutOfMemoryError) == (reason == "out_of_memory")
    capture = errors.capture_error("the capture failed", error)
    assert str(capture) == f"the capture failed: f returned SEVEN (7): {fact}."
    assert (capture.reason, capture.code, capture.code_name) == (reason, 7, "SEVEN")


@pytest.mark.promise("headings-of-errors")
def test_the_links_lead_to_headings() -> None:
    anchors = {heading.lower() for heading in sections()}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_can_be_sent_to_another_process(kind: type[Exception]) -> None:
    error = kind("what went wrong")
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), vars(found)) == (kind, "what went wrong", vars(error))
