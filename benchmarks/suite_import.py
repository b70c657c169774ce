"""How long an import takes, beyond a bare interpreter's start."""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter_ns

from _peers import installed

ROOT = Path(__file__).resolve().parents[1]
BARE = "a bare interpreter"
OURS = "accelerator_graph"
LOADED = "accelerator_graph, Graph and Stream"  # names are imported on first use


def measure(plan):
    imports = {OURS: "import accelerator_graph", LOADED: "from accelerator_graph import Graph, Stream"}
    if plan.backend == "cuda":
        imports["cuda.bindings.driver"] = "import cuda.bindings.driver"
    elif plan.backend == "hip":
        imports["hip-python"] = "from hip import hip"
    times = _compare(plan, imports, 4, most=25)
    loaded = [value / 1e6 for value in times[LOADED]]
    plan.goal("import with Graph and Stream, more than a bare interpreter", loaded, 15, unit="ms")
    if plan.backend == "cuda" and not plan.quick:
        theirs = {peer.name: f"import {peer.module}" for peer in installed(plan)}
        _compare(plan, theirs, 10, most=5)


def _compare(plan, imports, seconds, most):
    """Time statements in turns, and add a row for each: its time beyond a bare interpreter's."""
    statements = {BARE: "pass"} | imports
    for name in [name for name in statements if plan.tried(name, start, statements[name]) is None]:
        del statements[name]
    times = {name: [] for name in statements}
    end = perf_counter_ns() + seconds * 1e9 * (0.15 if plan.quick else 1)
    while len(times[BARE]) < 3 or (len(times[BARE]) < min(most, plan.most) and perf_counter_ns() < end):
        turn = len(times[BARE]) % len(statements)
        for name in (*list(statements)[turn:], *list(statements)[:turn]):
            times[name].append(start(statements[name]))
    added = {
        name: [after - before for before, after in zip(times[BARE], values, strict=True)]
        for name, values in times.items()
        if name != BARE
    }
    for name, values in added.items():
        plan.add("import, beyond a bare interpreter", None, name, values)
    plan.facts["a bare interpreter starts in ms"] = round(median(times[BARE]) / 1e6, 1)
    return added


def start(statement):
    """Return how many ns a new interpreter takes for one statement. The first run writes the byte code."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    begin = perf_counter_ns()
    done = subprocess.run(
        [sys.executable, "-c", statement],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    taken = perf_counter_ns() - begin
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it fails"])[-1])
    return taken
