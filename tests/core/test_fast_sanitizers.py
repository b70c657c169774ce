"""The tests of the fast path under the compiler's sanitizers, and on copies of it with a bug each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import lack
from simulators.cuda.build import compiler

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "accelerator_graph" / "_core/_fast.c"
MEMORY = "address,undefined"
THREADS = "thread"
LIBRARIES = {MEMORY: "libasan.so", THREADS: "libtsan.so"}


def environment(sanitizer: str, log: Path) -> dict[str, str]:
    """Return what a Python needs that loads code compiled with a sanitizer; skip the test if it can't."""
    if compiler() is None:
        lack("there is no C compiler to build the fast path with")
    if not sanitizer:
        return {"FAST_FLAGS": "-Wno-error"}
    asked = [str(compiler()), f"-print-file-name={LIBRARIES[sanitizer]}"]
    library = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if not os.path.isabs(library):
        lack(f"the compiler has no {LIBRARIES[sanitizer]}, which could be preloaded")
    return {
        "FAST_FLAGS": f"-Wno-error -fsanitize={sanitizer} -fno-sanitize-recover=all -fno-omit-frame-pointer",
        "LD_PRELOAD": library,
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": f"detect_leaks=0:abort_on_error=1:log_path={log}",
        "TSAN_OPTIONS": f"exitcode=66:log_path={log}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={log}",
    }


def run(sanitizer: str, tmp_path: Path, *chosen: str, **variables: str) -> tuple[int, str]:
    """Run the tests of the fast path; return the exit status, and what was said."""
    env = {**os.environ, **environment(sanitizer, tmp_path / "log"), **variables}
    env["PYTHONPATH"] = os.pathsep.join((str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])))
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "--color=no"]
    fixed = ["setarch", "-R"] if sanitizer == THREADS and shutil.which("setarch") else []
    if fixed and subprocess.run([*fixed, "true"], capture_output=True, check=False).returncode:
        fixed = []  # not allowed here, and needed only where addresses are very random
    if sanitizer:
        idle = subprocess.run(
            [*fixed, sys.executable, "-c", ""], env=env, capture_output=True, text=True, check=False
        )
        if idle.returncode:
            lack(f"the {sanitizer} sanitizer can't run here: {idle.stderr.strip().partition(chr(10))[0]}")
    try:
        done = subprocess.run(
            [*fixed, *command, *chosen, "tests/core/test_fast.py"],
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=6 * int(variables.get("FAST_SECONDS", "60")),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, "it hangs"
    logs = (path.read_text(errors="replace") for path in sorted(tmp_path.glob("log*")))
    return done.returncode, "\n".join((done.stdout, *logs))


@pytest.mark.parametrize("sanitizer", [MEMORY, THREADS])
def test_nothing_is_found(tmp_path: Path, sanitizer: str) -> None:
    status, said = run(sanitizer, tmp_path)
    assert status == 0, said
    found = re.search(r"(\d+) passed", said)
    assert found, said
    assert int(found[1]) >= 30, said


class Bug(NamedTuple):
    """What is changed in `_core/_fast.c`; by default some test fails then, without a sanitizer."""

    old: str
    new: str
    sanitizer: str = ""
    said: str = "failed|Fatal Python error|hangs"


RUNS = "done = launch(target);"
RUNS_C = "    code = self->function(self->executable, self->stream);\n"
CALLS = "    PyObject *answer = PyObject_CallNoArgs(launcher);\n"
LETS_THROUGH = "    if (code == 0)\n        return 1;\n"
USES_FREED = "    char *gone = malloc(8);\n    free(gone);\n    code += *(volatile char *)gone * 0;\n"
OVERFLOWS = "    volatile int most = 0x7fffffff;\n    most += 1 + code;\n"
UNLOCKS = """    if (self->lock != NULL)
        PyThread_release_lock(self->lock->lock);
"""

CLEARS, LAST = "        PyObject_ClearWeakRefs(op);\n", "    Py_XDECREF(self->"

BUGS = {
    "keeps the interpreter's lock": Bug(
        RUNS_C + UNLOCKS, f"    Py_BLOCK_THREADS {RUNS_C}    Py_UNBLOCK_THREADS {UNLOCKS}"
    ),
    "ignores the code": Bug("    if (code == 0)\n", "    if (1 || code == 0)\n"),
    "loses the error": Bug("PyErr_Format(PyExc_SystemError", "return 1; PyErr_Format(PyExc_SystemError"),
    "ignores captures": Bug(" && PyDict_GET_SIZE(self->captures) == 0)", ")"),
    "lets the target go too early": Bug(RUNS, f"Py_DECREF(target); {RUNS} Py_INCREF(target);"),
    "never lets the target go": Bug("Py_DECREF(target); /*", "(void)0; /*"),
    "leaks what was before": Bug("    Py_XDECREF(before);\n", ""),
    "leaks a launcher": Bug(f"{CALLS}    Py_DECREF(launcher);\n", CALLS),
    "keeps the lock": Bug(f"{UNLOCKS}    Py_END_ALLOW_THREADS\n", "    Py_END_ALLOW_THREADS\n"),
    "keeps the lock for another stream": Bug(
        "        return 1;\n    PyThread_release_lock(self->lock->lock);\n", "        return 1;\n"
    ),
    "ignores the latest run": Bug("self->latest == NULL || *self->latest == self->stream", "1"),
    "launches into captures": Bug(" || status != 0))", "))"),
    "takes a failed question for an answer": Bug(
        "self->capturing(self->stream, &status) != 0 || status",
        "(self->capturing(self->stream, &status), 0) || status",
    ),
    "takes no lock": Bug("self->lock != NULL && !launch_reserve(self)", "0 && !launch_reserve(self)"),
    "shuts itself out": Bug("    lock_set_holder(self, PyThread_get_thread_ident());", "    (void)0;"),
    "can't be interrupted": Bug("self->lock, -1, 1)", "self->lock, -1, 0)"),
    "follows the one before": Bug("    self->last = number;\n", ""),
    "never lets the latest go": Bug("    Py_XDECREF(other);\n", ""),
    "hides from the collector": Bug("    Py_VISIT(self->target);\n", ""),
    "forgets weak references": Bug(f"{CLEARS}{LAST}target);", f"        (void)0;\n{LAST}target);"),
    "a method forgets them": Bug(f"{CLEARS}{LAST}slot);", f"        (void)0;\n{LAST}slot);"),
    "a method borrows": Bug(
        "PyObject_CallNoArgs(held);\n        int called = held != Py_None;\n        Py_DECREF(held);",
        "(Py_DECREF(held), PyObject_CallNoArgs(held));\n        int called = held != Py_None;",
    ),
    "a method keeps": Bug("        Py_DECREF(held);\n", ""),
    "a method forgets its arguments": Bug("PyVectorcall_NARGS(count) == 1 && ", ""),
    "a method trusts": Bug("PyObject_TypeCheck(args[0], PyDescr_TYPE(self->slot))", "1"),
    "takes arguments": Bug("PyVectorcall_NARGS(count) == 0 && ", ""),
    "reads what was freed": Bug(LETS_THROUGH, USES_FREED + LETS_THROUGH, MEMORY, "heap-use-after-free"),
    "overflows": Bug(LETS_THROUGH, OVERFLOWS + LETS_THROUGH, MEMORY, "integer overflow"),
    "races": Bug(UNLOCKS, f"    static volatile long count; count++;\n{UNLOCKS}", THREADS, "data race"),
}


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_found(tmp_path: Path, name: str) -> None:
    bug = BUGS[name]
    source = SOURCE.read_text(encoding="utf-8")
    assert source.count(bug.old) == 1, f"{bug.old!r} is there {source.count(bug.old)} times"
    copy = tmp_path / "_fast.c"
    copy.write_text("#include <stdlib.h>\n" + source.replace(bug.old, bug.new), encoding="utf-8")
    status, said = run(bug.sanitizer, tmp_path, "-x", FAST_SOURCE=str(copy), FAST_SECONDS="2")
    assert status != 0, said
    assert re.search(bug.said, said), said
    assert "ERROR at setup" not in said, said
