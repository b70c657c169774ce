"""Run everything on a machine with a GPU and write down what it showed; in parts if time is limited.

Needs no network and installs nothing: the tests, the demo and the benchmarks run from this checkout in the
interpreter that runs this script. Each part writes its section of DIR/NAME.md (by default
docs/verified/cuda.md). The file begins with the commit and the versions, and names the parts that have not
run yet; with another commit, other versions or another GPU it begins anew.
With --examples: only the examples. With --memory: only what graphs take. With --breaks: only captures with
breaks, beside their peers. With --gpus: only what needs two GPUs. With --backend hip the HIP backend and
hip-python drive the NVIDIA GPU through the shim in tests/simulators/hip_on_cuda.
Exit status 1 if a test or a command failed, or if the backend can't run here.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from gpu.parts import PARTS, SCOPE, Part
from processes import VARIABLES

PATHS = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS, **VARIABLES}
TIMEOUT = 400


def run(command: list[str]) -> tuple[int, str]:
    """Run a command; return the exit status and what it printed. `python` is this interpreter."""
    try:
        done = subprocess.run(
            [sys.executable if word == "python" else word for word in command],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return 124, f"{(error.stdout or b'').decode()}\nended after {TIMEOUT} s"
    except FileNotFoundError as error:
        return 127, str(error)
    return done.returncode, done.stdout


def line(*command: str) -> str:
    """Return what a command printed, without the white space around; nothing if it failed."""
    if not shutil.which(command[0]):
        return ""
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


# ---- the state that is verified -------------------------------------------------------------------


def commit() -> str:
    """Return the commit of the checkout, and whether it has changes beside its records."""
    if name := os.environ.get("ACCELERATOR_GRAPH_COMMIT"):
        return name
    changes = line("git", "status", "--porcelain", "--", ".", ":!docs/verified")
    return (line("git", "rev-parse", "HEAD") or "unknown") + (" with changes" if changes else "")


def installed() -> str:
    """Name the frameworks of this interpreter, with their versions."""
    found = {}
    for name in (
        "torch",
        "cupy-cuda13x",
        "cupy-cuda12x",
        "triton",
        "cuda-core",
        "mpi4py",
        "mpich",
        "cupti-python",
        "breakable-cuda-graphs",
    ):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return ", ".join(f"{name} {version}" for name, version in found.items()) or "nothing"


def state(what: str, backend: str) -> list[str]:
    """Return the lines that say what is verified, and where; they begin the record."""
    printed = line(sys.executable, "-m", "accelerator_graph", "info", "--json")
    backends = {each["name"]: each for each in json.loads(printed)["backends"]}
    if not backends[backend]["usable"]:
        sys.exit(f"nothing to verify: backend {backend!r} is not available: {backends[backend]['reason']}")
    gpus = line("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    return [
        f"# Verified on {gpus[0] if gpus else 'no GPU'}",
        "",
        "Written by `tests/gpu/verify.py`.",
        "",
        f"- commit: {commit()}",
        f"- Python {platform.python_version()}, {len(gpus)} GPU(s)",
        *(f"- {each['name']}: {each['versions']}" for each in backends.values() if each["usable"]),
        f"- installed beside them: {installed()}",
        *SCOPE.get(what, []),
    ]


# ---- sections ------------------------------------------------------------------------------------


def counts(report: Path) -> list[str]:
    """Return a table of the tests by file, and the reasons of those that were skipped."""
    files: dict[str, Counter[str]] = defaultdict(Counter)
    skipped: Counter[str] = Counter()
    for case in ET.parse(report).iter("testcase"):
        outcome = next((name for name in ("skipped", "failure", "error") if case.find(name) is not None), "")
        files[case.get("classname", "").split(".Test")[0]][outcome or "passed"] += 1
        if outcome == "skipped":
            skipped[case.find("skipped").get("message", "")] += 1
    return [
        "| file | passed | failed | skipped |",
        "| --- | --- | --- | --- |",
        *(
            f"| {name} | {found['passed']} | {found['failure'] + found['error']} | {found['skipped']} |"
            for name, found in sorted(files.items())
        ),
        "",
        *(f"- skipped {count}: {reason}" for reason, count in sorted(skipped.items())),
    ]


def section(part: Part) -> tuple[int, str]:
    """Run a part; return its exit status and its section of the record."""
    command = shlex.split(part.command)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "tests.xml")
        testing = "pytest" in command
        status, printed = run([*command, f"--junitxml={report}"] if testing else command)
        printed = printed.replace(f"{ROOT}{os.sep}", "").strip()
        if testing and report.exists():
            last = re.sub(r"^=+ | =+$", "", printed.splitlines()[-1])
            block = [last, "", *counts(report)]
            block += ["```", *printed.splitlines()[-200:], "```"] if status else []
        elif printed.startswith(("|", "#")) and not status:
            block = [re.sub("^#", "###", printed, flags=re.MULTILINE)]
        else:
            block = ["```", printed, "```"]
    return status, "\n".join([f"## {part.title}", "", f"`{part.command}`", "", *block, ""])


# ---- the record ----------------------------------------------------------------------------------


def read(path: Path, lines: list[str], titles: list[str]) -> dict[str, str]:
    """Return the sections of a record by title; none if it is of another state."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    head, *sections = re.split(rf"^(?=## (?:{'|'.join(map(re.escape, titles))})$)", text, flags=re.MULTILINE)
    if not set(lines) <= set(head.splitlines()):
        if text:
            print(f"{path} is the record of another commit, GPU or versions; it begins anew.", flush=True)
        return {}
    return {each.partition("\n")[0].removeprefix("## "): each for each in sections}


def gains(sections: list[str]) -> list[str]:
    """Return a table of what the examples among the sections gained; nothing if there are none."""
    rows = []
    for text in sections:
        title = text.partition("\n")[0].removeprefix("## ")
        found = dict(re.findall(r"^(eager|as a graph|gain|results) +(\S.*)$", text, re.MULTILINE))
        if len(found) == 4:
            rows.append(f"| {title} | {' | '.join(found.values())} |")
    head = ["| Example | eager | as a graph | gain | results |", "| --- | --- | --- | --- | --- |"]
    return [*head, *rows, ""] if rows else []


def write(path: Path, lines: list[str], parts: dict[str, Part], sections: dict[str, str]) -> None:
    """Write the record: its state, the parts that have not run, and the sections in their order."""
    missing = ", ".join(name for name, part in parts.items() if part.title not in sections)
    head = [
        *lines,
        "",
        f"Last part run on {datetime.date.today().isoformat()}; parts not run: {missing or 'none'}.",
        "",
    ]
    found = [sections[part.title].strip() + "\n" for part in parts.values() if part.title in sections]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*head, *gains(found), *found]), encoding="utf-8")


def main() -> int:
    listed = (f"  {what}: {', '.join(parts)}" for what, parts in PARTS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="\n".join(
            (
                "parts, each of at most a few minutes (those but cuda and hip: with that flag):",
                *listed,
            )
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", nargs="*", help="by default all, one after another")
    parser.add_argument("--backend", default="cuda", choices=["cuda", "hip"])
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--gpus", action="store_true", help="only what needs two GPUs")
    only.add_argument("--memory", action="store_true", help="only the memory of graphs")
    only.add_argument("--examples", action="store_true", help="only the examples")
    only.add_argument("--inspection", action="store_true", help="only what looks into graphs")
    only.add_argument("--breaks", action="store_true", help="only captures with breaks beside their peers")
    parser.add_argument("--name", help="by default the backend's, or hip-on-cuda")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "verified")
    options = parser.parse_args()
    flags = [
        name for name in ("gpus", "examples", "inspection", "memory", "breaks") if getattr(options, name)
    ]
    what = flags[0] if flags else options.backend
    parts = PARTS[what]
    if unknown := set(options.part) - set(parts):
        parser.error(f"{', '.join(sorted(unknown))} must be among the parts {', '.join(parts)}")
    if options.backend == "hip":
        from simulators.hip_on_cuda.build import build, environment

        paths = os.pathsep.join((str(ROOT / "tests"), PATHS))
        ENVIRONMENT.update(environment(build(), ENVIRONMENT, PYTHONPATH=paths))
    name = options.name or {"hip": "hip-on-cuda", "gpus": "several-gpus"}.get(what, what)
    path = options.out / f"{name}.md"
    lines = state(what, options.backend)
    sections = read(path, lines, [part.title for part in parts.values()])
    failed = 0
    for chosen in options.part or parts:
        status, sections[parts[chosen].title] = section(parts[chosen])
        failed |= status
        write(path, lines, parts, sections)
        print(sections[parts[chosen].title], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
