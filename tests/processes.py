"""Programs that tests run in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

VARIABLES = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # none is needed, and Hypothesis' takes half a second to import
    "OMPI_ALLOW_RUN_AS_ROOT": "1",  # Open MPI refuses to start processes for root, as whom containers run
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
"""The variables that every process is given."""

ROOT = Path(__file__).resolve().parents[1]

LONGEST = 10
"""How many times its limit a command may use the CPU without progress."""

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
"""How many parts of a second in which the system reports the use of the CPU."""

LAST_WORDS = 10
"""The limit in seconds for a command that hangs and says where."""


def execute(
    command: Sequence[str | Path],
    *,
    timeout: float = 300,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    merged: bool = False,
    progress: Callable[[], int] = int,
    start: Callable[..., Any] = subprocess.Popen,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its status and output, as text; `merged` with the error output.

    `start` makes what stands for `subprocess.Popen`, as `torch_cpu.forks.Fork` does.
    A command hangs if neither it nor its children use the CPU for `timeout` seconds, nor wait for it, or if
    they use it `LONGEST` times as long with the same `progress`. It is killed with its children then, and
    `subprocess.TimeoutExpired` is raised, with what it has said. On a busy machine it may take longer.
    """
    with start(
        command,
        env={**(os.environ if env is None else env), **VARIABLES},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            output, errors = finished(process, timeout, progress)
        except BaseException as error:
            below = [*usage(process.pid), process.pid]
            if isinstance(error, subprocess.TimeoutExpired):
                kill(process.pid, signal.SIGABRT)  # Python's fault handler says where its threads are
                kill_all(number for number in below if number != process.pid)
                with suppress(subprocess.TimeoutExpired):
                    error.output = finished(process, LAST_WORDS)[0]
            kill_all(below)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def python(code: str, *options: str, stderr: str = "", timeout: float = 300, **variables: str) -> str:
    """Run code in an interpreter of its own, which must end well and say `stderr`; return what it prints."""
    done = execute(
        [sys.executable, *options, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == stderr
    return done.stdout


def results_of_ranks(
    module: str,
    size: int,
    folder: Path,
    *options: str,
    timeout: float = 120,
    start: Callable[..., Any] = subprocess.Popen,
    **variables: str,
) -> list[Any]:
    """Run a module as so many processes at once; return what each has written into the folder."""
    command = [sys.executable, *options, "-m", module]
    how: dict[str, Any] = {"cwd": ROOT / "tests", "env": {**os.environ, **variables}, "text": True}
    ranks = [
        start([*command, str(rank), str(size), str(folder)], stderr=subprocess.PIPE, **how)
        for rank in range(size)
    ]
    errors = [rank.communicate(timeout=timeout)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * size, errors
    return [json.loads((folder / f"results-{rank}.json").read_text()) for rank in range(size)]


def finished(
    process: subprocess.Popen[str], timeout: float, progress: Callable[[], int] = int
) -> tuple[str, str]:
    """Return the output of a process when it has ended; see `execute`."""
    before: tuple[int, dict[int, int]] = (progress(), {})
    used = 0
    while True:
        try:
            return process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            now = progress(), usage(process.pid)
            spent = sum(ticks - before[1].get(each, 0) for each, ticks in now[1].items())
            used = used + spent if now[0] == before[0] else 0
            idle = now == before and not any(map(waits_for_the_cpu, now[1]))
            if idle or used >= LONGEST * timeout * TICKS:
                raise
            before = now


def kill(process: int, by: int) -> None:
    """Send a signal to a process, which may have ended meanwhile."""
    with suppress(OSError):
        os.kill(process, by)


def kill_all(processes: Iterable[int]) -> None:
    for process in processes:
        kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))


def waits_for_the_cpu(process: int) -> bool:
    """Return True if a thread of a process could run, on a machine that were not busy."""
    for thread in Path(f"/proc/{process}/task").glob("*"):
        with suppress(OSError):  # it has ended meanwhile
            if (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "R":
                return True
    return False


def usage(process: int) -> dict[int, int]:
    """Return the CPU time of a process and all below it, in ticks by number; nothing if it can't be known."""
    below: defaultdict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*") if sys.platform == "linux" else ():
        with suppress(OSError):  # it has ended meanwhile
            # after the name: state, parent, ten others, time in user mode and in the kernel
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            below[int(fields[1])].append(int(folder.name))
            ticks[int(folder.name)] = int(fields[11]) + int(fields[12])
    found: dict[int, int] = {}
    queue = [process]
    while queue:
        each = queue.pop()
        found[each] = ticks.get(each, 0)
        queue += below[each]
    return found if ticks else {}
