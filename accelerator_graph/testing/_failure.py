"""What is shown of a failure: values of assert statements, its message, and the calls that led to it."""

from __future__ import annotations

import ast
import linecache
import reprlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from traceback import walk_tb
from types import CodeType, FrameType, ModuleType
from typing import Any

from .._interpreter import text_of
from ._work import applied

KIT = __name__.rpartition(".")[0]
AROUND_RULES = tuple(
    f"{KIT}.{name}"
    for name in ("_conformance.", "_tools.", "_case.Watch", "_case.Case.run", "_case.Case._run")
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


def place(stack: Iterable[tuple[FrameType, int]]) -> str:
    """Return the innermost call of a stack, outermost first, that is neither the kit's nor Python's own."""
    found = ""
    for frame, line in stack:
        module = str(frame.f_globals.get("__name__", ""))
        if not found or not (
            f"{module}.".startswith(f"{KIT}.") or module.partition(".")[0] in sys.stdlib_module_names
        ):
            found = f"{frame.f_code.co_qualname} ({module}, line {line})"
    return found


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


LEFT, RIGHT, FAILED = "@left", "@right", "@failed"
"""Names that no source can have."""

OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


BY_PYTEST = "pytest" in sys.modules
"""Whether pytest does it."""


def ask_pytest(*packages: str) -> None:
    """Let pytest, if it is there, show the values of assert statements in these packages."""
    if BY_PYTEST:
        import pytest

        pytest.register_assert_rewrite(*packages)


@contextmanager
def showing_values(*packages: str) -> Iterator[None]:
    """Import modules so that their assert statements show the values that they compare.

    Applies to these packages, and all that is in them, if they are imported in the ``with`` block, and if
    pytest does not do it.
    """
    if BY_PYTEST:
        yield
        return

    class Finder(PathFinder):
        @classmethod
        def find_spec(
            cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            if not f"{fullname}.".startswith(tuple(f"{package}." for package in packages)):
                return None
            spec = super().find_spec(fullname, path, target)
            if spec is not None and isinstance(spec.loader, SourceFileLoader):
                spec.loader = Loader(spec.loader.name, spec.loader.path)
            return spec

    sys.meta_path.insert(0, Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(Finder)


class Loader(SourceFileLoader):
    """Loads a module with its assert statements rewritten. Writes no file of bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the rewritten code."""
        path = self.get_filename(fullname)
        tree = Rewriter().visit(ast.parse(self.get_data(path), path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, with the function that makes its errors."""
        vars(module)[FAILED] = failed
        super().exec_module(module)


class Rewriter(ast.NodeTransformer):
    """Replaces ``assert a == b`` by an ``if`` that raises an error with the values of a and b."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        """Return the statements that take the place of an assert statement."""
        test, message = node.test, node.msg or ast.Constant(None)
        comparison: list[ast.expr] = []
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            [right] = test.comparators
            pairs = ((LEFT, test.left), (RIGHT, right))
            both = [ast.NamedExpr(ast.Name(name, ast.Store()), value) for name, value in pairs]
            test = ast.Compare(both[0], test.ops, [both[1]])
            names = [ast.Name(name, ast.Load()) for name, _ in pairs]
            comparison = [names[0], ast.Constant(OPERATORS[type(test.ops[0])]), names[1]]
        text = ast.Constant(ast.unparse(node.test))
        error = ast.Call(ast.Name(FAILED, ast.Load()), [text, message, *comparison], [])
        check: list[ast.stmt] = [ast.If(ast.UnaryOp(ast.Not(), test), [ast.Raise(error)], [])]
        if comparison:  # else the frame would keep what was compared alive
            targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in (LEFT, RIGHT)]
            check.append(ast.Assign(targets, ast.Constant(None)))
        return [ast.copy_location(statement, node) for statement in check]


def failed(text: str, message: object, *comparison: Any) -> AssertionError:
    """Make the error for a condition that does not hold; `comparison` has both values, and the operator."""
    start = "" if message is None else f"{message}: "
    if not comparison:
        return AssertionError(f"{start}`{text}` does not hold")
    left, operator, right = comparison
    end = f"{shown(left)} {operator} {shown(right)}{pieces(text, left, right)}"
    return AssertionError(f"{start}`{text}` does not hold: {end}")


def shown(value: object) -> str:
    """Return a value in a few words."""
    return repr(str(value)) if isinstance(value, StrEnum) else short.repr(value)


def pieces(text: str, left: object, right: object) -> str:
    """Return how often the work was done, and how often it should have been, if that is known."""
    if "cell" not in text or not ("applied(" in text or text.endswith("== 0")):
        return ""
    counts = [RESULTS.get(value) if type(value) is int else None for value in (left, right)]
    return "" if None in counts else f" (pieces of work done: {counts[0]}, not {counts[1]})"


RESULTS = {applied(times): times for times in range(100)}
short = reprlib.Repr()
short.maxstring = short.maxother = 200
short.maxlist = short.maxtuple = short.maxset = short.maxdict = 20
