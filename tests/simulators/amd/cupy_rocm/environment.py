"""CuPy for ROCm with what it needs beside AMD's runtime, in a folder of its own; nothing is installed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from ...debian import digest, locked, unfinished_for
from .. import runtime as of_runtime
from ..packages import CACHE, unpack
from ..runtime import SYSTEM, compiler

VERSION = "7.2"
"""The version of AMD's runtime that this CuPy is for."""

CUPY = "cupy-rocm-7-0==14.2.0"
HEADERS = ("libamdhip64-dev", "librocthrust-dev")
"""Debian's packages of the headers that CuPy's kernels include."""

TIMEOUT = 900
NOT_FOUND = "No matching distribution found for cupy"

STUBS = """
#include <stdio.h>
#include <stdlib.h>
#define STUB(name) \\
    void name(void) { \\
        fputs("CuPy calls " #name ", of a library that is not there\\n", stderr); \\
        abort(); \\
    }
"""


def missing() -> str:
    """Say in a clause why this CuPy can't be tried here; nothing, if it can."""
    if shutil.which("readelf") is None:
        return "there is no readelf to find out what CuPy needs"
    return of_runtime.missing(VERSION)


def make(runtime: Path) -> Path:
    """Return a folder with CuPy, the headers of its kernels, and stubs of the libraries of mathematics.

    Parameters
    ----------
    runtime : Path
        What `simulators.amd.runtime.build` returned for `VERSION`.

    Raises
    ------
    LookupError
        CuPy can't be had here: why, and what would help.
    RuntimeError
        Debian no longer has the headers, or a tool fails in another way.
    """
    folder = CACHE / f"cupy-{digest(str(CACHE), sys.version, CUPY, *HEADERS, STUBS)}"
    with locked(folder):
        if not folder.exists():
            with unfinished_for(folder) as unfinished:
                _install(unfinished / "packages")
                unpack(VERSION, HEADERS, unfinished / "headers")
                _make_stubs(unfinished, (runtime / "root").resolve() / SYSTEM)
                _make_hipcc(unfinished / "bin" / "hipcc", folder / "headers" / "usr/include")
    return folder


def environment(runtime: Path, cupy: Path, **variables: str) -> dict[str, str]:
    """Return an environment for a Python that `simulators.amd.runtime.command` starts.

    The kernels that CuPy compiles stay in the cache, with their twins.
    """
    makers = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("device.h", "twins.py")]
    kernels = CACHE / f"kernels-{digest(CUPY, *makers)}"
    kernels.mkdir(exist_ok=True)
    env = of_runtime.environment(runtime)
    return env | {
        "ACCELERATOR_GRAPH_TEST_SIMULATOR": "cupy_rocm",
        "CUPY_CACHE_DIR": str(kernels),
        "LD_LIBRARY_PATH": str(cupy / "lib"),
        "PATH": os.pathsep.join((str(cupy / "bin"), env.get("PATH", os.defpath))),
        "PYTHONPATH": os.pathsep.join((env["PYTHONPATH"], str(cupy / "packages"))),
        "SOFTWARE_CUPY_HEADERS": os.pathsep.join(
            (str(cupy / "headers/usr/include"), str(runtime / "root/usr/include"))
        ),
        "SOFTWARE_HSA_TWINS": str(kernels),
        **variables,
    }


def _install(packages: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    try:
        _run(*pip, "--no-deps", "--only-binary=:all:", "--target", str(packages), CUPY)
    except RuntimeError as error:
        if NOT_FOUND not in str(error):
            raise
        raise LookupError(f"pip finds no {CUPY} for this Python") from error


def _make_stubs(folder: Path, system: Path) -> None:
    """Compile a function for each that CuPy imports from a library that is not there."""
    gone: set[str] = set()
    there: set[str] = set()
    wanted: set[str] = set()
    for module in (folder / "packages").glob("**/*.so"):
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", _run("readelf", "-d", str(module))))
        lacking = {name for name in needed if not (system / name).exists()}
        if lacking:
            gone |= lacking
            there |= needed - lacking
            wanted |= _symbols("--undefined-only", module)
    for name in there:
        wanted -= _symbols("--defined-only", system / name)
    wanted = {name for name in wanted if not name.startswith(("Py", "_Py", "_ITM_", "__gmon_start__"))}
    (folder / "lib").mkdir()
    source, made = folder / "lib" / "stubs.c", folder / "lib" / "libstubs.so"
    source.write_text(STUBS + "".join(f"STUB({name})\n" for name in sorted(wanted)), encoding="utf-8")
    cxx = compiler()
    assert cxx is not None
    _run(cxx, "-x", "c", "-w", "-fno-builtin", "-shared", "-fPIC", str(source), "-o", str(made))
    for name in gone:
        (folder / "lib" / name).symlink_to(made.name)


def _symbols(which: str, library: Path) -> set[str]:
    return set(re.findall(r" [A-Za-z] (\w+)(?:@\S+)?$", _run("nm", "-D", which, str(library)), re.MULTILINE))


def _make_hipcc(path: Path, headers: Path) -> None:
    """Write a script for the one question that CuPy has for hipcc: where the headers are."""
    path.parent.mkdir()
    search = shlex.join((str(compiler()), "-I", str(headers), "-x", "c++", "-E", "-v", "/dev/null"))
    path.write_text(
        f'#!/bin/sh\n[ "$*" = "-x hip -E -v /dev/null" ] || exit 1\nexec {search}\n', encoding="utf-8"
    )
    path.chmod(0o755)


def _run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} fails:\n{done.stderr[-4000:]}")
    return done.stdout
