"""The first capture of a process: each variant in fresh processes, whose bytecode has been written before."""

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
OURS = "accelerator_graph"
THEIRS = "torch.cuda.graph"
VARIANTS = {
    THEIRS: "torch:torch",
    f"{OURS}.graph": "torch:graph",
    f"{OURS}.compat": "torch:compat",
    "CuPy": "cupy:cupy",
    f"{OURS} with CuPy": "cupy:graph",
    f"{OURS} alone": "alone:",
}
EXTRA = 10  # ms that the first capture may take longer than torch's, the binding's import apart
IMPORT = 5  # ms
SECONDS = 75


def measure(plan):
    variants = {
        name: variant
        for name, variant in VARIANTS.items()
        if plan.tried(name, start, variant) is not None  # writes the bytecode as well
    }
    times = {name: [] for name in variants}
    end = perf_counter() + SECONDS * (0.15 if plan.quick else 1)
    rounds = 0
    while variants and (rounds < 3 or (rounds < plan.most and perf_counter() < end)):
        for name, variant in variants.items():
            times[name].append(start(variant))
        rounds += 1
    for name, found in times.items():
        for step in found[0]:
            plan.add(step, None, name, [each[step] for each in found])
    for name in (f"{OURS}.graph", f"{OURS}.compat"):
        if THEIRS in times and name in times:
            more = [
                (ours["import of the library"] + ours["first capture"] - theirs["first capture"]) / 1e6
                for ours, theirs in zip(times[name], times[THEIRS], strict=True)
            ]
            what = f"first capture, {name}, with its import, more than {THEIRS}"
            plan.goal(what, more, EXTRA, unit="ms")
            imports = [each["import of the library"] / 1e6 for each in times[name]]
            plan.goal(f"import in a process that has torch, {name}", imports, IMPORT, unit="ms")


def start(variant):
    """Return what a fresh process measures, in ns by step."""
    script = Path(__file__).with_name("_first.py")
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, str(script), variant],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it fails"])[-1])
    return json.loads(done.stdout.splitlines()[-1])
