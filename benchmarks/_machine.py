"""Facts about the measurement: the machine, the versions, the commit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DISTRIBUTIONS = (
    *("cuda-bindings", "cuda-core", "torch", "cupy-cuda12x", "cupy-cuda13x", "cupy", "warp-lang"),
    *("numba-cuda", "triton", "hip-python", "numpy"),
)


def machine():
    gpus = _printed("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    return {
        "GPU and its driver": "; ".join(gpus) or "no NVIDIA GPU",
        "CPU": _cpu(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "Python": platform.python_version(),
        "the GIL": "on" if getattr(sys, "_is_gil_enabled", lambda: True)() else "off",
    }


def versions():
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit():
    """Return the commit of the checkout, and whether it has uncommitted changes."""
    name = os.environ.get("ACCELERATOR_GRAPH_COMMIT")
    if name:
        return name
    head = _printed("git", "-C", str(ROOT), "rev-parse", "HEAD") or "unknown"
    changed = _printed("git", "-C", str(ROOT), "status", "--porcelain")
    return head + (" with changes" if changed else "")


def _cpu():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def _printed(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
