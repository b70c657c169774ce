"""Build what AMD's HIP runtime runs on without an AMD GPU, and start Python on it."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..debian import digest, locked, unfinished_for
from .packages import CACHE, RELEASES, fetch, lacking, release_of

SOURCES = Path(__file__).resolve().parent / "hsa"
ROOT = SOURCES.parents[3]
FLAGS = (
    *("-std=c++20", "-O2", "-g", "-ffp-contract=off", "-Wall", "-Wextra"),
    *("-fPIC", "-fvisibility=hidden", "-pthread"),
)
LINKING = ("-shared", "-Wl,-soname,libhsa-runtime64.so.1", f"-Wl,--version-script={SOURCES / 'exports.map'}")
SYSTEM = Path("usr/lib/x86_64-linux-gnu")

FACTS_OF_PYTHON = """
import json, site, sys, sysconfig
packages = site.getsitepackages() + ([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])
print(json.dumps({
    "executable": sys._base_executable,
    "libraries": sysconfig.get_config_var("LIBDIR"),
    "packages": packages,
    "place": sysconfig.get_path("purelib", "venv", {"base": "."}),
}))
"""


def compiler() -> str | None:
    """Return the system's C++ compiler, if there is one."""
    return shutil.which(os.environ.get("CXX") or "g++") or shutil.which("c++") or shutil.which("clang++")


def missing(*versions: str) -> str:
    """Say in a clause why these versions of AMD's runtime, or all, can't be had; nothing, if they can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "AMD's runtime on the CPU is for Linux on x86-64"
    if compiler() is None:
        return "there is no C++ compiler to build the library below AMD's runtime with"
    if shutil.which("nm") is None:
        return "there is no nm to find out what AMD's runtime needs"
    return next(filter(None, map(lacking, versions or RELEASES)), "")


def build(version: str, *flags: str) -> Path:
    """Return a folder with AMD's runtime of that version and the library that it drives a GPU through.

    Parameters
    ----------
    version : str
        One of `packages.RELEASES`.
    *flags : str
        More flags for the compiler, such as ``-fsanitize=address``.

    Raises
    ------
    RuntimeError
        The runtime can't be had, or the compiler refuses the sources.
    """
    cxx = compiler()
    if cxx is None:
        raise RuntimeError("there is no C++ compiler to build the library below AMD's runtime with.")
    root = fetch(version)
    folder = CACHE / f"hsa-{version}-{_state(root, cxx, *flags)}"
    with locked(folder):
        if not folder.exists():
            with unfinished_for(folder) as unfinished:
                libraries = unfinished / "lib"
                libraries.mkdir()
                hip = root / SYSTEM / _library_of(version)
                rtc = hip.with_name(hip.name.replace("amdhip64", "hiprtc"))
                (libraries / "libamdhip64.so").symlink_to(hip)
                (libraries / "libhiprtc.so").symlink_to(rtc if rtc.exists() else hip)  # 6.4: one library
                (unfinished / "root").symlink_to(root)
                _compile(cxx, [*FLAGS, *flags, f"-I{root / 'usr/include'}"], hip, libraries)
    return folder


def command(folder: Path, python: str = sys.executable) -> list[str]:
    """Return how to start Python on the runtime of `folder`, with all packages that `python` has.

    The runtime's C library is newer than most systems', so its own loader starts the interpreter. The
    command is a script at the place of an environment's interpreter: Python takes it for `sys.executable`,
    and so child processes are on the runtime as well.

    Parameters
    ----------
    folder : Path
        What `build` returned.
    python : str
        The interpreter, of a virtual environment or not.
    """
    known = json.loads(_run(python, "-c", FACTS_OF_PYTHON))
    environment = folder / f"python-{digest(json.dumps(known), Path(__file__).read_text(encoding='utf-8'))}"
    script = environment / "bin" / "python3"
    with locked(environment):
        if not environment.exists():
            with unfinished_for(environment) as unfinished:
                (unfinished / "bin").mkdir()
                place = unfinished / known["place"]
                place.mkdir(parents=True)
                home = Path(known["executable"]).parent
                settings = f"home = {home}\ninclude-system-site-packages = false\n"
                (unfinished / "pyvenv.cfg").write_text(settings, encoding="utf-8")
                adding = "".join(f"import site; site.addsitedir({path!r})\n" for path in known["packages"])
                (place / "packages.pth").write_text(adding, encoding="utf-8")
                start = unfinished / "bin" / "python3"
                start.write_text(_start(folder, script, known), encoding="utf-8")
                start.chmod(0o755)
                (unfinished / "bin" / "python").symlink_to("python3")
    return [str(script)]


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return an environment for a Python that `command` starts."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HIP_", "ROCR_"))}
    env["ROCM_PATH"] = str(folder)
    env["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    env["ACCELERATOR_GRAPH_TEST_SIMULATOR"] = "amd"
    return env | variables


def _start(folder: Path, script: Path, known: dict[str, str]) -> str:
    root = (folder / "root").resolve()
    path = os.pathsep.join(map(str, (folder / "lib", root / SYSTEM, known["libraries"])))
    start = (root / SYSTEM / "ld-linux-x86-64.so.2", "--argv0", script, "--library-path")
    return (
        "#!/bin/sh\n"
        f"export ROCM_PATH={shlex.quote(str(folder))}\n"  # where hip-python 10 looks first
        f'exec {shlex.join(map(str, start))} "${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}"{shlex.quote(path)} '
        f'{shlex.quote(known["executable"])} "$@"\n'
    )


def _library_of(version: str) -> str:
    name, _, number = release_of(version).runtime.rpartition("-")
    return f"{name}.so.{number}"


def _compile(cxx: str, flags: list[str], hip: Path, libraries: Path) -> None:
    """Compile the sources, and a stub for each function that AMD's runtime wants and they don't have."""
    wanted = sorted(set(re.findall(r" (hsa_\w+)", _run("nm", "-D", "--undefined-only", str(hip)))))
    stubs = libraries / "stubs.cpp"
    stubs.write_text(
        "\n".join(
            [
                'extern "C" int software_hsa_unknown_call(const char *name);',
                "#define STUB(name) \\",
                '    extern "C" __attribute__((weak, visibility("default"))) int name() { \\',
                "        return software_hsa_unknown_call(#name); \\",
                "    }",
                *(f"STUB({name})" for name in wanted),
                "",
            ]
        ),
        encoding="utf-8",
    )
    sources = [*sorted(SOURCES.glob("*.cpp")), stubs]
    objects = [libraries / f"{source.stem}.o" for source in sources]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        commands = [
            (cxx, *flags, "-c", str(source), "-o", str(made))
            for source, made in zip(sources, objects, strict=True)
        ]
        list(pool.map(lambda command: _run(*command), commands))
    _run(cxx, *flags, *LINKING, *map(str, objects), "-o", str(libraries / "libhsa-runtime64.so.1"))
    for path in (stubs, *objects):
        path.unlink()


def _state(root: Path, *facts: str) -> str:
    files = (*sorted(SOURCES.iterdir()), Path(__file__), root / "packages")
    return digest(str(CACHE), *facts, *(f"{path.name}\0{path.read_text(encoding='utf-8')}" for path in files))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} fails:\n{done.stderr}")
    return done.stdout
