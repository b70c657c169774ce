#!/usr/bin/env python3
"""Check a plug-in as its users would meet it: installed into a clean environment, on a runtime of its own.

python3 plugins/check.py opencl [--runtime pocl|pocl-off|intel|both] [...]
python3 plugins/check.py sycl [...]

Runs the plug-in's tests, the conformance command and the demo; with more arguments, pytest alone, with them.
The environment is made once for each plug-in and runtime, and again when a pyproject.toml, the runtime or the
Python version has changed. The sources are installed again when they have changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from simulators import debian  # noqa: E402 (the path is needed first)

PLUGINS = ROOT / "plugins"
CACHE = PLUGINS / "__pycache__"
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
POCL = (  # without what every system has: the C and C++ libraries, libz, liblzma
    *("libpocl2", "libpocl2-common", "libllvm15", "libclang-cpp15", "libclang-common-15-dev"),
    *("libhwloc15", "libudev1", "libz3-4", "libedit2", "libbsd0", "libmd0", "libxml2", "libicu72"),
    *("libtinfo6", "libffi8"),
)
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "setup.py", "*/**/*.py", "*/**/*.pyi", "*/**/py.typed")
COMPILED = ("*/**/*.[ch]", "*/**/*.cpp", "*/**/*.hpp")


class Runtime(NamedTuple):
    """What a plug-in needs beside Python packages that it depends on."""

    requirements: tuple[str, ...]
    """Distributions of the Python package index that contain it."""
    variables: Callable[[Path], Mapping[str, str]]
    """Return the environment variables that lead to it, for a virtual environment."""
    built_with: tuple[str, ...] = ()
    """Distributions that the plug-in is compiled with. They are installed first, and the build uses them."""


def pocl_from_debian(environment: Path) -> dict[str, str]:
    """PoCL 3.1, with command buffers of version 0.9.0."""
    root = CACHE / f"pocl-{digest(*POCL)[:16]}"
    with debian.locked(root):
        if not root.exists():
            print("check.py: downloading PoCL from Debian, once ...", flush=True)
            with debian.unfinished_for(root) as unfinished:
                debian.unpack(unfinished, ("bookworm",), POCL, alone=True)
    libraries = [root / each / "x86_64-linux-gnu" for each in ("usr/lib", "lib")]
    return {
        "OCL_ICD_VENDORS": vendors(environment, libraries[0] / "libpocl.so.2"),
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
    }


def pocl_with_command_buffers_off(environment: Path) -> dict[str, str]:
    """PoCL 3.1, used as if it had no command buffers."""
    return {**pocl_from_debian(environment), "ACCELERATOR_GRAPH_OPENCL_COMMAND_BUFFERS": "0"}


def intel_opencl(environment: Path) -> dict[str, str]:
    """Intel's runtime for the CPU, with command buffers of version 1.0.0."""
    library = environment / "lib" / "libintelocl.so"
    return {"OCL_ICD_VENDORS": vendors(environment, library), "LD_LIBRARY_PATH": str(library.parent)}


def both_opencls(environment: Path) -> dict[str, str]:
    """PoCL 3.1 and Intel's runtime at once: two devices with different versions."""
    found = [runtime(environment) for runtime in (pocl_from_debian, intel_opencl)]
    return {**found[0], "LD_LIBRARY_PATH": ":".join(each["LD_LIBRARY_PATH"] for each in found)}


def intel_sycl(environment: Path) -> dict[str, str]:
    """Intel's SYCL runtime, on its OpenCL runtime for the CPU."""
    return {"OCL_ICD_FILENAMES": str(environment / "lib" / "libintelocl.so")}


def vendors(environment: Path, *libraries: Path) -> str:
    """Return a folder in which an OpenCL loader finds these libraries, and none of the system's."""
    folder = environment / "vendors"
    folder.mkdir(exist_ok=True)
    for library in libraries:
        (folder / f"{library.name}.icd").write_text(f"{library}\n", encoding="utf-8")
    return str(folder)


INTEL = ("intel-opencl-rt==2026.2.0", "intel-cmplr-lib-rt==2026.2.0")
RUNTIMES: dict[str, dict[str, Runtime]] = {  # the first of each plug-in is the default
    "opencl": {
        "pocl": Runtime((), pocl_from_debian),
        "pocl-off": Runtime((), pocl_with_command_buffers_off),
        "intel": Runtime(INTEL, intel_opencl),
        "both": Runtime(INTEL, both_opencls),
    },
    "sycl": {
        "intel": Runtime(INTEL, intel_sycl, ("setuptools>=77", "intel-sycl-rt==2026.2.0", *INTEL)),
    },
}


def environment(plugin: str, name: str) -> Path:
    """Return a virtual environment with the plug-in installed, made first if it is missing or outdated."""
    runtime = RUNTIMES[plugin][name]
    folder = ROOT / f".venv-{plugin}-{name.removesuffix('-off')}"
    package = PLUGINS / f"accelerator-graph-{plugin}"
    python = folder / "bin" / "python"
    isolation = ("--no-build-isolation",) if runtime.built_with else ()
    projects = [each / "pyproject.toml" for each in (ROOT, package)]
    packages = (*runtime.requirements, *runtime.built_with)
    state = digest(sys.version, str(ROOT), *packages, *texts(projects))
    code = digest(*texts(sources(ROOT)), *texts(sources(package)))
    if recorded(folder / "complete") != state:
        print(f"check.py: setting up {folder.name}, once; this takes some minutes ...", flush=True)
        run(sys.executable, "-m", "venv", "--clear", folder)
        if runtime.built_with:
            run(python, *PIP, *runtime.built_with)
        install(python, package, *isolation, *runtime.requirements)
        (folder / "complete").write_text(state, encoding="utf-8")
    elif recorded(folder / "installed") != code:
        install(python, package, *isolation, "--no-deps", "--force-reinstall")
    (folder / "installed").write_text(code, encoding="utf-8")
    return folder


def install(python: Path, package: Path, *more: str) -> None:
    """Install the library and the plug-in."""
    # From copies, so that the build leaves nothing beside the sources, and finds nothing old there.
    with tempfile.TemporaryDirectory() as temporary:
        copies = [copy(each, Path(temporary) / each.name) for each in (ROOT, package)]
        wanted = [str(copies[0]), f"{copies[1]}[test]"]
        run(python, *PIP, *wanted, *more)


def copy(project: Path, target: Path) -> Path:
    """Copy the sources of a distribution."""
    for path in sources(project):
        there = target / path.relative_to(project)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, there)
    return target


def sources(project: Path) -> list[Path]:
    """Return the files of a distribution that are installed or compiled."""
    package = next(project.glob("accelerator_graph*/__init__.py")).parent.name
    patterns = (pattern.replace("*/", f"{package}/", 1) for pattern in (*SOURCES, *COMPILED))
    return sorted({path for pattern in patterns for path in project.glob(pattern)})


def texts(paths: Iterable[Path]) -> list[str]:
    """Return the contents of files."""
    return [path.read_text(encoding="utf-8") for path in paths]


def recorded(stamp: Path) -> str:
    """Return what a stamp holds; nothing if there is none."""
    return stamp.read_text(encoding="utf-8") if stamp.exists() else ""


def digest(*facts: str) -> str:
    """Return a number for some texts."""
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


def run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """Run a command; if it fails, leave with its exit status."""
    print("$", *command, flush=True)
    status = subprocess.call([str(part) for part in command], cwd=cwd, env=env)
    if status:
        sys.exit(status if status > 0 else 128 - status)


def main() -> None:
    """Check the plug-in that was named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plugin", choices=RUNTIMES)
    parser.add_argument("--runtime", help="by default the first that is listed above")
    chosen, more = parser.parse_known_args()
    runtimes = RUNTIMES[chosen.plugin]
    name = chosen.runtime or next(iter(runtimes))
    if name not in runtimes:
        parser.error(f"--runtime must be one of {', '.join(runtimes)}, not {name!r}.")
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        parser.error("the runtimes are for Linux on x86-64.")
    folder = environment(chosen.plugin, name)
    chosen_runtime = {"ACCELERATOR_GRAPH_PLUGIN_RUNTIME": name, **runtimes[name].variables(folder)}
    variables = {**os.environ, **chosen_runtime}
    variables.pop("PYTHONPATH", None)  # it would lead to the sources
    package = PLUGINS / f"accelerator-graph-{chosen.plugin}"
    tests = ("-c", package / "pyproject.toml", package / "tests")
    # Elsewhere, so that the installed packages are tested and not the sources.
    run(folder / "bin" / "pytest", *tests, *more, cwd=folder, env=variables)
    if not more:
        for command in (("conformance", chosen.plugin), ("demo", chosen.plugin)):
            run(folder / "bin" / "python", "-m", "accelerator_graph", *command, cwd=folder, env=variables)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
