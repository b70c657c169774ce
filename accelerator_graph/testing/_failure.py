"""What is shown of a failure: its message, and the calls that led to it, from the rule on."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator
from traceback import walk_tb
from types import FrameType

from .._interpreter.outside import text_of

KIT = __name__.rpartition(".")[0]
AROUND_RULES = tuple(
    f"{KIT}.{name}"
    for name in ("_check.", "_conformance.", "_tools.", "_watch.", "_case.Case.run", "_case.Case._run")
)


def failure_text(error: BaseException) -> str:
    """Return an error's type, message and calls, and the same of the errors that caused it."""
    lines: list[str] = []
    seen = set[str]()  # a clean-up may fail again and again for the same reason
    for word, each in chain(error):
        text = text_of(each)
        if text not in seen:
            lines += [f"{word}{text}", *calls(walk_tb(each.__traceback__))]
        seen.add(text)
    return "\n".join(lines)


def chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Yield an error and those that led to it, with words to put in front of each."""
    found: BaseException | None = error
    seen, word = set[int](), ""
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield word, found
        word = "raised from " if found.__cause__ else "raised while handling "
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def calls(stack: Iterable[tuple[FrameType, int]]) -> list[str]:
    """Return two lines for each call of a stack, outermost first: where it is, and its source.

    The calls that lead to the kit, and those inside it that run a rule or expect an error, are left out.
    """
    frames = [
        (str(frame.f_globals.get("__name__", frame.f_code.co_filename)), frame, line) for frame, line in stack
    ]
    first = next((at for at, (module, *_) in enumerate(frames) if module.startswith(f"{KIT}.")), 0)
    lines = []
    for module, frame, line in frames[first:]:
        if f"{module}.{frame.f_code.co_qualname}".startswith(AROUND_RULES):
            continue
        lines.append(f"  {module}, line {line}, in {frame.f_code.co_qualname}")
        if source := linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip():
            lines.append(f"    {source}")
    return lines
