"""Places in Python code: whose they are, how to name them, and which call a thread is in."""

from __future__ import annotations

import ast
import builtins
import dis
import linecache
import os
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType, ModuleType
from typing import Any, Literal, NamedTuple

OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
"""The folder of this package."""

_WATCHES = OURS + f"diagnosis{os.sep}_tracing"
_PASSIVE = (_WATCHES, OURS + f"interop{os.sep}_torch")

_REGISTRY = os.path.join("_library", "simple_registry.py")
_OPERATORS = os.sep + "_ops.py"
"""Files that each operator of torch goes through because its streams are compared."""
_WRAPPERS = (os.sep + "eval_frame.py", os.sep + "_compile.py")
"""Ends of the files through which torch calls what watches its operators."""

_STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_GENERATED = ("torchinductor_", f"{os.sep}.triton{os.sep}")
"""Parts of the names of files that compilers write."""
_COMPILED = (".pyx", ".pxd", ".pxi")
"""The ends of the names that Cython gives to files in tracebacks, wherever the compiled code is."""
_INSTALLED = frozenset(("site-packages", "dist-packages"))


@lru_cache(4096)  # by file: to hash a code object takes longer than all the rest of an event
def kind_of(file: str) -> int:
    """Return what kind of code a file has, as a number that ``_core/fast/watch.h`` knows.

    1 and 2: code whose lines are not watched, and 2 if it runs only because a capture is watched. 3: a
    package that the user has installed, whose lines are not watched while it is imported. 0: other code.
    """
    if file.startswith(_PASSIVE) or file.endswith(_REGISTRY):
        return 2
    if owner_of(file) == "standard" or file.endswith(_OPERATORS):
        return 1
    return 3 if owner_of(file) in ("package", "ours") else 0


@lru_cache(4096)
def owner_of(file: str) -> Literal["ours", "package", "standard", "compiler", "user"]:
    """Return whose code a file has: this package's, another installed one's, Python's, or the user's own."""
    if file.startswith(OURS):
        return "ours"
    if not _INSTALLED.isdisjoint(file.replace(os.sep, "/").split("/")):
        return "package"
    if file.startswith((*_STANDARD, "<frozen ")):
        return "standard"
    generated = file.startswith("<eval_with_key>") or any(each in file for each in _GENERATED)
    return "compiler" if generated or file.endswith(_COMPILED) else "user"


def is_passive(code: CodeType) -> bool:
    """Return True for code that runs only because a capture is watched."""
    return kind_of(code.co_filename) == 2


def is_unwatched(code: CodeType) -> bool:
    """Return True for code whose lines are not watched: Python's own, and what imports run.

    What these lines do is put down to the line that called them. Their calls into C are watched.
    """
    kind = kind_of(code.co_filename)
    return kind in (1, 2) or (kind == 3 and code.co_name == "<module>")


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
        return owner_of(self.file) == "ours"

    def is_standard(self) -> bool:
        """Return True in Python's standard library."""
        return owner_of(self.file) == "standard"

    def is_library(self) -> bool:
        """Return True in code that the user has installed rather than written."""
        return owner_of(self.file) != "user"


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


def beyond_watches(frame: FrameType) -> FrameType:
    """Return the frame that has called an operator, from one that watches it, beyond those of Python."""
    while frame.f_back is not None and (
        kind_of(file := frame.f_code.co_filename) in (1, 2) or file.endswith(_WRAPPERS)
    ):
        frame = frame.f_back
    return frame


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
    lines = traceback.format_list([(*place, None) for place in reversed(stack)])
    return "".join(lines).rstrip("\n")


# ---- calls ---------------------------------------------------------------------------------------

PURE = (callable, enumerate, id, isinstance, issubclass, len, object, range, super, type, zip)
"""Functions that are called often and break nothing. The line that called them is watched all the same."""
_WAITING = frozenset(("_thread", "_queue", "time", "select", "_socket", "_signal", "posix", "nt"))
"""Modules in C whose functions wait, and call nothing that could reach a driver."""
_OF_PYTHON = frozenset(("builtins", "collections", "re"))
_CALLS = frozenset(("CALL", "CALL_KW", "CALL_FUNCTION_EX", "PRECALL"))
_IDLE = frozenset(("RESUME", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "YIELD_VALUE", "SEND"))
"""Instructions at which a thread can lose the interpreter though it is in the middle of nothing."""


def name_of(function: Any) -> str:
    """Return the name of a callable, without its module; empty for methods of Python's own types."""
    if _owner(function) in _OF_PYTHON:
        return ""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def only_waits(function: Any) -> bool:
    """Return True for functions of Python's own that wait, and so can't be what broke a capture."""
    owner = _owner(function)
    return (getattr(function, "__module__", None) if owner is None else owner) in _WAITING


def _owner(function: Any) -> str | None:
    """Return the module of the type that a method belongs to; None if it is not a method."""
    owner = getattr(function, "__objclass__", None)
    if owner is None:
        instance = getattr(function, "__self__", None)
        owner = None if instance is None or isinstance(instance, ModuleType) else type(instance)
    return None if owner is None else str(owner.__module__)


def in_progress(frame: FrameType) -> tuple[str, object] | None:
    """Return the call that a frame of another thread is in; None if that can't break a capture.

    That is what is called, as the source has it, and the value of the first argument, or of what a method
    belongs to: "" and None if they are not known, and for an operator.
    """
    code, at = frame.f_code, frame.f_lasti
    if at < 0:
        return None
    instruction = dis.opname[code.co_code[at]]
    if instruction in _IDLE:
        return None
    expression = _expression(code, at)
    if instruction not in _CALLS or not isinstance(expression, ast.Call):
        return "", None
    if only_waits(_value(expression.func, frame)):
        return None
    return ast.unparse(expression.func), _value(_first(expression), frame)


def first_argument(source: str, name: str, frame: FrameType) -> object:
    """Return the first argument of the call of that name in a line, as far as the frame still has it."""
    try:
        nodes = ast.walk(ast.parse(source))
    except SyntaxError:  # a part of a statement
        return None
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
            return _value(_first(node), frame)
    return None


def _first(call: ast.Call) -> ast.AST | None:
    """Return the first argument of a call, or what its method belongs to."""
    first = call.args[0] if call.args else getattr(call.func, "value", None)
    return first.args[0] if isinstance(first, ast.Call) and len(first.args) == 1 else first  # int(stream)


def line_of(code: CodeType, offset: int) -> int:
    """Return the line of an instruction."""
    return _position(code, offset)[0] or code.co_firstlineno


def _position(code: CodeType, offset: int) -> tuple[int | None, int | None, int | None, int | None]:
    return next(islice(code.co_positions(), offset // 2, None), (None,) * 4)


def _expression(code: CodeType, offset: int) -> ast.expr | None:
    """Return the expression that an instruction evaluates, from the source."""
    first, last, begin, end = _position(code, offset)
    if first is None or last is None or begin is None or end is None:
        return None
    lines = [linecache.getline(code.co_filename, line).encode() for line in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        return ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _value(expression: ast.AST | None, frame: FrameType) -> Any:
    """Return the value of a name with dots, without running any code; None if that is not possible."""
    if isinstance(expression, ast.Name):
        for names in (frame.f_locals, frame.f_globals, vars(builtins)):
            if expression.id in names:
                return names[expression.id]
    elif isinstance(expression, ast.Attribute):
        owner = _value(expression.value, frame)
        if type(owner).__module__ in _WAITING:  # a lock, a socket, ...
            return getattr(owner, expression.attr, None)
        try:
            return object.__getattribute__(owner, "__dict__").get(expression.attr)
        except AttributeError:
            return None
    return None
