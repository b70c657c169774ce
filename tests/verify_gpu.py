"""Run everything on a machine with a GPU and write down what it showed.

Usage: python tests/verify_gpu.py [--name NAME] [--out DIR]

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
    "The demo": ["-m", "accelerator_graph", "demo", "--backend", "cuda"],
    "Replay, against the C loop": ["benchmarks/replay_cuda.py"],
    "What the capture transaction adds": ["benchmarks/transaction_cuda.py"],
    "10,000 cycles": ["benchmarks/cycles.py", "--backend", "cuda"],
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


def tests(report):
    """Run the test suite; return the exit status, the summary line, and per file: passed, skipped."""
    status, output = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"], 500)
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
    parser.add_argument("--name", default="cuda")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "verified"))
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    _, info = run(["-m", "accelerator_graph", "info", "--json"], 60)
    backends = {each["name"]: each for each in json.loads(info)["backends"]}
    if not backends["cuda"]["usable"]:
        print(f"nothing to verify: backend 'cuda' is not available: {backends['cuda']['reason']}")
        return 1
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    report = os.path.join(options.out, "tests.xml")
    status, output, files, skipped = tests(report)
    os.unlink(report)
    lines = [
        f"# Verified on {gpu.splitlines()[0] if gpu else 'no GPU'}",
        "",
        "Written by `tests/verify_gpu.py`.",
        "",
        f"- commit: {commit()}",
        f"- date: {datetime.date.today().isoformat()}",
        f"- Python {platform.python_version()}, {len(gpu.splitlines())} GPU(s)",
        f"- cuda: {backends['cuda']['versions']}, usable: {backends['cuda']['usable']}",
        "",
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
    for title, arguments in COMMANDS.items():
        code, printed = run(arguments, 300)
        status = status or code
        printed = printed.replace(ROOT + os.sep, "").strip()
        block = [printed] if printed.startswith(("|", "**")) and not code else ["```", printed, "```"]
        lines += [f"## {title}", "", f"`python {' '.join(arguments)}`", "", *block, ""]
    path = os.path.join(options.out, f"{options.name}.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    print("\n".join(lines))
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
