"""Random programs for a backend, drawn by Hypothesis, which has to be installed.

A program enqueues work, fills and copies on several streams that wait for each other, runs it eagerly and as
graphs, nests graphs, abandons captures by exceptions, resets, captures again, and replays in every way, also
from several threads. A model in plain Python says what the memory holds then. Programs use what the backend
has capabilities for, and order whatever touches the same memory, so every program is right: one that fails
shows a bug, and is shrunk to a small one, which the error shows as Python code. If there are two devices, and
`Work.on` has the work of the second, half of the programs use both.

A backend's tests are one class beside that of the conformance kit, with the same `Work`::

    from accelerator_graph.testing.programs import RandomPrograms

    class TestMyPrograms(RandomPrograms):
        examples = 1000          # a tenth of this by default

        def work(self):
            return MyWork()

Without pytest, `check_programs` does the same. The programs are the same in every run. These environment
variables change that, for a long run or for other programs:

``ACCELERATOR_GRAPH_PROGRAMS``
    How many programs, for example ``5000``.
``ACCELERATOR_GRAPH_PROGRAMS_SEED``
    Another seed as a number, or ``random``; the error says which it was.
"""

from __future__ import annotations

import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import ClassVar

from .. import _install, backends
from . import rules  # noqa: F401 (first: it loads _case with assert statements that show their values)
from ._case import Case, folder
from ._programs.model import Piece
from ._programs.program import Program, crosses, report, run
from ._programs.steps import Call, Traits
from ._work import Work

try:
    from hypothesis import Phase, configuration, errors, find, settings
except ImportError as _error:
    raise ImportError(
        "accelerator_graph.testing.programs needs Hypothesis; install it with: "
        + _install.command("programs")
    ) from _error

from ._programs.drawing import programs

EXAMPLES, SEED = "ACCELERATOR_GRAPH_PROGRAMS", "ACCELERATOR_GRAPH_PROGRAMS_SEED"
SHRINK_SECONDS = 60.0
"""After this time the smallest program so far is reported."""
ATTEMPTS = 5
"""How often a program is run to see whether it fails, once one has failed that does not fail every time."""


class RandomPrograms(ABC):
    """Random programs. A subclass defines `work`, and is what pytest collects."""

    examples: ClassVar[int] = 100
    """How many programs."""
    seed: ClassVar[int] = 0
    """Chooses the programs."""

    @abstractmethod
    def work(self) -> Work:
        """Return the device's memory and work, as for `BackendConformance`."""

    def test_random_programs(self) -> None:
        """Eager runs and replays leave in memory what the program's model says."""
        check_programs(self.work(), self.examples, self.seed)


def check_programs(work: Work, examples: int = 100, seed: int = 0) -> None:
    """Run random programs on a backend.

    Parameters
    ----------
    work : Work
        The backend's memory and work; its `backend` says which one is meant.
    examples : int
        How many programs; ``ACCELERATOR_GRAPH_PROGRAMS`` overrides it.
    seed : int
        Chooses the programs, unless ``ACCELERATOR_GRAPH_PROGRAMS_SEED`` does.

    Raises
    ------
    AssertionError
        A program failed. The message has the code of the smallest one that fails.
    BackendError
        The backend is not known or can't run here.
    ValueError
        An environment variable has a wrong value.
    """
    backend = backends.get(work.backend)
    examples = _number(EXAMPLES, examples, 1)
    if os.environ.get(SEED) == "random":
        seed = random.SystemRandom().randrange(2**32)
    else:
        seed = _number(SEED, seed, 0)
    there = work.on(1) if backend.device_count > 1 else None
    drawn = programs(backend) if there is None else programs(backend, 2, crosses(work, there))
    failures = _Failures(work)
    how = settings(max_examples=examples, database=None, deadline=None, phases=(Phase.generate, Phase.shrink))
    try:
        with _nothing_written():
            code = find(drawn, failures.has, settings=how, random=random.Random(seed)).code
    except errors.NoSuchExample:
        return
    except _ShrunkLongEnough:
        code = min(failures.errors, key=lambda code: (code.count("\n"), len(code)))
    error = failures.errors[code]
    raise AssertionError(f"{report(work, code, error)}\n(seed {seed})") from error


def _number(variable: str, default: int, least: int) -> int:
    """Return the number that an environment variable asks for."""
    value = os.environ.get(variable) or str(default)
    if not value.isdecimal() or int(value) < least:
        raise ValueError(f"{variable} must be a number from {least} on, not {value!r}.")
    return int(value)


class _Case(Case):
    """What runs one program."""

    time_limit = 20.0

    def __init__(self, work: Work) -> None:
        self._work = work

    def work(self) -> Work:
        return self._work


class _ShrunkLongEnough(BaseException):
    """Ends the search at once. Hypothesis takes an `Exception` for another failure."""


class _Failures:
    """The programs that fail on a backend."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._passed: set[str] = set()
        self._attempts = 1
        self._end = 0.0
        self._check = Program(Traits(work.backend), [], [Call(0, [Piece(0, 0, 1, 1)])]).code
        self.errors: dict[str, Exception] = {}
        """How each has failed, by its code."""

    def has(self, program: Program) -> bool:
        """Return True if a program fails, in one of several runs if the first failure was not steady."""
        code = program.code
        if code in self.errors or code in self._passed:
            return code in self.errors
        if self.errors and time.monotonic() > self._end:
            raise _ShrunkLongEnough
        error = next(filter(None, (self._error(code) for _ in range(self._attempts))), None)
        if error is None:
            self._passed.add(code)
        else:
            if self._error(self._check) is not None:
                self._end = 0.0  # the failure has broken more than its program: shrinking would mislead
            elif not self.errors:
                self._end = time.monotonic() + SHRINK_SECONDS
                self._attempts = 1 if self._error(code) and self._error(code) else ATTEMPTS
            self.errors[code] = error
        return error is not None

    def _error(self, code: str) -> Exception | None:
        """Run a program; return how it fails."""
        case = _Case(self._work)
        try:
            case.run(partial(run, case, code))
        except Exception as error:
            return error
        return None


@contextmanager
def _nothing_written() -> Iterator[None]:
    """Let Hypothesis write its caches into a folder that goes away, not into the user's."""
    before = getattr(configuration, "__hypothesis_home_directory", None)
    with folder() as path:
        configuration.set_hypothesis_home_dir(path)
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(before)
