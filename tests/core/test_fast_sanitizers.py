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

from core.fast_bench import FAST_C, flattened
from lanes import lack
from processes import execute
from simulators.compiling import compiler

ROOT = Path(__file__).resolve().parents[2]
MEMORY = "address,undefined"
THREADS = "thread"
TESTS = (
    "test_fast",
    "test_fast_calls",
    "test_fast_guard",
    "test_fast_objects",
    "test_fast_patches",
    "test_fast_watch",
)
LIBRARIES = {MEMORY: "libasan.so", THREADS: "libtsan.so"}


def environment(sanitizer: str, log: Path) -> dict[str, str]:
    """Return what a Python needs that loads code compiled with a sanitizer; skip the test if it can't."""
    if compiler() is None:
        lack("there is no C compiler to build the fast path with")
    if not sanitizer:
        return {"FAST_FLAGS": "-Wno-error -O0"}  # compiled faster
    asked = [str(compiler()), f"-print-file-name={LIBRARIES[sanitizer]}"]
    library = execute(asked).stdout.strip()
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
        idle = execute([*fixed, sys.executable, "-c", ""], env=env)
        if idle.returncode:
            lack(f"the {sanitizer} sanitizer can't run here: {idle.stderr.strip().partition(chr(10))[0]}")
    try:
        done = execute(
            [*fixed, *command, *chosen, *(f"tests/core/{name}.py" for name in TESTS)],
            cwd=ROOT,
            env=env,
            timeout=30 + int(variables.get("FAST_SECONDS", "60")),
            merged=True,
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
    """What is changed in a function of `_fast.c`; by default some test fails then, without a sanitizer."""

    function: str
    old: str
    new: str
    sanitizer: str = ""
    said: str = "failed|Fatal Python error|hangs"


LAUNCHED = r"return code == 0"
FREED = "char *gone = malloc(8); free(gone); code += *(volatile char *)gone * 0;"

BUGS = {
    "keeps the interpreter's lock": Bug("launch_now", r"Py_(BEGIN|END)_ALLOW_THREADS", ""),
    "ignores the code": Bug("launch", LAUNCHED, "return 1"),
    "launches into a capture of others": Bug("launch_now", r"\|\| status != 0", ""),
    "takes no lock": Bug("launch_now", r"!launch_reserve\(self\)", "0"),
    "launches for a former owner": Bug("launch_reserve", r"lock->owner == self->owner", "1"),
    "shares a lock that a thread has": Bug("lock_share", r"self->holder == 0", "1"),
    "shares a lock for ever": Bug("lock_share_no_more", r"self->shared--", "(void)0"),
    "waits for nobody who shares a lock": Bug("lock_enter", r"lock_is_shared\(self\)", "0"),
    "waits for ever for who shares a lock": Bug("lock_enter", r"PyErr_CheckSignals\(\) < 0\) \{", "0) {"),
    "ignores the latest run": Bug("launch_reserve", r"\*self->latest == self->stream", "1"),
    "can't be interrupted": Bug("lock_enter", r"-1, 1\)", "-1, 0)"),
    "ignores captures": Bug("launcher_call", r"PyDict_GET_SIZE\(self->captures\) == 0", "1"),
    "lets the target go too early": Bug(
        "launcher_call", r"done = launch\(target\);", r"Py_DECREF(target); \g<0> Py_INCREF(target);"
    ),
    "never lets the target go": Bug("launcher_call", r"Py_DECREF\(target\);", ""),
    "hides from the collector": Bug("references_traverse", r"Py_VISIT\(\*.*\);", ";"),
    "forgets weak references": Bug("references_dealloc", r"PyObject_ClearWeakRefs\(op\);", ";"),
    "keeps what it refers to": Bug("references_dealloc", r"Py_CLEAR\(.*\);", ";"),
    "follows the stream before": Bug("follower_find", r"self->last = number;", ""),
    "a method trusts its first argument": Bug(
        "method_call", r"PyObject_TypeCheck\([^()]*(\([^()]*\))?[^()]*\)", "1"
    ),
    "a method keeps what it calls": Bug("method_call", r"Py_DECREF\(held\);", ""),
    "takes another shape for alike": Bug("layout_is_of", r"memcmp\(here.shape[^()]*\) != 0", "0"),
    "takes other strides for alike": Bug("layout_is_of", r"memcmp\(here.strides[^()]*\) != 0", "0"),
    "takes other elements for alike": Bug("layout_is_of", r"\|\| here.bits != mine->bits", ""),
    "takes another device for alike": Bug("layout_is_of", r"\|\| here.device_id != mine->device_id", ""),
    "takes one array twice": Bug("guard_fits", r"if \(arrays\[before\] == value\)", "if (0)"),
    "ignores gradients": Bug("guard_fits", r"grad != each->requires_grad", "0"),
    "ignores modes": Bug("guard_fits", r"answered\(self->modes\)", "1"),
    "trusts a dead reference": Bug("refers_to", r"&& object != Py_None", ""),
    "repeats what has moved": Bug("guard_launch", r"call->moved \? target->patches : NULL", "NULL"),
    "repeats while the stream captures": Bug("target_is_ready", r"&& status == 0", ""),
    "repeats without the lock": Bug("guard_launch", r"PyThread_acquire_lock\([^()]*\)", "1"),
    "a guard lets its launcher go too early": Bug("guard_call", r"target_hold\(&target\);", ""),
    "a guard hides from the collector": Bug(
        "guard_traverse", r"Py_VISIT\(self->parameters\[i\]\.value\);", ""
    ),
    "a broken capture goes on": Bug("watch_goes_on", r"&& state == self->active", ""),
    "asks with the interpreter's lock": Bug("call_each", r"Py_(BEGIN|END)_ALLOW_THREADS", ""),
    "asks on after an error": Bug("objects_ask", r"break;", ";"),
    "has a number for everything": Bug("numbers_find", r"number == 0", "0"),
    "has too little room for answers": Bug(
        "call_each", r"\(NULL, count \* row\)", "(NULL, count * (row > 0))", MEMORY, "heap-buffer-overflow"
    ),
    "reads what was freed": Bug("launch", LAUNCHED, rf"{FREED} \g<0>", MEMORY, "heap-use-after-free"),
    "overflows": Bug(
        "launch",
        LAUNCHED,
        r"volatile int most = 0x7fffffff; most += 1 + code; \g<0>",
        MEMORY,
        "integer overflow",
    ),
    "races": Bug(
        "launch_now",
        r"if \(!self->shared\)",
        r"static volatile long count; count++; \g<0>",
        THREADS,
        "data race",
    ),
}


def planted(source: str, bug: Bug) -> str:
    """Return the source with a bug in one of its functions, in which the place must be found."""
    function = re.search(rf"^{bug.function}\(.*?^}}$", source, re.MULTILINE | re.DOTALL)
    assert function, f"there is no function {bug.function}"
    body, count = re.subn(bug.old, bug.new, function[0])
    assert count, f"{bug.function} has no {bug.old}"
    return source.replace(function[0], body)


@pytest.mark.needs("rest")
@pytest.mark.parametrize("name", BUGS)
def test_bug_is_found(tmp_path: Path, name: str) -> None:
    bug = BUGS[name]
    copy = tmp_path / "_fast.c"
    source = flattened(FAST_C)
    copy.write_text("#include <stdlib.h>\n" + planted(source, bug), encoding="utf-8")
    status, said = run(bug.sanitizer, tmp_path, "-x", FAST_SOURCE=str(copy), FAST_SECONDS="2")
    assert status != 0, said
    assert re.search(bug.said, said), said
    assert "ERROR at setup" not in said, said
