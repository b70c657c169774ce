"""Measure everything that this machine can run, and write one report.

Usage: python benchmarks/run.py [--backend cuda|hip|cpu] [--out DIR] [--quick]

Prints the report. With --out, also writes it to DIR/report.md, and every figure to DIR/results.json, which
plot.py draws. Takes about six minutes on a GPU, with --quick 40 seconds. Needs no network and installs
nothing. It needs a C compiler, and Python's headers for one of the variants.

On AMD's runtime, without a GPU:
PYTHONPATH=tests python -m amd 7.2 -- python benchmarks/run.py --backend hip
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from time import perf_counter

import _machine
from _measure import Plan
from _report import render

ROOT = Path(__file__).resolve().parents[1]
PURE = {"ACCELERATOR_GRAPH_PURE_PYTHON": "1"}
SECTIONS = {  # the backends, the function, and environment variables
    "replay": (("cuda", "hip"), "suite_replay:measure", {}),
    "replay_pure_python": (("cuda", "hip"), "suite_replay:measure_pure_python", PURE),
    "cpu": (("cpu",), "suite_cpu:measure", {}),
    "capture": (("cuda",), "suite_capture:measure", {}),
    "torch": (("cuda",), "suite_torch:measure", {}),
    "first": (("cuda",), "suite_first:measure", {}),
    "serving": (("cuda",), "suite_serving:measure", {}),
    "update": (("cuda",), "suite_update:measure", {}),
    "inspect": (("cuda",), "suite_inspect:measure", {}),
    "graphed": (("cuda",), "suite_graphed:measure", {}),
    "growth": (("cuda",), "suite_growth:measure", {}),
    "diagnose": (("cuda", "hip"), "suite_diagnose:measure", {}),
    "threads": (("cuda", "hip"), "suite_threads:measure", {}),
    "memory": (("cuda",), "suite_memory:measure", {}),
    "import": (("cuda", "hip", "cpu"), "suite_import:measure", {}),
}
LIMIT = 120  # seconds for a section that hangs
NOTHING = {"rows": [], "goals": [], "skipped": {}, "facts": {}}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=("cuda", "hip", "cpu"), help="by default the first usable")
    parser.add_argument("--out", type=Path, help="where to write results.json and report.md")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller sizes")
    parser.add_argument("--rounds", type=int, default=400, help="at most so many; by default %(default)s")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    parser.add_argument("--limit", type=float, default=540, help="begin no section after so many seconds")
    parser.add_argument("--section", help=argparse.SUPPRESS)  # this script starts itself with it
    parser.add_argument("--result", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.backend = options.backend or _usable()
    if options.section:
        return _section(options)
    begin = perf_counter()
    sections = {}
    for name in options.only:
        if options.backend in SECTIONS[name][0]:
            left = options.limit - (perf_counter() - begin)
            if sys.stderr.isatty():
                print(f"{name} ...", file=sys.stderr, flush=True)
            sections[name] = _in_process(name, options, min(LIMIT, left))
    results = {
        "backend": options.backend,
        "quick": options.quick,
        "commit": _machine.commit(),
        "date": datetime.date.today().isoformat(),
        "seconds": round(perf_counter() - begin),
        "machine": _machine.machine(),
        "versions": _machine.versions(),
        "sections": sections,
    }
    report = render(results)
    print(report)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (options.out / "report.md").write_text(report, encoding="utf-8")
    return 1 if any(section["error"] for section in sections.values()) else 0


def _usable():
    import accelerator_graph as ag

    usable = [report.name for report in ag.backends.report() if report.usable]
    return next((name for name in ("cuda", "hip") if name in usable), "cpu")


def _in_process(name, options, limit):
    """Measure one section in its own process. If it fails or hangs, note that and use its results so far."""
    if limit < 5:
        return NOTHING | {"error": "not begun: the time is up.", "seconds": 0}
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result.json")
        command = [sys.executable, __file__, "--backend", options.backend, "--rounds", str(options.rounds)]
        command += ["--section", name, "--result", result, *(["--quick"] if options.quick else [])]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": paths, **SECTIONS[name][2]}
        begin = perf_counter()
        error = ""
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=limit, check=False
            )
            if done.returncode:
                error = "\n".join(done.stderr.strip().splitlines()[-15:]) or f"status {done.returncode}"
                error = error.replace(f"{ROOT}{os.sep}", "")
        except subprocess.TimeoutExpired:
            error = f"ended after {limit:.0f} s."
        found = dict(NOTHING)
        if os.path.exists(result):
            with open(result, encoding="utf-8") as file:
                found = json.load(file)
        return found | {"error": error, "seconds": round(perf_counter() - begin, 1)}


def _section(options):
    plan = Plan(options.backend, options.quick, options.rounds, options.result)
    module, _, function = SECTIONS[options.section][1].partition(":")
    try:
        getattr(importlib.import_module(module), function)(plan)
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        plan.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
