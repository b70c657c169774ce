"""A process that has only probed can fork."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from unittest import SkipTest

from .._case import Case

USE = """
import importlib, json, os, signal, sys, traceback

path, module, names, name, opened_before, limit = json.loads(sys.argv[1])
sys.path[:] = path
found = importlib.import_module(module)
for each in names.split("."):
    found = getattr(found, each)
assert found.probe().usable, found.probe().reason

import accelerator_graph as ag

if name not in ag.backends.names():
    ag.backends.register(name, found)
if opened_before:
    ag.backends.get(name)

child = os.fork()
if child:
    sys.exit(os.waitpid(child, 0)[1] != 0)
signal.setitimer(signal.ITIMER_REAL, limit)  # the end of a child that hangs
try:
    if opened_before and not found.survives_fork:
        try:
            ag.backends.get(name)
        except ag.errors.BackendUnavailableError:
            os._exit(0)
        raise AssertionError("the child got a backend that its parent had opened")
    backend = ag.backends.get(name)
    stream = backend.create_stream(0)
    graph = backend.capture_end(backend.capture_begin(stream, backend.capture_modes[0]))
    executable = backend.instantiate(graph)
    backend.replay(executable, stream)
    backend.synchronize(stream)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)
    backend.destroy_stream(stream)
except BaseException:
    traceback.print_exc()
    os._exit(1)
os._exit(0)
"""


class ProcessRules(Case):
    """A process that has only probed can fork."""

    def test_child_of_a_process_that_has_probed_can_use_the_backend(self) -> None:
        """`probe` initialises nothing: after it, a forked child can open the backend, capture and replay."""
        self._in_a_child(opened_before=False)

    def test_child_of_a_process_that_has_opened_the_backend_can_use_it_or_is_told(self) -> None:
        """After its parent has opened the backend, a forked child can use it or gets an error."""
        self._in_a_child(opened_before=True)

    def _in_a_child(self, *, opened_before: bool) -> None:
        if not hasattr(os, "fork"):
            raise SkipTest("this system has no fork")
        kind = type(self.backend)
        found: object = sys.modules.get(kind.__module__)
        for name in kind.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is not kind or kind.__module__ == "__main__":
            raise SkipTest(f"another process can't import {kind.__qualname__} from {kind.__module__}")
        name, limit = self.backend.name, self.time_limit / 2
        facts = json.dumps([sys.path, kind.__module__, kind.__qualname__, name, opened_before, limit])
        try:
            done = subprocess.run(
                [sys.executable, "-W", "ignore::DeprecationWarning", "-c", USE, facts],
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the child was still running after {limit:g} s") from None
        if done.returncode:
            raise AssertionError(f"this failed in the child:\n{done.stderr}")
