"""Twins of CuPy's kernels: the host's compiler makes them from the source that AMD's compiler was given.

A plug-in of pytest, for a process with CuPy on AMD's runtime.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

import cupy
from cupy.cuda import compiler
from cupy.cuda._compiler_cache import DiskKernelCacheBackend

from ..runtime import compiler as find_compiler

HERE = Path(__file__).resolve().parent
FLAGS = (
    "-std=c++17",
    "-O1",
    "-w",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-D__HIPCC__=1",
)
KERNEL = re.compile(rb"(?<=\0)(\w+)\.kd(?=\0)")
"""A kernel's descriptor, as code objects name it."""


def digest_of(binary: bytes) -> str:
    """Return the digest of a code object under which the library below AMD's runtime looks for its twins."""
    digest = 0xCBF29CE484222325
    for byte in binary.rstrip(b"\0"):
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{digest:016x}"


class KernelsWithTwins(DiskKernelCacheBackend):  # type: ignore[misc]
    """CuPy's cache of kernels, which has twins for those that it keeps."""

    def save(self, name: str, cubin: bytes, source: str) -> None:
        make(cubin, source)
        super().save(name, cubin, source)


def make(binary: bytes, source: str) -> None:
    """Compile the twins of a code object's kernels.

    Raises
    ------
    RuntimeError
        The compiler refuses the source.
    """
    folder = Path(os.environ["SOFTWARE_HSA_TWINS"])
    kernels = {name.decode() for name in KERNEL.findall(binary)}
    together = "true" if "__syncthreads" in source else "false"
    twins = "".join(f"TWIN({name}, {together})\n" for name in sorted(kernels))
    headers = [str(HERE), str(Path(cupy.__file__).parent / "_core/include")]
    headers += os.environ["SOFTWARE_CUPY_HEADERS"].split(os.pathsep)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        text, made = Path(place, "twins.cpp"), Path(place, "twins.so")
        text.write_text(f'#include "device.h"\n{source}\n{twins}', encoding="utf-8")
        cxx = find_compiler()
        assert cxx is not None
        done = subprocess.run(
            [cxx, *FLAGS, *(f"-I{path}" for path in headers), str(text), "-o", str(made)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"the twins of {', '.join(sorted(kernels))} can't be made:\n{done.stderr[:4000]}"
            )
        made.rename(folder / f"{digest_of(binary)}.so")


compiler._set_kernel_cache_backend(KernelsWithTwins())
