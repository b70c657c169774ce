"""A small capture on each device of a backend, in a process of its own: captured, replayed, compared."""

from __future__ import annotations

from typing import Any, NamedTuple

import accelerator_graph as ag

from . import child
from .libraries import loaded

A, B = 3, 7
"""A piece of work makes ``A * cell + B`` of a cell, which holds 0 at first."""
REPLAYS = 2


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


def tried(backend: str, time_limit: float) -> Trial:
    """Try a backend in a process of its own."""
    ended = child.run(__name__, "main", backend, time_limit=time_limit)
    if ended.failure:
        doing = ended.last("doing") or "starting Python"
        outcome, detail = "failed", f"the process {ended.failure} while {doing}"
    else:
        outcome, detail = ended.last("outcome") or ("failed", "the process ended without a result")
    return Trial(
        backend,
        outcome,
        detail,
        ended.errors if outcome == "failed" else "",
        ended.last("passed") or 0,
        ended.seconds,
        tuple(ended.last("libraries") or ()),
    )


# ---- in the child ------------------------------------------------------------------------------


def main(backend: str) -> None:
    """Try a backend, and report what is being done, how it came out, and which libraries are loaded."""
    outcome, detail = attempt(backend)
    child.report(outcome=(outcome, detail), libraries=loaded(), doing="exiting")


def attempt(backend: str) -> tuple[str, str]:
    """Try a backend; return the outcome and the detail."""
    child.report(doing="opening the backend")
    try:
        devices = ag.backends.get(backend).device_count()
    except ag.BackendError as error:
        return "unusable", reason_of(error, backend)
    except ag.AcceleratorGraphError as error:
        return "failed", f"opening the backend raised {type(error).__name__}: {clause(error)}"
    try:
        from ...testing.works import work_of

        work = work_of(backend)
    except ag.UnsupportedError as error:
        return "untried", clause(error)
    child.report(doing="preparing the work")
    first = work()
    for device in range(devices):
        used = first if device == 0 else first.on(device)
        if used is None:
            break
        if problem := captured(used, backend, device):
            return "failed", problem if devices == 1 else f"on device {device}, {problem}"
        child.report(passed=device + 1)
    return "passed", ""


def captured(work: Any, backend: str, device: int) -> str:
    """Run a piece of work, capture it and replay it. Return what went wrong; nothing if all is well."""
    doing = ""

    def begin(what: str) -> None:
        nonlocal doing
        doing = what
        child.report(doing=f"{what} on device {device}")

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


def reason_of(error: ag.BackendError, backend: str) -> str:
    """Return why a backend can't be used."""
    reasons = getattr(error, "reasons", {})
    return str(reasons.get(backend) or clause(error)).rstrip(".")


def clause(error: Exception) -> str:
    """Return an error's message without its full stop."""
    return str(error).rstrip(".") or "no message"
