"""A small capture on each device of a backend, in a process of its own: captured, replayed, compared.

Code runs in a process of its own so that a driver that crashes or hangs ends only that process. It reports
which files of the drivers' libraries it has loaded.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import accelerator_graph as ag

A, B = 3, 7
"""A piece of work makes ``A * cell + B`` of a cell, which holds 0 at first."""
REPLAYS = 2


class Finding(NamedTuple):
    """A fact that disturbs graphs, or may disturb them."""

    about: str
    """A backend, a library, a package or a variable."""
    fact: str
    """What was found, in sentences."""
    advice: str
    """What to do about it, in sentences."""


class Trial(NamedTuple):
    """How the capture went."""

    backend: str
    outcome: str
    """``"passed"``, ``"failed"``, ``"unusable"``, or ``"untried"``: the backend can be opened, but its
    distribution has no work to capture."""
    detail: str = ""
    """What went wrong or is missing, in a sentence without a full stop."""
    errors: str = ""
    """The end of the error output of a trial that failed."""
    devices: int = 0
    """How many devices were tried."""
    seconds: float = 0.0
    libraries: tuple[str, ...] = ()
    """The drivers' libraries that the process had loaded."""
    timed_out: bool = False
    """The trial failed because it took longer than the time limit."""


def trial_of(backend: str, time_limit: float) -> Trial:
    """Try a backend in a process of its own."""
    result = run_in_process(__name__, "report_trial", backend, time_limit=time_limit)
    if result.failure:
        doing = result.last("doing") or "starting Python"
        outcome, detail = "failed", f"the process {result.failure} while {doing}"
    else:
        outcome, detail = result.last("outcome") or ("failed", "the process ended without a result")
    return Trial(
        backend,
        outcome,
        detail,
        result.errors if outcome == "failed" else "",
        result.last("passed") or 0,
        result.seconds,
        tuple(result.last("libraries") or ()),
        result.timed_out,
    )


# ---- in that process -------------------------------------------------------------------------------


def report_trial(backend: str) -> None:
    """Try a backend, and report what is being done, how it came out, and which libraries are loaded."""
    outcome, detail = outcome_of(backend)
    report(outcome=(outcome, detail), libraries=loaded_libraries(), doing="exiting")


def outcome_of(backend: str) -> tuple[str, str]:
    """Try a backend; return the outcome and the detail."""
    report(doing="opening the backend")
    try:
        devices = ag.backends.get(backend).device_count
    except ag.BackendError as error:
        return "unusable", unusable_reason(error, backend)
    except ag.AcceleratorGraphError as error:
        return "failed", f"opening the backend raised {type(error).__name__}: {clause(error)}"
    try:
        from ..testing.works import work_of

        work = work_of(backend)
    except ag.UnsupportedError as error:
        return "untried", clause(error)
    report(doing="preparing the work")
    first = work()
    for device in range(devices):
        used = first if device == 0 else first.on(device)
        if used is None:
            break
        if problem := failure_of(used, backend, device):
            return "failed", problem if devices == 1 else f"on device {device}, {problem}"
        report(passed=device + 1)
    return "passed", ""


def failure_of(work: Any, backend: str, device: int) -> str:
    """Run a piece of work, capture it and replay it. Return what went wrong; nothing if all is well."""
    doing = ""

    def begin(what: str) -> None:
        nonlocal doing
        doing = what
        report(doing=f"{what} on device {device}")

    try:
        begin("making a stream")
        with ag.Stream(device, backend=backend) as stream:
            cell, expected = work.new(), B
            begin("running work without a graph")
            work.enqueue(stream, cell, A, B)
            stream.synchronize()
            if (found := work.read(cell)) != expected:
                return f"work without a graph left {found} in memory instead of {expected}"
            begin("capturing")
            with ag.Graph(stream=stream) as graph:
                work.enqueue(stream, cell, A, B)
            stream.synchronize()
            if (found := work.read(cell)) != expected:
                return f"captured work ran during the capture: {found} is in memory instead of {expected}"
            begin("replaying the graph")
            for replay in range(REPLAYS):
                graph.replay()
                stream.synchronize()
                expected = expected * A + B
                if (found := work.read(cell)) != expected:
                    return f"replay {replay + 1} left {found} in memory instead of {expected}"
            begin("destroying the graph")
            graph.reset()
    except Exception as error:  # of a driver, a binding or a plug-in
        return f"{doing} raised {type(error).__name__}: {clause(error)}"
    return ""


def unusable_reason(error: ag.BackendError, backend: str) -> str:
    """Return why a backend can't be used."""
    reasons = getattr(error, "reasons", {})
    return str(reasons.get(backend) or clause(error)).rstrip(".")


def clause(error: Exception) -> str:
    """Return an error's message without its full stop."""
    return str(error).rstrip(".") or "no message"


# ---- a process of its own --------------------------------------------------------------------------


MARK = "accelerator_graph doctor: "
"""Begins the lines that the child reports. Drivers may write others."""

GRACE = 5.0
"""Seconds to wait for a process that was killed. One that is stuck in a driver may never end."""

START_LIMIT = 60.0
"""Seconds that a process may take to start and to import the library."""

MOST_CHARACTERS = 2000
"""So much of the end of the error output is kept."""


class ProcessResult(NamedTuple):
    """What became of a child."""

    reports: list[dict[str, Any]]
    """What it reported, in order."""
    failure: str
    """What went wrong, as the end of a sentence about the process; empty if it ended well."""
    errors: str
    """The end of its error output."""
    seconds: float
    timed_out: bool
    """It had to be ended."""

    def last(self, key: str) -> Any:
        """Return the last report under this key; None without one."""
        return next((each[key] for each in reversed(self.reports) if key in each), None)


def report(**facts: Any) -> None:
    """Tell the parent something. Called in the child."""
    print(f"\n{MARK}{json.dumps(facts)}", flush=True)


def run_in_process(module: str, function: str, *arguments: Any, time_limit: float) -> ProcessResult:
    """Call a function in a process with the import path, the warnings and the environment of this one.

    The time limit begins with the first output, so the function has to begin with a `report`.
    """
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
        failure, timed_out = end_of_process(child, time_limit, output)
        written, complaints = (contents_of(file) for file in (output, errors))
    reports = [json.loads(line.removeprefix(MARK)) for line in written.splitlines() if line.startswith(MARK)]
    seconds = time.monotonic() - begun
    return ProcessResult(reports, failure, complaints.strip()[-MOST_CHARACTERS:], seconds, timed_out)


def end_of_process(child: subprocess.Popen[bytes], time_limit: float, output: IO[bytes]) -> tuple[str, bool]:
    """Wait for the end of a child, or end it. Return what went wrong, and whether it had to be ended."""
    try:
        started, latest = False, time.monotonic() + START_LIMIT
        while (left := latest - time.monotonic()) > 0:
            with suppress(subprocess.TimeoutExpired):
                return status_in_words(child.wait(left if started else min(left, 0.02))), False
            if not started and os.fstat(output.fileno()).st_size:
                started, latest = True, time.monotonic() + time_limit
        return f"did not end within {time_limit if started else START_LIMIT:g} s", True
    finally:  # after an interrupt as well
        child.kill()
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)


def status_in_words(status: int) -> str:
    """Return what an exit status says of a process; nothing for 0."""
    if status < 0:
        try:
            return f"was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"was ended by signal {-status}"
    if status > 255:  # on Windows, the code of an exception
        return f"was ended with the status {status:#x}"
    return f"ended with the status {status}" if status else ""


def contents_of(file: Any) -> str:
    """Return all that was written to a file."""
    file.seek(0)
    return bytes(file.read()).decode(errors="replace")


# ---- the drivers' libraries ------------------------------------------------------------------------


LIBRARIES = {"libcuda.so.1": "CUDA's driver", "libamdhip64.so": "AMD's HIP runtime"}
"""What a file is whose name begins so."""


def loaded_libraries() -> list[str]:
    """Return the files of these libraries that this process has loaded."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    files = {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count(" ") >= 5 and "/" in line}
    return sorted(each for each in files if library_of(each))


def library_of(file: str) -> str:
    """Return which of the libraries a file is; an empty string if it is none."""
    name = os.path.basename(file)
    # The driver's file may be libcuda.so.580.95.05, to which libcuda.so.1 is a link.
    if re.fullmatch(r"libcuda\.so\.\d[\d.]*", name):
        return "libcuda.so.1"
    return "libamdhip64.so" if re.fullmatch(r"libamdhip64\.so[\d.]*", name) else ""


def found_libraries() -> dict[str, list[str]]:
    """Return the different files of each library in all places where a loader or a binding may look."""
    files: dict[str, dict[str, str]] = {library: {} for library in LIBRARIES}
    for path in library_files():
        library = library_of(path)
        if library and os.path.exists(path):
            files[library].setdefault(os.path.realpath(path), path)
    return {library: list(each.values()) for library, each in files.items() if each}


def library_files() -> Iterator[str]:
    """Yield files that may be such a library: as the loader would look, then as the bindings would."""
    if sys.platform != "linux":
        return
    folders = [each for each in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if each]
    yield from files_in(folders)
    yield from files_in_loader_cache()
    roots = (os.environ.get("ROCM_PATH"), os.environ.get("ROCM_HOME"), "/opt/rocm")
    yield from files_in(f"{root}/lib" for root in roots if root)
    for distribution in importlib.metadata.distributions():
        for file in distribution.files or ():
            if library_of(str(file)):
                yield str(distribution.locate_file(file))


def files_in(folders: Iterable[str]) -> Iterator[str]:
    """Yield the paths of all files in some folders."""
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        yield from (os.path.join(folder, name) for name in names)


def files_in_loader_cache() -> Iterator[str]:
    """Yield the files that the system's loader knows, of this processor's kind."""
    for command in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            done = subprocess.run([command, "-p"], capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        for line in done.stdout.splitlines():
            if "x86-64" in line or "AArch64" in line:
                yield line.rpartition(" => ")[2]
        return


def library_findings(used: Iterable[str]) -> Iterator[Finding]:
    """Yield what is wrong with the libraries, given those that the trials and the frameworks have loaded."""
    used = {os.path.realpath(each) for each in used}
    for library, files in found_libraries().items():
        if len(files) < 2:
            continue
        listed = ", ".join(
            f"{each} (used here)" if os.path.realpath(each) in used else each for each in files
        )
        yield Finding(
            library,
            f"There are {len(files)} different copies of {LIBRARIES[library]}: {listed}.",
            LIBRARY_ADVICE[library],
        )


LIBRARY_ADVICE = {
    "libcuda.so.1": (
        "The copy that is used has to fit the driver in the kernel. If it does not, take its folder out of "
        "LD_LIBRARY_PATH, or put the folder of the driver's own copy first."
    ),
    "libamdhip64.so": (
        "A process may use only one, since a copy crashes on the streams of another. Import the package that "
        "brings its own before anything else uses hip-python: the backend then uses that copy."
    ),
}
