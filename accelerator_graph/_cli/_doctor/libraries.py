"""The drivers' libraries: which files of each can be found, and which a process has loaded."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from .finding import Finding

LIBRARIES = {"libcuda.so.1": "CUDA's driver", "libamdhip64.so": "AMD's HIP runtime"}
"""What a file is whose name begins so."""


def loaded() -> list[str]:
    """Return the files of these libraries that this process has loaded."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    files = {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count(" ") >= 5 and "/" in line}
    return sorted(each for each in files if kind(each))


def kind(file: str) -> str:
    """Return which of the libraries a file is; an empty string if it is none."""
    name = os.path.basename(file)
    # The driver's file may be libcuda.so.580.95.05, to which libcuda.so.1 is a link.
    if re.fullmatch(r"libcuda\.so\.\d[\d.]*", name):
        return "libcuda.so.1"
    return "libamdhip64.so" if re.fullmatch(r"libamdhip64\.so[\d.]*", name) else ""


def found() -> dict[str, list[str]]:
    """Return the different files of each library in all places where a loader or a binding may look."""
    files: dict[str, dict[str, str]] = {library: {} for library in LIBRARIES}
    for path in candidates():
        library = kind(path)
        if library and os.path.exists(path):
            files[library].setdefault(os.path.realpath(path), path)
    return {library: list(each.values()) for library, each in files.items() if each}


def candidates() -> Iterator[str]:
    """Yield files that may be such a library: as the loader would look, then as the bindings would."""
    if sys.platform != "linux":
        return
    folders = [each for each in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if each]
    yield from in_folders(folders)
    yield from in_loader_cache()
    roots = (os.environ.get("ROCM_PATH"), os.environ.get("ROCM_HOME"), "/opt/rocm")
    yield from in_folders(f"{root}/lib" for root in roots if root)
    for distribution in importlib.metadata.distributions():
        for file in distribution.files or ():
            if kind(str(file)):
                yield str(distribution.locate_file(file))


def in_folders(folders: Iterable[str]) -> Iterator[str]:
    """Yield the paths of all files in some folders."""
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        yield from (os.path.join(folder, name) for name in names)


def in_loader_cache() -> Iterator[str]:
    """Yield the files that the system's loader knows, of this processor's kind."""
    for command in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            done = subprocess.run([command, "-p"], capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        for line in done.stdout.splitlines():
            if "x86-64" in line or "AArch64" in line:
                yield line.rpartition(" => ")[2]
        return


def findings(used: Iterable[str]) -> Iterator[Finding]:
    """Yield what is wrong with the libraries, given those that the trials and the frameworks have loaded."""
    used = {os.path.realpath(each) for each in used}
    for library, files in found().items():
        if len(files) < 2:
            continue
        listed = ", ".join(
            f"{each} (used here)" if os.path.realpath(each) in used else each for each in files
        )
        yield Finding(
            library,
            f"There are {len(files)} different copies of {LIBRARIES[library]}: {listed}.",
            ADVICE[library],
        )


ADVICE = {
    "libcuda.so.1": (
        "The copy that is used has to fit the driver in the kernel. If it does not, take its folder out of "
        "LD_LIBRARY_PATH, or put the folder of the driver's own copy first."
    ),
    "libamdhip64.so": (
        "A process may use only one, since a copy crashes on the streams of another. Import the package that "
        "brings its own before anything else uses hip-python: the backend then uses that copy."
    ),
}
