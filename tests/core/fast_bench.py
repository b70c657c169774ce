"""What the tests of the fast path start from: `_fast.c` as it is now, above launch functions that watch."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import sys
import sysconfig
import tempfile
import threading
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import pytest

from lanes import lack
from processes import execute
from simulators.compiling import compiler

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "FAST_SOURCE"
"""The environment's variable that names another file than `_core/fast/_fast.c`."""

FAST_C = ROOT / "accelerator_graph" / "_core" / "fast" / "_fast.c"
CACHE = Path(__file__).resolve().parent / "__pycache__"
FLAGS = ("-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers")
MORE_FLAGS = "FAST_FLAGS"
"""The one that has more flags for the compiler, such as ``-fsanitize=address``."""
TIMEOUT = int(os.environ.get("FAST_SECONDS", "60"))

LAUNCHES = r"""
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
    _Atomic(int) alive, inside, most;
    _Atomic(long) calls;
    _Atomic(uintptr_t) stream;
    int code, blocks;
    sem_t reached, opened;
} Executable;

_Atomic(long) of_the_dead; /* launches of what was destroyed before they were through */

Executable *make(int code, int blocks)
{
    Executable *made = calloc(1, sizeof *made);
    made->alive = 1;
    made->code = code;
    made->blocks = blocks;
    sem_init(&made->reached, 0, 0);
    sem_init(&made->opened, 0, 0);
    return made;
}

/* With `keep` it stays in memory, so that a launch that comes too late can be counted. */
void destroy(Executable *gone, int keep)
{
    gone->alive = 0;
    if (!keep)
        free(gone);
}

static int in_time(sem_t *semaphore)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += SECONDS;
    while (sem_timedwait(semaphore, &end))
        if (errno != EINTR)
            return 0;
    return 1;
}

int launch(void *executable, void *stream)
{
    Executable *self = executable;
    int code = self->code, inside = ++self->inside;
    if (inside > self->most)
        self->most = inside;
    self->stream = (uintptr_t)stream;
    self->calls++;
    if (self->blocks) {
        sem_post(&self->reached);
        if (!in_time(&self->opened))
            code = -1;
    }
    if (!self->alive)
        of_the_dead++;
    self->inside--;
    return code;
}

int reached(Executable *self) { return in_time(&self->reached); }
void open_one(Executable *self) { sem_post(&self->opened); }
long calls(Executable *self) { return self->calls; }
int most(Executable *self) { return self->most; }
uintptr_t stream(Executable *self) { return self->stream; }
long launched_dead(void) { return of_the_dead; }

static int current_code;
static void *current_context;

void go_to(int code, void *context)
{
    current_code = code;
    current_context = context;
}

int current(void **context)
{
    *context = current_context;
    return current_code;
}

static int capturing_code, capturing_status;
static void *asked_about;

void capture(int code, int status)
{
    capturing_code = code;
    capturing_status = status;
}

int capturing(void *stream, int *status)
{
    asked_about = stream;
    if (capturing_status >= 0)
        *status = capturing_status;
    return capturing_code;
}

uintptr_t asked(void) { return (uintptr_t)asked_about; }
"""


def compiled(name: str, source: str, suffix: str, *flags: str) -> Path:
    """Compile a shared object, once for each state of source and flags."""
    cc = compiler()
    if cc is None:
        lack("there is no C compiler to build the fast path with")
        raise AssertionError
    more = shlex.split(os.environ.get(MORE_FLAGS, ""))
    command = [cc, *FLAGS, *flags, *more, "-fPIC", "-shared", "-pthread"]
    facts = "\0".join((sys.version, sysconfig.get_paths()["include"], *command, source))
    path = CACHE / f"{name}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}{suffix}"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            (code, made) = Path(folder, f"{name}.c"), Path(folder, "made")
            code.write_text(source, encoding="utf-8")
            command += [str(code), "-o", str(made)]
            done = execute(command, timeout=120)
            assert done.returncode == 0, (done.returncode, done.stderr)
            made.replace(path)
    return path


def flattened(file: Path) -> str:
    """Return a C file with its own headers in the place of their names."""
    return re.sub(
        r'^#include "(\w+\.h)"$',
        lambda found: (FAST_C.parent / found[1]).read_text("utf-8"),
        file.read_text("utf-8"),
        flags=re.MULTILINE,
    )


def extension() -> Path:
    if sys.platform != "linux":
        pytest.skip("the launch functions of these tests are for Linux")
    file = os.environ.get(SOURCE) or FAST_C
    source = flattened(Path(file))
    include = sysconfig.get_paths()["include"]
    if not Path(include, "Python.h").exists():
        lack("the headers of Python are not installed")
    return compiled("_fast", source, sysconfig.get_config_var("EXT_SUFFIX"), f"-I{include}")


def load(path: Path):
    loader = ExtensionFileLoader("accelerator_graph._core._fast", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Answered(Exception):
    pass


def failed(code):
    raise Answered(code)


class Owner:
    """Destroys its executable as soon as nobody holds it."""

    def __init__(self, vendor, code=0, blocks=0, keep=1):
        self.vendor, self.keep = vendor, keep
        self.executable = vendor.make(code, blocks)

    def __del__(self):
        self.vendor.destroy(self.executable, self.keep)


class Ordinary:
    """The way through Python: notes that it was taken."""

    def __init__(self, then=lambda: None):
        self.calls = 0
        self.then = then

    def __call__(self):
        self.calls += 1
        return self.then()


def lock_of(fast, owner):
    lock = fast.Lock()
    lock.owner = owner
    return lock


def launch_of(fast, owner, *, stream=7, lock=None, latest=0, shared=False):
    lock = lock_of(fast, owner) if lock is None else lock
    if not hasattr(lock, "owner"):
        lock.owner = owner
    what = owner.vendor.address, owner.executable, stream, owner, failed
    return fast.Launch(*what, lock, latest, shared=shared)


def launcher_of(fast, owner, ordinary, captures=None, **how):
    launcher = fast.Launcher({} if captures is None else captures, ordinary)
    launcher.target = launch_of(fast, owner, **how)
    return launcher


def never():
    raise AssertionError("the ordinary way was taken")


class Background(threading.Thread):
    """A call in another thread, which must come to its end."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call, self.error = call, None
        self.start()

    def run(self):
        try:
            self.call()
        except BaseException as error:
            self.error = error

    def over(self):
        self.join(TIMEOUT)
        assert not self.is_alive(), "it does not end"
        if self.error is not None:
            raise self.error
