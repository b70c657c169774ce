"""Run all planted faults and right programs that can run here, and write a table of what `verify` has said.

    PYTHONPATH=.:tests python -m diagnosis.record docs/verified/verify.md

Sections of the page that this does not write stay. Exit status 1 if a fault was not named, or a right program
was accused.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import accelerator_graph as ag
from accelerator_graph.testing.works import work_of

PACKAGES = ("torch", "cupy-cuda12x", "cupy-cuda13x", "cuda-bindings", "triton", "numpy")


@contextlib.contextmanager
def on_a_stream(kind):
    """Make a stream of a framework, or of ours, the current one."""
    if kind == "torch":
        import torch

        torch.manual_seed(1)
        with torch.cuda.stream(torch.cuda.Stream()):
            yield
    elif kind == "cupy":
        import cupy

        with cupy.cuda.Stream(non_blocking=True):
            yield
    else:
        with ag.Stream(backend=kind):
            yield


def suites() -> Iterator[tuple[str, str, dict, dict, tuple]]:
    """Yield each suite: its name, kind of stream, faults, right programs, and what these are called with."""
    yield "NumPy, on the CPU", "cpu", *programs_of("host_programs"), ()
    for kind in filter(ag.is_graph_available, ("cuda", "hip")):
        yield f"raw memory of {kind}", kind, *programs_of("device_programs"), (work_of(kind)(),)
    for framework, module, kind in (
        ("torch", "torch_programs", "torch"),
        ("triton", "triton_programs", "torch"),
        ("cupy", "cupy_programs", "cupy"),
    ):
        if find_spec(framework) and ag.is_graph_available("cuda"):
            yield framework, kind, *programs_of(module), (() if framework == "cupy" else ("cuda",))


def programs_of(module):
    found = import_module(f"diagnosis.{module}")
    faults = {name: (entry[0], entry[1]) for name, entry in found.FAULTS.items()}
    good = {name: entry[0] if isinstance(entry, tuple) else entry for name, entry in found.RIGHT.items()}
    return faults, good


def said(kind, make):
    """Return the verdict or the cause, and how long it took."""
    began = time.perf_counter()
    try:
        with on_a_stream(kind):
            args, how = make()
            try:
                report = ag.verify(*args, **how)
            finally:
                getattr(args[0], "close", int)()
        answer = report.verdict
    except ag.VerificationError as error:
        report, answer = error.report, f"wrong: {error.report.cause}"
        print(make, error, flush=True)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}", None, time.perf_counter() - began
    return answer, report, time.perf_counter() - began


def kept(page: Path, titles: set[str]) -> list[str]:
    """Return the sections of a page with other titles, each with the commit that it was written at."""
    head, *sections = page.read_text(encoding="utf-8").split("\n## ") if page.exists() else [""]
    [commit, *_] = [*(line for line in head.splitlines() if line.startswith("Commit ")), ""]
    found = []
    for section in sections:
        title, _, body = section.partition("\n")
        if title not in titles:
            said = () if "\nCommit " in body else ("", commit)
            found += [f"## {title}", *said, *body.rstrip("\n").splitlines(), ""]
    return found


def main(path: str) -> int:
    ok, lines = True, ["# What `verify` says of planted faults and of right programs", ""]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    versions = []
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    lines += [f"Commit {commit}; Python {platform.python_version()}; {', '.join(versions)}{gpu()}.", ""]
    lines += [
        "Written by `python -m diagnosis.record`; the programs are those of `tests/diagnosis/`. Every fault "
        "has to be named with its cause, and no right program may be called wrong.",
        "",
    ]
    titles, on_device, planted = set(), 0, 0
    for title, kind, faults, good, given in suites():
        titles.add(title)
        planted += len(faults)
        on_device += len(faults) * (kind != "cpu")
        lines += [f"## {title}", "", "| program | planted | said | eager runs, replays | s |"]
        lines += ["| --- | --- | --- | --- | --- |"]
        for name, (make, cause) in (*faults.items(), *((n, (m, "")) for n, m in good.items())):
            answer, report, seconds = said(kind, partial(make, *given))
            fine = answer == f"wrong: {cause}" if cause else answer in ("right", "undecided")
            ok = ok and fine
            runs = f"{report.eager_runs}, {report.replays}" if report else ""
            mark = answer if fine else f"**{answer}**"
            lines.append(
                f"| {name.replace('_', ' ')} | {cause or 'nothing'} | {mark} | {runs} | {seconds:.2f} |"
            )
            print(lines[-1], flush=True)
        lines.append("")
    print(f"{planted} planted faults, {on_device} of them on a device")
    Path(path).write_text("\n".join([*lines, *kept(Path(path), titles)]), encoding="utf-8")
    return 0 if ok else 1


def gpu() -> str:
    """Return the name of the GPU, as a part of a sentence."""
    with contextlib.suppress(ImportError, RuntimeError):
        import torch

        if torch.cuda.is_available():
            return f"; {torch.cuda.get_device_name()}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
