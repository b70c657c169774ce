"""Compile the shim, once for each state of its sources and of CUDA's headers."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from simulators.compiling import ROOT, compiled, compiler

SOURCES = Path(__file__).resolve().parent
LIBRARIES = {"lib/libamdhip64.so": SOURCES, "lib/libhiprtc.so": SOURCES / "hiprtc"}
LEAST_CUDA = 13000


def headers() -> Path | None:
    """Return the folder with ``cuda.h`` of CUDA 13 or newer, if there is one."""
    for folder in _toolkits():
        with_header = folder / "include"
        try:
            text = (with_header / "cuda.h").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        version = re.search(r"^#define CUDA_VERSION (\d+)", text, re.MULTILINE)
        if version and int(version[1]) >= LEAST_CUDA:
            return with_header
    return None


def missing() -> str:
    """Say what the shim can't be built for; nothing, if it can."""
    if compiler() is None:
        return "there is no C compiler to build the shim with; install one as cc."
    if headers() is None:
        return (
            "the headers of CUDA 13 are neither in $CUDA_HOME nor in /usr/local/cuda nor in an installed "
            "wheel; install nvidia-cuda-runtime, version 13."
        )
    return ""


def build(*flags: str) -> Path:
    """Return a folder laid out like ``ROCM_PATH``, with the libraries; `flags` go to the compiler."""
    include = headers()
    if include is None:
        raise RuntimeError(missing())
    return compiled("hip-on-cuda", LIBRARIES, f"-I{include}", *flags, depends=[include / "cuda.h"])


def environment(folder: Path, base: Mapping[str, str] | None = None, **variables: str) -> dict[str, str]:
    """Return an environment for a Python whose hip-python is to find the libraries of `folder`.

    It starts from `base`, else from this process's own. That of the software CUDA driver makes the shim
    forward to that driver.
    """
    env = dict(os.environ if base is None else base)
    libraries = folder / "lib"
    paths = [str(libraries), env.get("LD_LIBRARY_PATH", ""), *map(str, _nvrtc_folders())]
    env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
    env["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    env["ROCM_PATH"] = str(folder)
    if "ACCELERATOR_GRAPH_TEST_SIMULATOR" in env:  # the software driver, and no GPU
        env["ACCELERATOR_GRAPH_TEST_SIMULATOR"] = "hip_on_cuda"
    return env | variables


def _toolkits() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    yield Path("/usr/local/cuda")
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels and wheels.submodule_search_locations) or ():
        yield from sorted(Path(folder).glob("cu[0-9]*"), reverse=True)
        yield Path(folder) / "cuda_nvrtc"


def _nvrtc_folders() -> Iterator[Path]:
    for folder in _toolkits():
        for name in ("lib64", "lib"):
            if any((folder / name).glob("libnvrtc.so*")):
                yield folder / name
