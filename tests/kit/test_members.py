"""The kit names every member of the contract, and every member has a caller."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import accelerator_graph
from accelerator_graph.backends.base import Backend, Lends

PACKAGE = Path(accelerator_graph.__file__).parent
MEMBERS = sorted(name for name in {*dir(Lends), *Backend.__annotations__} if not name.startswith("_"))


def text_of(*patterns: str) -> str:
    return "".join(path.read_text("utf-8") for pattern in patterns for path in sorted(PACKAGE.glob(pattern)))


KIT = text_of("testing/**/*.py")
CALLERS = text_of(
    "*.py",
    "_core/*.py",
    "_graphed/**/*.py",
    "_plugins/*.py",
    "diagnosis/**/*.py",
    "interop/**/*.py",
    "backends/_registry/*.py",
) + text_of("backends/registry.py")


@pytest.mark.parametrize("member", MEMBERS)
def test_the_kit_names_it(member: str) -> None:
    assert re.search(rf"\b{member}\b", KIT)


@pytest.mark.parametrize("member", MEMBERS)
def test_the_library_uses_it(member: str) -> None:
    assert re.search(rf"\b{member}\b", CALLERS)
