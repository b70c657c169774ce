"""Run everything on a machine with a GPU and write down what it showed.

Usage: python tests/verify_gpu.py [--backend cuda | hip] [--name NAME] [--out DIR]

With ``--backend hip`` the HIP backend and hip-python drive the NVIDIA GPU through the shim in tests/shim.
Needs no network and installs nothing: the tests, the demo and the benchmarks run from this checkout
in the interpreter that runs this script. Writes DIR/NAME.md (by default docs/verified/cuda.md), with
the commit and the versions. Exit status 1 if a test failed or none ran on the GPU.
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATHS = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
COMMANDS = {
    "cuda": {
        "The demo": ["-m", "accelerator_graph", "demo", "--backend", "cuda"],
        "Replay, against the C loop": ["benchmarks/replay_cuda.py"],
        "What the capture transaction adds": ["benchmarks/transaction_cuda.py"],
        "10,000 cycles": ["benchmarks/cycles.py", "--backend", "cuda"],
    },
    "hip": {
        "The demo": ["-m", "accelerator_graph", "demo", "--backend", "hip"],
        "Replay": ["benchmarks/replay_hip.py"],
        "10,000 cycles": ["benchmarks/cycles.py", "--backend", "hip"],
    },
}
TESTS = {
    "cuda": [],
    "hip": [
        *("tests/test_conformance.py", "tests/test_hip_like_cuda.py", "tests/shim/itself.py"),
        *(f"tests/shim/itself_{part}.py" for part in ("captures", "devices", "graphs")),
        *("-k", "not TestCpu and not TestCuda and not TestTape"),
    ],
}
SCOPE = {
    "cuda": "",
    "hip": """HIP's calls went through the shim in `tests/shim` to the CUDA driver. This shows that the
backend and hip-python drive a real device: handles, memory, streams, results, the same graphs as the CUDA
backend's. It does not show how AMD's runtime behaves (that is tested on AMD's own runtime, on the CPU), nor
AMD's hardware, nor any speed on it.
""",
}


def run(arguments, timeout):
    """Run Python with these arguments; return the exit status and what it printed."""
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
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


def tests(report, selection):
    """Run the tests; return the exit status, the summary line, and per file: passed, skipped."""
    how = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    status, output = run(["-m", "pytest", *how, *selection], 500)
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
    parser.add_argument("--backend", default="cuda", choices=COMMANDS)
    parser.add_argument("--name", help="by default the backend's, or hip-on-cuda")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "verified"))
    options = parser.parse_args()
    name = options.name or {"cuda": "cuda", "hip": "hip-on-cuda"}[options.backend]
    if options.backend == "hip":
        from shim.build import build, environment

        paths = os.pathsep.join((os.path.join(ROOT, "tests"), PATHS))
        ENVIRONMENT.update(environment(build(), ENVIRONMENT, PYTHONPATH=paths))
    os.makedirs(options.out, exist_ok=True)
    _, info = run(["-m", "accelerator_graph", "info", "--json"], 60)
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
    status, output, files, skipped = tests(report, TESTS[options.backend])
    os.unlink(report)
    lines = [
        f"# Verified on {gpu.splitlines()[0] if gpu else 'no GPU'}",
        "",
        "Written by `tests/verify_gpu.py`.",
        "",
        f"- commit: {commit()}",
        f"- date: {datetime.date.today().isoformat()}",
        f"- Python {platform.python_version()}, {len(gpu.splitlines())} GPU(s)",
        *(f"- {each['name']}: {each['versions']}" for each in backends.values() if each["usable"]),
        "",
        SCOPE[options.backend],
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
    for title, arguments in COMMANDS[options.backend].items():
        code, printed = run(arguments, 300)
        status = status or code
        printed = printed.replace(ROOT + os.sep, "").strip()
        block = [printed] if printed.startswith(("|", "**")) and not code else ["```", printed, "```"]
        lines += [f"## {title}", "", f"`python {' '.join(arguments)}`", "", *block, ""]
    path = os.path.join(options.out, f"{name}.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    print("\n".join(lines))
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
