"""The command ``accelerator-graph conformance``: run the kit, show progress, write a report."""

from __future__ import annotations

import faulthandler
import platform
import sys
import threading
import time
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import accelerator_graph as ag
from accelerator_graph.backends import registry
from accelerator_graph.backends.base import Backend
from accelerator_graph.errors import EmptyGraphWarning, UnknownBackendError

from .._interpreter.terminal import check_file
from .._plugins import import_target, is_target
from ._conformance import BackendConformance, CheckResult, check_rules
from ._failure import failure_text
from ._report import Row, look_first, markdown, verdict
from ._work import Work
from .works import work_of


def run(
    name: str,
    *,
    work: str | None = None,
    expected: str | None = None,
    output: str | None = None,
    time_limit: float | None = None,
) -> bool:
    """Check a backend, print how each rule came out, and return True if none is broken.

    Parameters
    ----------
    name : str
        The backend's name.
    work : str, optional
        ``"module:Class"`` of its work; by default the built-in one, or that of its entry point. The module is
        imported first, and may register the backend.
    expected : path, optional
        A TOML file with a line ``test_name = "reason"`` for each rule that the backend is known to break.
    output : path, optional
        The file for the report.
    time_limit : float, optional
        The number of seconds for one rule, if not the kit's own.
    """
    named = None if work is None else named_work(work)
    backend = found(name, work)
    used = made(named or work_of(name), name)
    known = {} if expected is None else read_expected(expected)
    if output is not None:
        check_file(output)
    begun, limit = time.monotonic(), BackendConformance.time_limit if time_limit is None else time_limit

    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyGraphWarning)  # a rule fails if a capture misses its work
        with ending_if_python_stops(max(limit, GIL_SECONDS)):
            for row in map(in_words, check_rules(used, known, time_limit=limit)):
                rows.append(row)
                print(progress(row), flush=True)
    print(f"\n{verdict(rows).replace('**', '')}")
    for line in look_first(rows):
        print(line)
    if output is not None:
        facts = dict(facts_about(backend, used, time.monotonic() - begun))
        text = markdown(backend, facts, rows, time_limit=limit)
        Path(output).write_text(text, encoding="utf-8", errors="backslashreplace")
        print(f"The report is in {output}.")
    return not any(row.outcome == "failed" for row in rows)


GIL_SECONDS = 60.0
"""How long no thread of Python may run, at least."""


@contextmanager
def ending_if_python_stops(seconds: float) -> Iterator[None]:
    """End the process, and print where each thread is, if a call hangs that keeps the GIL.

    Nothing written in Python could notice that.
    """
    done = threading.Event()

    def arm() -> None:
        if sys.__stderr__ is not None:
            faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)

    def put_off() -> None:
        while not done.wait(seconds / 4):
            arm()

    arm()
    thread = threading.Thread(target=put_off, name="conformance time limit", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        faulthandler.cancel_dump_traceback_later()


def found(name: str, work: str | None) -> Backend:
    """Return the backend; an unknown name is an error that says how the work's module can register one."""
    try:
        return ag.backends.get(name)
    except UnknownBackendError as error:
        if work is None:
            raise
        module = work.partition(":")[0]
        raise UnknownBackendError(
            f"{error} If it is not installed, let {module!r} register it: "
            f'accelerator_graph.backends.register({name!r}, "module:Backend").'
        ) from None


def made(kind: type[Work], name: str) -> Work:
    """Return the work of a backend."""
    subject = f"the work {kind.__module__}:{kind.__qualname__}"
    try:
        used = kind()
    except TypeError as error:
        raise ValueError(f"{subject} can't be made without arguments: {error}.") from error
    if getattr(used, "backend", None) != name:
        raise ValueError(f"{subject} must have the attribute backend = {name!r}.")
    return used


def named_work(target: str) -> type[Work]:
    """Return the class that ``"module:Class"`` names."""
    if not is_target(target):
        raise ValueError(f"a work must be named as 'module:Class', not {target!r}.")
    try:
        kind = import_target(target)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the work {target} can't be imported: {error}.") from error
    if not (isinstance(kind, type) and issubclass(kind, Work)):
        raise ValueError(f"{target} is not a subclass of accelerator_graph.testing.Work.")
    return kind


def read_expected(path: str) -> dict[str, str]:
    """Return the reasons for expected failures, by the name of the test."""
    try:
        reasons = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}.") from error
    for name, reason in reasons.items():
        if not isinstance(reason, str) or not reason:
            raise ValueError(f"{path}: the reason for {name} must be a text, not {reason!r}.")
    return reasons


def in_words(result: CheckResult) -> Row:
    """Return a result without the error, which refers to the objects of the rule."""
    if result.error is None:
        return Row(result.name, result.outcome, result.reason.removeprefix("expected to fail: "))
    return Row(result.name, result.outcome, failure_text(result.error))


def progress(row: Row) -> str:
    """Return what is printed of one rule."""
    if row.outcome == "failed":
        return f"FAILED          {row.name}: {row.sentence}\n{indented(row.detail)}"
    if row.outcome == "passed":
        return f"passed          {row.name}"
    word = "does not apply" if row.outcome == "skipped" else "known failure"
    return f"{word:14}  {row.name} ({row.detail})"


def indented(text: str) -> str:
    """Return a text with room on the left."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def facts_about(backend: Backend, used: Work, seconds: float) -> Iterator[tuple[str, str]]:
    """Yield what the report says about the backend, and about the run."""
    kind, available = type(backend), type(backend).probe()
    yield "Backend", f"`{backend.name}`, `{kind.__module__}:{kind.__qualname__}`"
    yield "From", registry.origin(backend.name)
    yield "Device", device(backend, used)
    for component, version in available.versions.items():
        yield f"Version of {component}", version
    if available.warning:
        yield "Known defect", available.warning
    yield "accelerator_graph", ag.__version__
    yield "Python", f"{platform.python_implementation()} {platform.python_version()}"
    yield "System", platform.platform()
    yield "Work", f"`{type(used).__module__}:{type(used).__qualname__}`"
    yield "Run", f"{datetime.now(UTC):%Y-%m-%d}, in {seconds:.0f} s"


def device(backend: Backend, used: Work) -> str:
    """Return the name of the device that was used, and its number."""
    number, name = f"device 0 of {backend.device_count}", used.device_name()
    return f"{name}, {number}" if name else number
