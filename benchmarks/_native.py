"""The references: the loops in C, and the smallest callable in C, compiled when they are needed."""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import shutil
import subprocess
import sysconfig
import tempfile
from ctypes import c_int, c_long, c_void_p
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
POINTERS = ctypes.POINTER(c_void_p)
SIGNATURES = {
    "loop": (c_void_p, c_void_p, c_void_p, c_long),
    "loop_synchronized": (c_void_p, c_void_p, c_void_p, c_void_p, c_long),
    "loop_set": (*(c_void_p,) * 7, c_void_p, POINTERS, c_long),
    "loop_over": (c_void_p, POINTERS, POINTERS, c_long, c_long, c_long),
    "loop_in_threads": (c_void_p, POINTERS, POINTERS, c_int, c_long),
}


@cache
def _folder():
    folder = tempfile.mkdtemp(prefix="accelerator-graph-benchmarks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def compiled(target, *sources, flags=()):
    """Compile C sources into a shared library and return its path."""
    compiler = os.environ.get("CC") or "cc"
    if shutil.which(compiler.split()[0]) is None:
        raise RuntimeError(f"there is no C compiler {compiler!r}; install one, or name it in CC.")
    path = _folder() / target
    command = [
        *compiler.split(),
        "-O2",
        "-shared",
        "-fPIC",
        "-pthread",
        *flags,
        *map(str, sources),
        "-o",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(map(os.path.basename, sources))} does not compile: {done.stderr.strip()}"
        )
    return path


@cache
def _library():
    return ctypes.CDLL(str(compiled("loop.so", HERE / "loop.c", HERE / "threads.c")))


def run(function, *args):
    """Call one of the loops in C; return how many ns it took."""
    native = getattr(_library(), function)
    native.restype, native.argtypes = ctypes.c_double, SIGNATURES[function]
    taken = native(*args)
    if taken < 0:
        raise RuntimeError(f"{function}: the driver answered {int(-taken)}.")
    return taken


def pointers(numbers):
    """Return a C array of handles."""
    return (c_void_p * len(numbers))(*numbers)


@cache
def _minimal():
    source = HERE / "_minimal.c"
    if not source.exists():
        raise RuntimeError("benchmarks/_minimal.c is not there.")
    include = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(include, "Python.h")):
        raise RuntimeError("Python.h is not installed; install the headers of Python.")
    path = compiled(f"_minimal{sysconfig.get_config_var('EXT_SUFFIX')}", source, flags=(f"-I{include}",))
    spec = importlib.util.spec_from_file_location("_minimal", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Minimal


def minimal(launch, executable, stream):
    """Return the smallest callable in C that launches; it takes no arguments."""
    return _minimal()(launch, executable, stream)
