"""Run pytest on AMD's runtime and write down what it showed: python -m simulators.amd.report REPORT [...]

Further arguments go to pytest. Python has to be on the runtime already (`runtime.command`).
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import pytest

from accelerator_graph._core import ownership
from simulators.cuda.__main__ import Outcomes

from .accounts import Accounts


def main(report: str, *arguments: str) -> int:
    outcomes = Outcomes()
    status = pytest.main([*arguments], plugins=[outcomes])
    gc.collect()
    ownership.drain()
    accounts = Accounts()
    found = {
        "status": int(status),
        "passed": outcomes.passed,
        "skipped": outcomes.skipped,
        "launches": accounts.launches,
        "unknown_kernels": accounts.unknown_kernels,
        "unknown_calls": accounts.unknown_calls,
    }
    Path(report).write_text(json.dumps(found, indent=2), encoding="utf-8")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
