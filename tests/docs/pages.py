"""The pages, and what the comment before a fence says about its code.

``<!-- lane: torch -->``, ``cuda``, ``hip`` or ``gpu``
    The lane of a ``python`` fence; without a comment, it runs on the cpu lane.
``<!-- output -->``
    What the code before it prints.
``<!-- file: NAME -->``
    A file for the code after it, in the folder in which that runs.
``<!-- command -->``
    Lines for a POSIX shell, on the cpu lane.
``<!-- fragment -->``
    Not run: a ``diff``, or a piece of something.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RECORDS = ROOT / "docs" / "verified"
"""The folder of pages that a program writes; their fences are what it saw."""

LANES = ("cpu", "torch", "cuda", "hip", "gpu")

_FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,}) ?(?P<language>[\w+-]*).*")
_COMMENT = re.compile(r" *<!-- (?P<kind>lane|output|file|command|fragment)(?:: (?P<argument>\S+))? -->")


@dataclass(frozen=True)
class Fence:
    """A block of code on a page."""

    page: str
    line: int
    """The line of the page that has the first line of the code; the first line of the page is 1."""
    language: str
    kind: str
    """``lane``, ``output``, ``file``, ``command`` or ``fragment``."""
    argument: str
    """The lane of Python code, or the name of the file."""
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    """Return the name of a page, from the root of the repository."""
    return page.relative_to(ROOT).as_posix()


def fences_of(page: Path) -> list[Fence]:
    """Return the fences of a page.

    Raises
    ------
    ValueError
        A fence does not end, or the comment before it does not fit its language.
    """
    lines = page.read_text(encoding="utf-8").splitlines()
    found: list[Fence] = []
    at = 0
    while at < len(lines):
        if opening := _FENCE.fullmatch(lines[at]):
            closing = opening["indent"] + opening["ticks"]
            try:
                end = lines.index(closing, at + 1)
            except ValueError:
                raise ValueError(f"{name_of(page)}:{at + 1}: the fence does not end.") from None
            comment = _COMMENT.fullmatch(lines[at - 1]) if at else None
            kind, argument = (comment["kind"], comment["argument"] or "") if comment else ("lane", "cpu")
            text = textwrap.dedent("\n".join(lines[at + 1 : end])) + "\n"
            fence = Fence(name_of(page), at + 2, opening["language"], kind, argument, text)
            if wrong := _wrong(fence):
                raise ValueError(f"{fence}: {wrong}")
            found.append(fence)
            at = end
        at += 1
    return found


def _wrong(fence: Fence) -> str:
    """Return what is wrong about a fence, as a sentence; nothing if it is as it should be."""
    match fence.kind, fence.argument, fence.language:
        case "lane", lane, "python":
            return "" if lane in LANES else f"the lane must be one of {', '.join(LANES)}, not {lane!r}."
        case "lane", _, language:
            return (
                f"a {language or 'nameless'} fence needs one of the comments that tests/docs/pages.py lists."
            )
        case "output", "", "text":
            return ""
        case "output", _, _:
            return "the comment is `<!-- output -->`, before a `text` fence."
        case "file", name, _:
            plain = name and not Path(name).is_absolute() and ".." not in Path(name).parts
            return (
                "" if plain else "a file needs a name inside of the folder, as in `<!-- file: solver.py -->`."
            )
        case "command", "", "sh":
            return ""
        case "command", _, _:
            return "the comment is `<!-- command -->`, before a `sh` fence."
        case "fragment", "", language if language != "python":
            return ""
    return (
        "a fragment is `<!-- fragment -->` before a fence that is not `python`; Python code names its lane."
    )
