"""Code that runs in a process of its own, so that a driver that crashes or hangs ends only that process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any, NamedTuple

MARK = "accelerator_graph doctor: "
"""Begins the lines that the child reports. Drivers may write others."""

GRACE = 5.0
"""Seconds to wait for a process that was killed. One that is stuck in a driver may never end."""

MOST_CHARACTERS = 2000
"""So much of the end of the error output is kept."""


class Ended(NamedTuple):
    """What became of a child."""

    reports: list[dict[str, Any]]
    """What it reported, in order."""
    failure: str
    """What went wrong, as the end of a sentence about the process; empty if it ended well."""
    errors: str
    """The end of its error output."""
    seconds: float

    def last(self, key: str) -> Any:
        """Return the last report under this key; None without one."""
        return next((each[key] for each in reversed(self.reports) if key in each), None)


def report(**facts: Any) -> None:
    """Tell the parent something. Called in the child."""
    print(f"\n{MARK}{json.dumps(facts)}", flush=True)


def run(module: str, function: str, *arguments: Any, time_limit: float) -> Ended:
    """Call a function in a process with the import path, the warnings and the environment of this one."""
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from {module} import {function}; {function}(*{arguments!r})"
    )
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONOPTIMIZE"}  # for the kit
    options = ("-P", "-X", "faulthandler", *(f"-W{each}" for each in sys.warnoptions))
    begun = time.monotonic()
    # Files instead of pipes, which a process that the child has left behind would keep open.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, *options, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=variables,
        )
        failure = ended(child, time_limit)
        written, complaints = (read(file) for file in (output, errors))
    reports = [json.loads(line.removeprefix(MARK)) for line in written.splitlines() if line.startswith(MARK)]
    return Ended(reports, failure, complaints.strip()[-MOST_CHARACTERS:], time.monotonic() - begun)


def ended(child: subprocess.Popen[bytes], time_limit: float) -> str:
    """Wait for the end of a child, or end it. Return what went wrong."""
    try:
        return in_words(child.wait(time_limit))
    except subprocess.TimeoutExpired:
        return f"did not end within {time_limit:g} s"
    finally:  # after an interrupt as well
        child.kill()
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)


def in_words(status: int) -> str:
    """Return what an exit status says of a process; nothing for 0."""
    if status < 0:
        try:
            return f"was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"was ended by signal {-status}"
    if status > 255:  # on Windows, the code of an exception
        return f"was ended with the status {status:#x}"
    return f"ended with the status {status}" if status else ""


def read(file: Any) -> str:
    """Return all that was written to a file."""
    file.seek(0)
    return bytes(file.read()).decode(errors="replace")
