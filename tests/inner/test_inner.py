"""Tests in a process of their own: what fails, ends the process or hangs there is reported for what it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import inner
import processes
from processes import ROOT, execute

PLANTED = """
import ctypes, os, signal, threading
import pytest

@pytest.fixture
def broken():
    raise LookupError("no such fixture")

def test_before(): pass
def test_fails(): assert [1, 2] == [1, 3], "they differ"
def test_has_no_fixture(broken): pass
def test_between(): pass
def test_segmentation_fault(): ctypes.string_at(0)
def test_abort(): os.abort()
def test_exit(): os._exit(0)
def test_hangs(): threading.Event().wait()
@pytest.mark.skip(reason="not today")
def test_skipped(): pass
@pytest.mark.parametrize("n", range(3))
def test_behind(n): pass
"""
OUTER = """
import os, sys
import pytest

def test_outer(run_inner):
    run_inner([sys.executable], {path!r}, env=os.environ, timeout=5)

def test_beside(): pass
"""
FAILED = {
    "test_fails": "AssertionError: they differ",
    "test_has_no_fixture": "LookupError: no such fixture",
    "test_segmentation_fault": "the process ended by SIGSEGV in this test",
    "test_abort": "the process ended by SIGABRT in this test",
    "test_exit": "the process ended with status 0 in this test",
    "test_hangs": "the process hangs in this test",
}


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    path = tmp_path / "test_planted.py"
    path.write_text(PLANTED, encoding="utf-8")
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere other signals end a process, and none hangs")
@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "xdist"])
def test_each_failure_is_reported_under_its_name(
    planted: Path, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    outer = tmp_path / "test_outer.py"
    outer.write_text(OUTER.format(path=str(planted)), encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "conftest"]
    options = (*workers, "-p", "no:cacheprovider", "--color=no", str(outer))
    env |= {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))), "COLUMNS": "200"}
    said = execute([*command, *options], env=env, merged=True).stdout
    summary = dict(re.findall(r"^FAILED .*test_planted.py::(\w+) - (.*)$", said, re.MULTILINE))
    assert summary == FAILED, said
    assert "7 failed, 1 passed" in said
    assert "::test_outer - Failed: 5 passed in the process" in said, said
    assert re.search(r"^cpu +12 tests", said, re.MULTILINE), said
    for words in ("E   assert [1, 2] == [1, 3]", "in string_at", "in test_abort", "in test_hangs"):
        assert words in said, said


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os; os._exit(3)", "status 3, outside of a test"),
        ("import atexit, os; atexit.register(os._exit, 4)\ndef test(): pass", "status 4, outside of a test"),
    ],
)
def test_a_process_that_ends_outside_of_a_test(
    planted: Path, tmp_path: Path, code: str, message: str
) -> None:
    planted.write_text(code, encoding="utf-8")
    with pytest.raises(AssertionError, match=message):
        inner.run([sys.executable], tmp_path / "log", str(planted), env=os.environ)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the use of the CPU is not known")
def test_a_process_that_waits_for_the_cpu_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "usage", lambda process: {process: 1})  # as if it were given none
    code = "import time; start = time.monotonic()\nwhile time.monotonic() < start + 2: pass\ntime.sleep(9)"
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        execute([sys.executable, "-c", code], timeout=0.5)
    assert time.monotonic() > began + 2


def test_a_module_that_can_not_be_imported(planted: Path, tmp_path: Path) -> None:
    planted.write_text("import no_such_module", encoding="utf-8")
    [failure] = inner.run([sys.executable], tmp_path / "log", str(planted), env=os.environ).failures
    assert "No module named 'no_such_module'" in failure.message


def test_no_test_at_all_is_no_success(planted: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="status 5, outside of a test"):
        inner.run([sys.executable], tmp_path / "log", str(planted), "-k", "nothing", env=os.environ)


def test_not_every_test_may_end_the_process(planted: Path, tmp_path: Path) -> None:
    code = "import os, pytest\n@pytest.mark.parametrize('n', range(20))\ndef test(n): os._exit(1)"
    planted.write_text(code, encoding="utf-8")
    failures = inner.run([sys.executable], tmp_path / "log", str(planted), env=os.environ).failures
    assert len(failures) == inner.MOST_ENDS + 1
    assert "not run" in failures[-1].text
