"""Compile the libraries of a simulator, once for each state of their sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from processes import execute

ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    *("-std=gnu11", "-O2", "-g", "-ffp-contract=off", "-Wall", "-Wextra"),
    *("-fPIC", "-shared", "-fvisibility=hidden", "-pthread"),
)


def compiler() -> str | None:
    """Return the system's C compiler, if there is one."""
    return shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc") or shutil.which("clang")


def compiled(
    name: str,
    libraries: Mapping[str, Path],
    *options: str,
    depends: Iterable[Path] = (),
    finish: Callable[[Path], object] = lambda folder: None,
) -> Path:
    """Return a folder with libraries, each compiled from the C files of a folder.

    The options go to the compiler, `depends` are other files that the libraries depend on, and `finish` does
    what else is to be done in the folder. A RuntimeError says why there is none.
    """
    cc = compiler()
    if cc is None:
        raise RuntimeError("there is no C compiler to build the simulators with; install one as cc.")
    sources = sorted({path for folder in libraries.values() for path in folder.glob("*.[ch]")})
    digest = hashlib.sha256("\0".join((cc, *FLAGS, *options)).encode())
    for path in (*sources, *depends, Path(__file__)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    cache = next(iter(libraries.values())) / "__pycache__"
    result = cache / f"{name}-{digest.hexdigest()[:16]}"
    if result.exists():
        return result
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as unfinished:
        made = Path(unfinished) / name
        for place, folder in libraries.items():
            (made / place).parent.mkdir(parents=True, exist_ok=True)
            files = map(str, sorted(folder.glob("*.c")))
            done = execute([cc, *FLAGS, *options, *files, "-o", str(made / place), "-ldl"], timeout=120)
            if done.returncode:
                raise RuntimeError(f"{place} does not compile:\n{done.stderr}")
        finish(made)
        try:
            made.rename(result)
        except OSError:
            if not result.exists():  # another process was as fast
                raise
    return result
