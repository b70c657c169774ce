"""Compile the software driver, once for each state of its sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
ROOT = SOURCES.parents[2]
CACHE = SOURCES / "__pycache__"
FLAGS = (
    *("-std=gnu11", "-O2", "-g", "-ffp-contract=off", "-Wall", "-Wextra"),
    *("-fPIC", "-shared", "-fvisibility=hidden", "-pthread"),
)
LIBRARIES = {"libcuda.so.1": SOURCES, "libnvrtc.so.13": SOURCES / "nvrtc"}
OTHER_NAMES = {"libnvrtc.so.12": "libnvrtc.so.13"}


def compiler() -> str | None:
    """Return the system's C compiler, if there is one."""
    return shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc") or shutil.which("clang")


def build(*flags: str) -> Path:
    """Return a folder with the driver and a compiler of kernels for it.

    Parameters
    ----------
    *flags : str
        More flags for the compiler, such as ``-fsanitize=address``.

    Raises
    ------
    RuntimeError
        There is no compiler, or it refuses the sources.
    """
    cc = compiler()
    if cc is None:
        raise RuntimeError("there is no C compiler to build the software driver with; install one as cc.")
    folder = CACHE / f"software-cuda-{_digest(cc, *flags)}"
    if folder.exists():
        return folder
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as unfinished:
        made = Path(unfinished) / "libraries"
        made.mkdir()
        for name, sources in LIBRARIES.items():
            _compile(cc, *FLAGS, *flags, *map(str, sorted(sources.glob("*.c"))), "-o", str(made / name))
        for name, target in OTHER_NAMES.items():
            (made / name).symlink_to(target)
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():  # another process was as fast
                raise
    return folder


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return an environment for a Python that is to find the libraries of `folder` first."""
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    paths = (str(folder), *filter(None, [env.get("LD_LIBRARY_PATH")]))
    env["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    env["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    env["ACCELERATOR_GRAPH_TEST_SIMULATOR"] = "cuda"
    return env | variables


def _compile(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"the software driver does not compile:\n{done.stderr}")


def _digest(*facts: str) -> str:
    digest = hashlib.sha256("\0".join((*facts, *FLAGS)).encode())
    for path in sorted((*SOURCES.rglob("*.[ch]"), Path(__file__))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
