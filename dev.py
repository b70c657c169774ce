#!/usr/bin/env python3
"""Set up what the project needs beside this file, then run the demo or the tests.

python3 dev.py demo [...]   the demo; more arguments go to `python -m accelerator_graph demo`
python3 dev.py test [...]   ruff, mypy, then pytest on all cores; more arguments go to pytest,
                            such as tests/core, or -n 0 for one process
python3 dev.py test --cuda-python "12.9.*" [...]
python3 dev.py test --hip-python "7.2.*" [...]
                            pytest alone, with that version of the binding
python3 dev.py docs [--serve]
                            the site, into site/; or served at an address that it prints

The environment is made once, and again when pyproject.toml, setup.py, the C source or the Python version has
changed.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 (said before anything newer is used)
    sys.stderr.write(f"dev.py: this is Python {platform.python_version()}; run it with 3.11 or newer.\n")
    sys.exit(2)

ROOT = Path(__file__).resolve().parent
LINT = (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"])
WHEELS = {  # where the bindings can be had
    "cuda": {("Linux", "x86_64"), ("Linux", "aarch64"), ("Windows", "AMD64")},
    "hip": {("Linux", "x86_64")},
}


def environment(extra: str = "", version: str = "") -> Path:
    """Return the Python of a complete environment, made first if it is missing or outdated.

    With all bindings in their newest versions, or with one extra of pyproject.toml: a binding in the version
    that is named, or docs.
    """
    folder = ROOT / "-".join(filter(None, (".venv", extra, version.rstrip(".*"))))
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    here = (platform.system(), platform.machine())
    extras = [extra] if extra else ["benchmark", *(name for name, places in WHEELS.items() if here in places)]
    wanted = ["-e", f"{ROOT}[{','.join(extras if extra == 'docs' else [*extras, 'test'])}]"]
    if version:
        wanted.append(f"{extra}-python=={version}")
    elif "cuda" in extras and find_library("nvcuda" if sys.platform == "win32" else "cuda"):
        wanted.append("nvidia-cuda-nvrtc>=13,<14")  # the demo compiles its kernel where there is a GPU
    if not extra and any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))):
        wanted.append("playwright>=1.49")  # opens the pages of graphs in it
    if {"cuda", "hip"} <= set(extras):
        wanted.append("nvidia-cuda-runtime>=13,<14")  # the headers for tests/simulators/hip_on_cuda

    built_from = [ROOT / "pyproject.toml", *ROOT.glob("setup.py"), *ROOT.glob("accelerator_graph/**/*.[ch]")]
    sources = (path.read_text(encoding="utf-8") for path in sorted(built_from))
    facts = [*sources, sys.version, str(ROOT), *wanted]
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    stamp = folder / "complete"
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return python

    print(f"dev.py: setting up {folder.name}, once; this takes a minute or two ...", flush=True)
    try:
        run(sys.executable, "-m", "venv", "--clear", folder)
        # Python compiles what is imported, which is a small part
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", *wanted)
    except SystemExit:
        shutil.rmtree(folder, ignore_errors=True)
        sys.stderr.write("dev.py: the set-up failed, see above; nothing of it is left behind.\n")
        raise
    stamp.write_text(digest, encoding="utf-8")  # last, so that a half-made environment has none
    return python


def run(*command: str | Path, cwd: Path | None = None) -> None:
    """Run a command; if it fails, leave with its exit status."""
    sys.stdout.flush()
    status = subprocess.call([str(part) for part in command], cwd=cwd)
    if status:
        sys.exit(status if status > 0 else 128 - status)


def pytest(python: Path, *arguments: str) -> None:
    """Run pytest with a process more than there are cores, since many tests wait."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of the tests' processes compiles all anew
    parallel = () if "--pdb" in arguments else ("-n", str(min((os.cpu_count() or 1) + 1, 8)))
    run(python, "-m", "pytest", *parallel, *arguments, cwd=ROOT)


def main(command: str = "", *arguments: str) -> None:
    """Run the command that was asked for."""
    if command == "docs":
        python = environment("docs")
        run(python, "docs/tools/generate.py", cwd=ROOT)
        how = ("serve",) if arguments == ("--serve",) else ("build", "--strict", *arguments)
        run(python, "-m", "mkdocs", *how, cwd=ROOT)
    elif command == "demo":
        run(environment(), "-m", "accelerator_graph", "demo", *arguments)
    elif command == "test" and arguments[:1] in (("--cuda-python",), ("--hip-python",)) and arguments[1:]:
        binding = arguments[0].split("-")[2]
        pytest(environment(binding, arguments[1]), *arguments[2:])
    elif command == "test":
        python = environment()
        for step in LINT:
            print("$", *step)
            run(python, "-m", *step, cwd=ROOT)
        pytest(python, *arguments)
    else:
        sys.stderr.write(__doc__)
        sys.exit(0 if command in ("-h", "--help") else 2)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
