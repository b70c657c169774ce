"""Run pytest with hip-python on the shim: python -m simulators.hip_on_cuda [--software] [arguments of pytest]

Without arguments it tests the shim itself. ``--software`` forwards to the software CUDA driver.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys

from simulators.cuda.build import build as build_driver
from simulators.cuda.build import environment as driver_environment

from .build import ROOT, SOURCES, build, environment, missing


def main(*arguments: str) -> int:
    reason = missing()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    software = arguments[:1] == ("--software",)
    if not software and not has_driver():
        print("there is no CUDA driver; add --software.", file=sys.stderr)
        return 1
    base = driver_environment(build_driver()) if software else None
    env = environment(build(), base)
    tests = arguments[software:] or (str(SOURCES / "itself.py"),)
    return subprocess.run([sys.executable, "-m", "pytest", *tests], cwd=ROOT, env=env, check=False).returncode


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
