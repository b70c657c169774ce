"""Places in Python code: whose they are, and how to name them."""

from __future__ import annotations

import linecache
import os
import sysconfig
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import NamedTuple

OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
"""The folder of this package."""

_WATCHES = OURS + f"diagnosis{os.sep}_tracing"
_PASSIVE = (_WATCHES, OURS + f"interop{os.sep}_torch")

_REGISTRY = os.path.join("_library", "simple_registry.py")
_OPERATORS = os.sep + "_ops.py"
"""Files that each operator of torch goes through because its streams are compared."""

_STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_GENERATED = ("torchinductor_", f"{os.sep}.triton{os.sep}")
"""Parts of the names of files that compilers write."""
_INSTALLED = frozenset(("site-packages", "dist-packages"))


def is_passive(code: CodeType) -> bool:
    """Return True for code that runs only because a capture is watched."""
    return _is_passive(code.co_filename)


def kind_of(file: str) -> int:
    """Return what kind of code a file has, as a number that ``_core/fast_watch.h`` knows."""
    if _is_passive(file):
        return 2
    return 1 if _is_unwatched(file) else 3 if _is_installed(file) else 0


def is_unwatched(code: CodeType) -> bool:
    """Return True for code whose lines are not watched: Python's own, and what imports run.

    What these lines do is put down to the line that called them. Their calls into C are watched.
    """
    file = code.co_filename
    return _is_unwatched(file) or (code.co_name == "<module>" and _is_installed(file))


# by file: to hash a code object takes longer than all the rest of an event


@lru_cache(4096)
def _is_passive(file: str) -> bool:
    return file.startswith(_PASSIVE) or file.endswith(_REGISTRY)


@lru_cache(4096)
def _is_unwatched(file: str) -> bool:
    return _is_passive(file) or _is_standard(file) or file.endswith(_OPERATORS)


@lru_cache(4096)
def _is_standard(file: str) -> bool:
    return not _is_installed(file) and file.startswith((*_STANDARD, "<frozen "))


class Place(NamedTuple):
    """A line that a thread was at."""

    file: str
    line: int
    function: str

    def source(self) -> str:
        """Return the text of the line; empty if it is not known."""
        return linecache.getline(self.file, self.line).strip()

    def is_ours(self) -> bool:
        """Return True in this package."""
        return self.file.startswith(OURS)

    def is_standard(self) -> bool:
        """Return True in Python's standard library."""
        return _is_standard(self.file)

    def is_library(self) -> bool:
        """Return True in code that the user has installed rather than written."""
        return self.is_ours() or self.is_standard() or _is_installed(self.file) or _is_generated(self.file)


@lru_cache(4096)
def _is_installed(file: str) -> bool:
    return not _INSTALLED.isdisjoint(file.replace(os.sep, "/").split("/"))


def _is_generated(file: str) -> bool:
    return file.startswith("<eval_with_key>") or any(each in file for each in _GENERATED)


def stack_of(frame: FrameType | None) -> list[Place]:
    """Return where a frame and its callers are, the innermost first."""
    return [
        Place(each.f_code.co_filename, each.f_lineno or 0, each.f_code.co_qualname) for each in callers(frame)
    ]


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def watched(frame: FrameType) -> FrameType | None:
    """Return the frame at one of whose events a thread asks about the capture; None if it does not."""
    asks = [each for each in callers(frame) if each.f_code.co_filename.startswith(_WATCHES)]
    return asks[-1].f_back if asks else None


def users(stack: Sequence[Place]) -> Place:
    """Return the innermost place in the user's own code, or in a library if there is none."""
    for place in stack:
        if not place.is_library():
            return place
    return next((place for place in stack if not place.is_ours()), stack[0])


def written(stack: Sequence[Place]) -> str:
    """Return a stack as a traceback shows it, the innermost last."""
    lines = []
    for place in reversed(stack):
        lines.append(f'  File "{place.file}", line {place.line}, in {place.function}')
        source = place.source()
        if source:
            lines.append(f"    {source}")
    return "\n".join(lines)
