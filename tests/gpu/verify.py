"""Run everything on a machine with a GPU and write down what it showed.

Usage: python tests/gpu/verify.py [--backend cuda | hip] [--gpus] [--name NAME] [--out DIR]

With ``--gpus``: only what needs two of them. With ``--backend hip`` the HIP backend and hip-python drive
the NVIDIA GPU through the shim in tests/simulators/hip_on_cuda.
Needs no network and installs nothing: the tests, the demo and the benchmarks run from this checkout
in the interpreter that runs this script. Writes DIR/NAME.md (by default docs/verified/cuda.md), with
the commit and the versions. Exit status 1 if a test failed or none ran on the GPU.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])
PATHS = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PROGRAMS = (
    "env ACCELERATOR_GRAPH_PROGRAMS=5000 ACCELERATOR_GRAPH_PROGRAMS_SEED=2 "
    "python -m pytest -q -p no:cacheprovider tests/backends/test_programs.py"
)
COMMANDS = {
    "cuda": {
        "The demo": "python -m accelerator_graph demo --backend cuda",
        "How fast it is": "python benchmarks/run.py --backend cuda --quick",
        "torch, CuPy and Triton in one graph": "python examples/three_frameworks.py",
        "10,000 cycles": "python benchmarks/cycles.py --backend cuda",
        "5,000 random programs": PROGRAMS + " -k TestCuda",
    },
    "hip": {
        "The demo": "python -m accelerator_graph demo --backend hip",
        "How fast it is": "python benchmarks/run.py --backend hip --quick",
        "10,000 cycles": "python benchmarks/cycles.py --backend hip",
        "5,000 random programs": PROGRAMS + " -k TestHip",
    },
    "gpus": {
        "A graph for every GPU": "python examples/device_graphs.py",
        "NCCL in the graph, with torch": "python -m torch.distributed.run --nproc-per-node=2 "
        "examples/torchrun_all_reduce.py",
        "NCCL in the graph, with MPI and CuPy": "mpiexec -n 2 python examples/mpi_all_reduce.py",
    },
}
WITHOUT_A_GPU = (
    *("test_benchmarks.py", "core/test_fast_sanitizers.py", "faults", "kit", "simulators", "torch_cpu"),
)
"""Tests that a GPU has no part in, and that take their time."""
TESTS = {
    "cuda": [f"--ignore=tests/{name}" for name in WITHOUT_A_GPU],
    "hip": [
        *("tests/backends/test_conformance.py", "tests/backends/both/test_same_graphs.py"),
        "tests/simulators/hip_on_cuda/itself.py",
        *("-k", "not TestCpu and not TestCuda and not TestTape"),
    ],
    "gpus": ["tests/gpu/test_several_gpus.py"],
}
SCOPE = {
    "cuda": "",
    "hip": """HIP's calls went through the shim in `tests/simulators/hip_on_cuda`
to the CUDA driver. This shows that the
backend and hip-python drive a real device: handles, memory, streams, results, the same graphs as the CUDA
backend's. It does not show how AMD's runtime behaves (that is tested on AMD's own runtime, on the CPU), nor
AMD's hardware, nor any speed on it.
""",
    "gpus": "",
}


def run(command, timeout):
    """Run a command; return the exit status and what it printed. `python` is this interpreter."""
    try:
        done = subprocess.run(
            [sys.executable if word == "python" else word for word in command],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return 124, f"{(error.stdout or b'').decode()}\nended after {timeout} s"
    return done.returncode, done.stdout


def commit():
    """Return the commit of the checkout, and whether it has changes that are not committed."""
    name = os.environ.get("ACCELERATOR_GRAPH_COMMIT")
    if name:
        return name
    git = ["git", "-C", ROOT]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    dirty = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False)
    return (head.stdout.strip() or "unknown") + (" with changes" if dirty.stdout.strip() else "")


def installed():
    """Name the frameworks of this interpreter, with their versions."""
    found = {}
    for name in ("torch", "cupy-cuda13x", "cupy-cuda12x", "triton", "cuda-core", "mpi4py", "mpich"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return ", ".join(f"{name} {version}" for name, version in found.items()) or "nothing"


def tests(report, selection):
    """Run the tests; return the exit status, the summary line, and per file: passed, skipped."""
    how = ["-q", "-rfE", "-p", "no:cacheprovider", f"--junitxml={report}"]
    status, output = run(["python", "-m", "pytest", *how, *selection], 500)
    if not os.path.exists(report):
        sys.exit(output)
    files, skipped = {}, {}
    for case in ET.parse(report).iter("testcase"):
        counts = files.setdefault(
            case.get("classname", "").split(".Test")[0], {"passed": 0, "failed": 0, "skipped": 0}
        )
        if case.find("skipped") is not None:
            counts["skipped"] += 1
            reason = case.find("skipped").get("message", "")
            skipped[reason] = skipped.get(reason, 0) + 1
        elif case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
        else:
            counts["passed"] += 1
    return status, output, files, skipped


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="cuda", choices=["cuda", "hip"])
    parser.add_argument("--gpus", action="store_true", help="only what needs two GPUs")
    parser.add_argument("--name", help="by default the backend's, or hip-on-cuda")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "verified"))
    options = parser.parse_args()
    what = "gpus" if options.gpus else options.backend
    name = options.name or {"cuda": "cuda", "hip": "hip-on-cuda", "gpus": "several-gpus"}[what]
    if options.backend == "hip":
        sys.path.insert(0, os.path.join(ROOT, "tests"))
        from simulators.hip_on_cuda.build import build, environment

        paths = os.pathsep.join((os.path.join(ROOT, "tests"), PATHS))
        ENVIRONMENT.update(environment(build(), ENVIRONMENT, PYTHONPATH=paths))
    os.makedirs(options.out, exist_ok=True)
    _, info = run(["python", "-m", "accelerator_graph", "info", "--json"], 60)
    backends = {each["name"]: each for each in json.loads(info)["backends"]}
    there = backends[options.backend]
    if not there["usable"]:
        print(f"nothing to verify: backend {options.backend!r} is not available: {there['reason']}")
        return 1
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    report = os.path.join(options.out, "tests.xml")
    status, output, files, skipped = tests(report, TESTS[what])
    os.unlink(report)
    lines = [
        f"# Verified on {gpu.splitlines()[0] if gpu else 'no GPU'}",
        "",
        "Written by `tests/gpu/verify.py`.",
        "",
        f"- commit: {commit()}",
        f"- date: {datetime.date.today().isoformat()}",
        f"- Python {platform.python_version()}, {len(gpu.splitlines())} GPU(s)",
        *(f"- {each['name']}: {each['versions']}" for each in backends.values() if each["usable"]),
        f"- installed beside them: {installed()}",
        "",
        SCOPE[what],
        "## Tests",
        "",
        re.sub(r"^=+ | =+$", "", output.strip().splitlines()[-1]),
        "",
        "| file | passed | failed | skipped |",
        "| --- | --- | --- | --- |",
        *(
            f"| {name} | {c['passed']} | {c['failed']} | {c['skipped']} |"
            for name, c in sorted(files.items())
        ),
        "",
        *(f"- skipped {count}: {reason}" for reason, count in sorted(skipped.items())),
        "",
    ]
    if status:
        lines += ["```", *output.splitlines()[-200:], "```", ""]
    for title, command in COMMANDS[what].items():
        code, printed = run(command.split(), 300)
        status = status or code
        printed = printed.replace(ROOT + os.sep, "").strip()
        marked = printed.startswith(("|", "#")) and not code
        block = [re.sub("^#", "###", printed, flags=re.MULTILINE)] if marked else ["```", printed, "```"]
        lines += [f"## {title}", "", f"`{command}`", "", *block, ""]
    path = os.path.join(options.out, f"{name}.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    print("\n".join(lines))
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
