"""What is shown of a failure: its message, and the calls that led to it, from the rule on."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator
from traceback import walk_tb
from types import FrameType

from .._interpreter.exceptions import text_of

KIT = __name__.rpartition(".")[0]


def failure_text(error: BaseException) -> str:
    """Return an error's type, message and calls, and the same of the errors that caused it."""
    lines: list[str] = []
    for each in chain(error):
        lines.append(f"caused by {text_of(each)}" if lines else text_of(each))
        lines.extend(calls(walk_tb(each.__traceback__)))
    return "\n".join(lines)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def calls(stack: Iterable[tuple[FrameType, int]]) -> list[str]:
    """Return two lines for each call of a stack, outermost first: where it is, and its source.

    The kit's own calls around the rule are left out.
    """
    frames = [(frame.f_globals.get("__name__", "?"), frame, line) for frame, line in stack]
    first = next((at for at, (module, *_) in enumerate(frames) if module.startswith(f"{KIT}.rules.")), 0)
    lines = []
    for module, frame, line in frames[first:]:
        lines.append(f"  {module}, line {line}, in {frame.f_code.co_qualname}")
        if source := linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip():
            lines.append(f"    {source}")
    return lines
