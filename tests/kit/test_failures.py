"""What an author sees of a broken rule where there is no pytest."""

from __future__ import annotations

import ast
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from accelerator_graph.testing._failure import FAILED, Rewriter, failed, failure_text
from processes import execute
from threads import in_thread

ROOT = Path(__file__).resolve().parents[2]

WITHOUT_PYTEST = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
finders = list(sys.meta_path)
import accelerator_graph as ag
from accelerator_graph.testing import BackendConformance
from accelerator_graph.testing._failure import failure_text
from accelerator_graph.testing.works.host import HostWork
from kit.planted.replaying import ReplaysTwice
assert sys.meta_path == finders
ag.backends.register("planted", ReplaysTwice)
class Conformance(BackendConformance):
    def work(self):
        return HostWork("planted")
try:
    Conformance().test_each_replay_runs_the_work_once()
except AssertionError as error:
    print(failure_text(error))
"""


def test_values_calls_and_count_are_shown() -> None:
    done = execute([sys.executable, "-I", "-W", "error", "-c", WITHOUT_PYTEST])
    assert done.stderr == ""
    first, place, source = done.stdout.splitlines()
    assert first == (
        "AssertionError: `self.replayed(graph, cell) == applied(1)` does not hold: 4 == 1 "
        "(pieces of work done: 2, not 1)"
    )
    assert place.startswith("  accelerator_graph.testing.rules.capture, line ")
    assert place.endswith(", in CaptureRules.test_each_replay_runs_the_work_once")
    assert source == "    assert self.replayed(graph, cell) == applied(1)"


def run(source: str, **names: Any) -> None:
    tree = ast.fix_missing_locations(Rewriter().visit(ast.parse(source)))
    exec(compile(tree, "source", "exec"), {FAILED: failed, **names})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("assert a == 2", "`a == 2` does not hold: 1 == 2"),
        ("assert a in [], 'nothing'", "nothing: `a in []` does not hold: 1 in []"),
        ("assert not a", "`not a` does not hold"),
        ("assert a < 2 < a", "`a < 2 < a` does not hold"),
        ("for b in (1, 2):\n    assert a is b, b", "2: `a is b` does not hold: 1 is 2"),
        ("def f(x):\n    assert x >= a\nf(0)", "`x >= a` does not hold: 0 >= 1"),
    ],
)
def test_condition_and_values_are_in_the_message(source: str, message: str) -> None:
    with pytest.raises(AssertionError) as caught:
        run(source, a=1)
    assert str(caught.value) == message


def test_what_holds_is_evaluated_once_and_kept_by_nobody() -> None:
    class Thing:
        pass

    calls: list[weakref.ref[Thing]] = []

    def make() -> Thing:
        thing = Thing()
        calls.append(weakref.ref(thing))
        return thing

    source = """
def f():
    assert make() is not None
    return [each() for each in calls]
assert f() == [None]
"""
    run(source, make=make, calls=calls)
    assert len(calls) == 1


def test_causes_are_shown_once() -> None:
    def clean_up(times: int) -> None:
        try:
            raise KeyError("gone")
        finally:
            if times:
                clean_up(times - 1)

    def fail() -> str:
        try:
            try:
                clean_up(2)
            except KeyError as error:
                raise ValueError("it failed") from error
        except ValueError as error:
            return failure_text(error)

    # the exception that is being handled may be left over from an interrupt at every line, elsewhere
    lines = in_thread(fail).splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "ValueError: it failed",
        "raised from KeyError: 'gone'",
    ]
