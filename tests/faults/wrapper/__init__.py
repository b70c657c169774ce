"""AMD's HIP runtime on the CPU, with a library before it: it makes calls fail, and counts what lives."""

from __future__ import annotations

from pathlib import Path

from processes import execute
from simulators.amd import runtime
from simulators.compiling import FLAGS, compiler
from simulators.cuda.build import SOURCES as DRIVER
from simulators.debian import digest, locked, unfinished_for

HERE = Path(__file__).resolve().parent
CACHE = HERE / "__pycache__"
SOURCES = (HERE / "wrapper.c", DRIVER / "faults.c")
WRAPPER = "libfaults.so"
"""Not what it stands for: a process has one copy of the runtime, by the names of the files in it."""

NAME = "libamdhip64.so"


def build(version: str) -> Path:
    """Return a folder that is to AMD's runtime what `simulators.amd.runtime.build` returns, and can fail.

    Raises
    ------
    RuntimeError
        The runtime can't be had, or the compiler refuses the sources.
    """
    plain = runtime.build(version)
    cc = compiler()
    if cc is None:
        raise RuntimeError("there is no C compiler to build the faults of AMD's runtime with.")
    texts = (path.read_text(encoding="utf-8") for path in (*SOURCES, Path(__file__)))
    folder = CACHE / f"wrapper-{digest(cc, str(plain), *texts)}"
    CACHE.mkdir(exist_ok=True)
    with locked(folder):
        if not folder.exists():
            with unfinished_for(folder) as unfinished:
                (unfinished / "lib").mkdir()
                (unfinished / "root").symlink_to((plain / "root").resolve())
                for library in (plain / "lib").iterdir():
                    if library.name != NAME:
                        (unfinished / "lib" / library.name).symlink_to(library.resolve())
                _compile(cc, (plain / "lib" / NAME).resolve(), unfinished / "lib" / WRAPPER)
                (unfinished / "lib" / NAME).symlink_to(WRAPPER)
    return folder


def _compile(cc: str, real: Path, made: Path) -> None:
    command = [
        *(cc, *FLAGS, f"-I{DRIVER}", f'-DREAL_LIBRARY="{real}"'),
        *(*map(str, SOURCES), "-Wl,--no-as-needed,--allow-shlib-undefined", str(real)),
        *("-ldl", "-o", str(made)),
    ]
    done = execute(command, timeout=120)
    if done.returncode:
        raise RuntimeError(f"the faults of AMD's runtime do not compile:\n{done.stderr}")
